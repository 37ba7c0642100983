"""Each module of a stage that defines a public class is imported by a test, where a reader can find what the class does."""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, SOURCE

TESTS = ROOT / "tests"
PACKAGES = (
    "alerts",
    "doubles",
    "intake",
    "notifications",
    "recorder",
    "runtime",
    "scheduler",
    "shell",
    "tasks",
    "transitions",
    "worker",
)
WITHOUT_A_TEST = {
    "intake.services": "composes the services of intake; `tests/api/engine.py` builds it for all tests of the API",
    "worker.parent_link": "ends its process together with the parent; `tests/worker/test_parent.py` runs it in workers",
}
"""Modules that no test imports, with the reason."""

_PUBLIC_CLASS = re.compile(r"^class [A-Z]", re.M)
_IMPORT = re.compile(r"^ *(?:from|import) noonday\.([\w.]+)(?: import ([\w, ]+))?", re.M)


def modules() -> Iterator[str]:
    """Yield the modules of the stages that define a public class, by their names below `noonday`."""
    for package in PACKAGES:
        for path in sorted((SOURCE / package).rglob("*.py")):
            if _PUBLIC_CLASS.search(path.read_text()):
                yield ".".join(path.relative_to(SOURCE).with_suffix("").parts)


@cache
def imported() -> frozenset[str]:
    """Return what tests import. The other files in the folder of a package count as well: its tests are made of them."""
    paths = {*TESTS.rglob("test_*.py"), *(path for package in PACKAGES for path in (TESTS / package).rglob("*.py"))}
    return frozenset(name for path in paths for name in _imported_by(path))


def _imported_by(path: Path) -> Iterator[str]:
    for module, names in _IMPORT.findall(path.read_text()):
        yield module
        yield from (f"{module}.{name.strip()}" for name in names.split(",") if name)


def untested() -> set[str]:
    return set(modules()) - imported()


@pytest.mark.slow
def test_each_module_with_a_public_class_is_imported_by_a_test() -> None:
    """To repair: write a test beside those of its package that constructs the class, or add the module with a reason."""
    assert untested() - WITHOUT_A_TEST.keys() == set()


def test_each_exception_is_needed() -> None:
    assert WITHOUT_A_TEST.keys() - untested() == set()


def test_each_package_of_stages_is_listed() -> None:
    """Those beside them have values, contracts, drivers and doors, with tests of their own kind."""
    others = {"api", "cli", "crypto", "drivers", "mail", "model", "ports", "sdk", "webhooks", "wiring"}
    assert {path.parent.name for path in SOURCE.glob("*/__init__.py")} - others == set(PACKAGES)
