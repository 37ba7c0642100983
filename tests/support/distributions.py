"""Distributions that this project requires, and the modules that they install."""

import re
import tomllib
from collections.abc import Iterable, Iterator
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
_NAME = re.compile(r"[A-Za-z0-9._-]+")


def declared(extra: str | None = None) -> list[str]:
    """The requirements in pyproject.toml: those without an extra, or those of one extra."""
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    found: list[str] = project["dependencies"] if extra is None else project["optional-dependencies"][extra]
    return found


def name_of(requirement: str) -> str:
    found = _NAME.match(requirement)
    assert found
    return _normal(found[0])


def modules_of(distributions: Iterable[str]) -> set[str]:
    """The top-level modules that these distributions install, without private ones."""
    names = set(distributions)
    owned = {module for module, owners in packages_distributions().items() if names & set(map(_normal, owners))}
    return {module for module in owned if module[0] != "_"}


def with_dependencies(distributions: Iterable[str]) -> set[str]:
    """The distributions, and everything that they need."""
    found: set[str] = set()
    waiting = list(distributions)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += _needed_by(name)
    return found


def _needed_by(distribution: str) -> Iterator[str]:
    try:
        needed = requires(distribution) or []
    except PackageNotFoundError:  # needed on another platform only
        return
    yield from (name_of(each) for each in needed if "extra ==" not in each)


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
