"""The dependencies in pyproject.toml are those that the code imports."""

import ast
import sys
from functools import cache
from pathlib import Path

import pytest

from noonday.extras import PACKAGES, Extra, is_installed, require
from noonday.model.errors import MissingExtra
from tests.support.distributions import PROJECT, declared, modules_of, name_of

pytestmark = pytest.mark.usefixtures("no_garbage_collection")

SOURCE = PROJECT / "src/noonday"
CLUSTER_DRIVERS = ("drivers/postgres", "drivers/redis", "drivers/kafka")
OF_FILES = {"yaml"}
"""Imported inside a function, by commands that read or write YAML. `noonday[yaml]` has it."""
OPTIONAL = {"opentelemetry", "psycopg"}
"""Imported inside a function, or by `noonday[otlp]` only."""


@cache
def imported(path: Path) -> frozenset[str]:
    """The top-level modules of others that a file imports."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            names.add(node.module or "")
    return frozenset(name.partition(".")[0] for name in names) - sys.stdlib_module_names - {"noonday"}


def files_of(*parts: str) -> list[Path]:
    return [path for part in parts for path in sorted(SOURCE.glob(part))]


def modules(extra: str | None) -> set[str]:
    found = modules_of(name_of(each) for each in declared(extra))
    return found | ({"hiredis"} if any("[hiredis]" in each for each in declared(extra)) else set())


KIT = SOURCE / "testing.py"
"""The test kit, which needs the engine, and pytest for its fixture."""
CLIENT = [*files_of("*.py", "model/**/*.py", "sdk/*.py", "cli/*.py", "runtime/clock.py", "ports/clock.py")]
CLUSTER = [*files_of(*(f"{part}/**/*.py" for part in CLUSTER_DRIVERS)), *files_of("cli/server/*_checks.py")]


@pytest.mark.slow
def test_client_imports_its_dependencies_only() -> None:
    allowed = modules(None) | OF_FILES
    assert {str(path): name for path in CLIENT if path != KIT for name in imported(path) if name not in allowed} == {}


@pytest.mark.slow
def test_kit_imports_pytest_besides_the_server() -> None:
    assert imported(KIT) <= modules(None) | modules("server") | {"pytest", "pytest_asyncio"}


@pytest.mark.slow
def test_server_imports_the_dependencies_of_its_extra_only() -> None:
    allowed = modules(None) | modules("server") | OPTIONAL
    server = set(files_of("**/*.py")) - set(CLIENT) - set(CLUSTER)
    assert {str(path): name for path in server for name in imported(path) if name not in allowed} == {}


@pytest.mark.slow
def test_drivers_of_a_cluster_import_the_dependencies_of_its_extra_only() -> None:
    allowed = modules(None) | modules("server") | modules("cluster") | OPTIONAL
    assert {str(path): name for path in CLUSTER for name in imported(path) if name not in allowed} == {}


@pytest.mark.slow
def test_each_dependency_is_imported() -> None:
    used = {name for path in files_of("**/*.py") for name in imported(path)}
    through_others = {"httptools", "tzdata"}
    assert (modules(None) | modules("server") | modules("cluster")) - used - through_others == set()


@pytest.mark.slow
def test_distributions_of_an_extra_are_those_of_the_project_file() -> None:
    everywhere = {name_of(each) for each in declared("server") if ";" not in each}
    assert set(PACKAGES[Extra.SERVER]) == modules_of(everywhere)
    assert set(PACKAGES[Extra.CLUSTER]) == modules_of(everywhere) | modules("cluster") - {"noonday"}


def test_installed_extra_passes() -> None:
    assert is_installed(Extra.CLUSTER)
    require(Extra.CLUSTER, "noonday serve")


def test_missing_extra_is_an_import_error() -> None:
    assert issubclass(MissingExtra, ImportError)
