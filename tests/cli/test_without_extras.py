"""The command line with only the client installed: all other modules are hidden from the import system."""

import json
import subprocess
import sys
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import pytest

from noonday.cli import exits
from tests.support.distributions import PROJECT, declared, modules_of, name_of, with_dependencies

PROGRAM = Path(__file__).with_name("every_help.py")
CLIENT = {"cli", "extras", "model", "sdk"}
OF_THE_CLOCK = {"noonday.ports.clock", "noonday.runtime.clock"}


def other_distributions() -> list[str]:
    """The modules that no dependency of the client installs. Private modules stay: our code imports none of them."""
    kept = modules_of(with_dependencies(map(name_of, declared())))
    return sorted(name for name in set(packages_distributions()) - kept - {"noonday"} if name[0] != "_")


def server_packages() -> list[str]:
    packages = {f"noonday.{path.stem}" for path in (PROJECT / "src/noonday").iterdir() if path.stem[0] != "_"}
    kept = {f"noonday.{name}" for name in CLIENT} | {name.rpartition(".")[0] for name in OF_THE_CLOCK}
    inside = {
        f"noonday.{package}.{path.stem}"
        for package in ("ports", "runtime")
        for path in (PROJECT / "src/noonday" / package).glob("[a-z]*.py")
    }
    return sorted((packages - kept) | (inside - OF_THE_CLOCK) | {"noonday.cli.server"})


@pytest.fixture(scope="module")
def helps() -> dict[str, Any]:
    hidden = ",".join([*other_distributions(), *server_packages()])
    shown = subprocess.run([sys.executable, PROGRAM, hidden], capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(shown.stdout)
    return found


@pytest.mark.slow
def test_every_help_works_without_the_server(helps: dict[str, Any]) -> None:
    assert {"", "up", "serve", "worker", "doctor", "keys new", "job list", "task dead list"} <= set(helps["commands"])
    assert helps["failed"] == []


def test_mistyped_commands_are_refused_without_the_server(helps: dict[str, Any]) -> None:
    assert helps["codes"] == [exits.USAGE]
    assert helps["suggestions"] > 0


@pytest.mark.slow
def test_server_packages_are_hidden(helps: dict[str, Any]) -> None:
    packages = {name.split(".")[1] for name in helps["imported"]} - {"ports", "runtime"}
    assert packages == CLIENT
    assert {"structlog", "starlette", "cryptography", "jwt", "asyncpg"} <= set(other_distributions())


RUN = """
import sys
sys.path.insert(0, {folder!r})
from every_help import Hiding, PathFinder
sys.meta_path[:] = [Hiding(frozenset({hidden!r})) if finder is PathFinder else finder for finder in sys.meta_path]
{program}
"""


def run_without(hidden: list[str], program: str) -> "subprocess.CompletedProcess[str]":
    code = RUN.format(folder=str(PROGRAM.parent), hidden=hidden, program=program)
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "extra"),
    [
        ("up", "server"),
        ("doctor", "server"),
        ("keys list", "server"),
        ("keys new", "server"),
        ("serve", "cluster"),
        ("worker", "cluster"),
        ("migrate", "cluster"),
        ("replay --pool mail --from -2h", "cluster"),
    ],
)
def test_command_that_needs_an_extra_names_it(command: str, extra: str) -> None:
    program = f"from noonday.cli.main import main; main({command.split()!r}, prog_name='noonday')"
    result = run_without(other_distributions(), program)
    name = command.partition(" --")[0]
    assert result.stderr == f"error: noonday {name} needs the {extra}: pip install 'noonday[{extra}]'\n"
    assert result.returncode == exits.USAGE


@pytest.mark.slow
def test_cluster_command_names_the_cluster_where_the_server_is_installed() -> None:
    result = run_without(["asyncpg"], "from noonday.cli.main import main; main(['serve'], prog_name='noonday')")
    assert result.stderr == "error: noonday serve needs the cluster: pip install 'noonday[cluster]'\n"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["Noonday", "testing"])
def test_name_of_the_package_that_needs_the_server_names_the_extra(name: str) -> None:
    result = run_without(other_distributions(), f"from noonday import JobSpec, {name}")
    assert result.stderr.endswith(f"noonday.{name} needs the server: pip install 'noonday[server]'\n")
