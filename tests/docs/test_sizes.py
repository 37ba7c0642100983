"""Modules, classes and ports have one job each: a size beyond which they are divided, or give the reason."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.pages import SOURCE

pytestmark = pytest.mark.usefixtures("no_garbage_collection")

MOST_METHODS = 20
"""Maximum number of public methods of a class, without those of its bases."""
MOST_LINES = 400
"""Maximum number of lines of a module whose docstring gives no reason for more."""
REASON = "This module is long because"
"""Beginning of the sentence that gives the reason, in the docstring of the module."""


def modules() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


def classes(path: Path) -> Iterator[ast.ClassDef]:
    return (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ClassDef))


def public_methods(found: ast.ClassDef) -> list[str]:
    """Functions, and descriptors that are made by a call, such as `create = blocking(JobMethods.create)`. Overloads are one."""
    names = []
    for node in found.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            names.append(node.name)
        elif (
            isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and isinstance(node.targets[0], ast.Name)
        ):
            names.append(node.targets[0].id)
    return [name for name in dict.fromkeys(names) if not name.startswith("_")]


@pytest.mark.slow
def test_no_class_and_no_port_has_too_many_methods() -> None:
    found = {f"{path.relative_to(SOURCE)}: {each.name}": each for path in modules() for each in classes(path)}
    assert "ports/bus.py: Bus" in found
    counts = {place: len(public_methods(each)) for place, each in found.items()}
    assert {place: count for place, count in counts.items() if count > MOST_METHODS} == {}


def test_both_clients_have_the_same_methods() -> None:
    """The bases of both clients have the same methods, so that no method is missing from one of them."""
    (client,) = (each for each in classes(SOURCE / "sdk/client.py") if each.name == "Client")
    bases = [base.id for base in client.bases if isinstance(base, ast.Name)]
    methods = {each.name: public_methods(each) for path in (SOURCE / "sdk").glob("*.py") for each in classes(path)}
    assert {base: methods[base] for base in bases} == {base: methods[f"Sync{base}"] for base in bases}


def test_a_long_module_gives_the_reason() -> None:
    long = {
        str(path.relative_to(SOURCE)): (len(text.splitlines()), ast.get_docstring(ast.parse(text)) or "")
        for path in modules()
        if len((text := path.read_text()).splitlines()) > MOST_LINES
    }
    assert {name: lines for name, (lines, docstring) in long.items() if REASON not in docstring} == {}
