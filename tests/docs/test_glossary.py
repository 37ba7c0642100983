"""The code obeys the glossary."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.pages import SOURCE, table

pytestmark = pytest.mark.usefixtures("no_garbage_collection")

_WORD = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+")
ALLOWED = {
    "tasks": {"task", "status"},
    "webhooks": {"task", "status"},
    "notifications": {"status", "bucket", "cache"},
}
"""Words that are right in a folder. Users know tasks and statuses by these names; a bucket holds notifications of a minute."""
DRAWERS = {"util", "utils", "helper", "helpers", "common", "misc", "manager"}


@pytest.mark.slow
def test_each_word_is_found_in_the_code() -> None:
    assert [row[0] for row in table("glossary.md", "word") if not re.fullmatch(r"`[\w/]+\.py: [\w.]+`", row[2])] == []


def test_each_word_means_one_thing() -> None:
    words = [word.lower() for row in table("glossary.md", "word") for word in row[0].split(", ")]
    assert sorted(words) == sorted(set(words))


@pytest.mark.slow
def test_no_module_or_class_is_called_by_a_forbidden_word() -> None:
    forbidden = {word for row in table("glossary.md", "word") for word in row[3].split(", ") if word}
    assert forbidden > {"queue", "task", "shard"}
    wrong = [
        name for path in SOURCE.rglob("*.py") for name in _called(path) if _words_of(name) & _never(path, forbidden)
    ]
    assert wrong == []


def _never(path: Path, forbidden: set[str]) -> set[str]:
    return (forbidden | DRAWERS) - ALLOWED.get(path.parent.name, set())


def _called(path: Path) -> Iterator[str]:
    """The names of the module and its classes."""
    yield path.stem
    yield from _classes(path)


def _classes(path: Path) -> Iterator[str]:
    yield from (node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ClassDef))


def _words_of(name: str) -> set[str]:
    return {word.lower() for word in _WORD.findall(name)}
