"""The code obeys the glossary."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.docs.pages import SOURCE, table

_WORD = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+")
DRAWERS = {"util", "utils", "helper", "helpers", "common", "misc", "manager"}


def test_each_word_has_its_place_in_the_code() -> None:
    assert [row[0] for row in table("glossary.md", "word") if not re.fullmatch(r"`[\w/]+\.py: [\w.]+`", row[2])] == []


def test_each_word_means_one_thing() -> None:
    words = [word.lower() for row in table("glossary.md", "word") for word in row[0].split(", ")]
    assert sorted(words) == sorted(set(words))


def test_no_module_or_class_is_called_by_a_forbidden_word() -> None:
    forbidden = {word for row in table("glossary.md", "word") for word in row[3].split(", ") if word}
    assert forbidden > {"queue", "task", "shard"}
    assert [name for name in _names_of_modules_and_classes() if (forbidden | DRAWERS) & _words_of(name)] == []


def _names_of_modules_and_classes() -> Iterator[str]:
    for path in SOURCE.rglob("*.py"):
        yield path.stem
        yield from _classes(path)


def _classes(path: Path) -> Iterator[str]:
    yield from (node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ClassDef))


def _words_of(name: str) -> set[str]:
    return {word.lower() for word in _WORD.findall(name)}
