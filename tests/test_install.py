"""The project as `pip install noonday` installs it: without extras, into an environment of its own."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from noonday.cli import exits
from tests.cli.serving import Up
from tests.support.distributions import PROJECT

pytestmark = pytest.mark.slow

ROUND_TRIP = """
import sys
from noonday import JobSpec, JobType, Target
from noonday.sdk.sync import SyncClient

with SyncClient(sys.argv[1], sys.argv[2]) as client:
    job = client.create(JobSpec(type=JobType.ONE_TIME, target=Target("demo", "demo.echo"), payload="hello", name="thin"))
    print(client.result(job))
servers = "noonday.api", "noonday.drivers", "noonday.intake", "noonday.wiring", "noonday.worker"
print([name for name in sys.modules if name.startswith(servers)])
"""


class Installed:
    """An environment with Noonday in it, and nothing that its extras would add."""

    def __init__(self, folder: Path, python: Path = Path(sys.executable), extra: str = "") -> None:
        self._folder = folder
        self._run(python, "-m", "venv", "--symlinks", "--without-pip", folder, inside=False)
        # The packages were downloaded when this project was set up, so their cache is enough.
        self._run(
            *(Path(sys.executable).with_name("uv"), "pip", "install", "--quiet", "--offline"),
            *("--python", folder / "bin/python", "--constraint", PROJECT / "requirements.lock", f"{PROJECT}{extra}"),
        )

    def python(self, *words: str) -> "subprocess.CompletedProcess[str]":
        return self._run(self._folder / "bin/python", *words)

    def noonday(self, *words: str, **environ: str) -> "subprocess.CompletedProcess[str]":
        return self._run(self._folder / "bin/noonday", *words, check=False, **environ)

    def _run(
        self, *words: str | Path, check: bool = True, inside: bool = True, **environ: str
    ) -> "subprocess.CompletedProcess[str]":
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("NOONDAY_", "PYTHON"))}
        result = subprocess.run(
            words, capture_output=True, text=True, env=kept | environ, cwd=self._folder if inside else None, check=False
        )
        assert not check or result.returncode == 0, result.stderr
        return result


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    return Installed(tmp_path_factory.mktemp("client"))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with Up(tmp_path_factory.mktemp("up"), "--port", "0") as up:
        yield up


def test_every_help_works(installed: Installed) -> None:
    helps = json.loads(installed.python(str(PROJECT / "tests/cli/every_help.py")).stdout)
    assert len(helps["commands"]) > 80
    assert helps["failed"] == []


def test_client_creates_a_job_and_gets_its_result(installed: Installed, server: Up) -> None:
    token = installed.noonday("token", "--data", str(server.data)).stdout.strip()
    assert installed.python("-c", ROUND_TRIP, server.url, token).stdout == "hello\n[]\n"


def test_command_creates_its_own_token_on_the_machine_of_the_server(installed: Installed, server: Up) -> None:
    result = installed.noonday("pool", "list", "--json", "--url", server.url, "--data", str(server.data))
    assert "demo" in [pool["name"] for pool in json.loads(result.stdout)["pools"]]


def test_command_that_needs_an_extra_names_it(installed: Installed) -> None:
    result = installed.noonday("up")
    assert result.stderr == "error: noonday up needs the server: pip install 'noonday[server]'\n"
    assert result.returncode == exits.USAGE


def test_worker_names_its_extra(installed: Installed) -> None:
    result = installed.noonday("worker")
    assert result.stderr == "error: noonday worker needs the cluster: pip install 'noonday[cluster]'\n"
    assert result.returncode == exits.USAGE


EMBEDDED = """
import asyncio
import warnings

# What the next version of Python refuses is an error in our own modules.
warnings.filterwarnings("error", category=DeprecationWarning, module="noonday")
from noonday import Context, Noonday

app = Noonday()

@app.handler("add")
async def add(ctx: Context, payload: list[int]) -> int:
    return sum(payload)

async def main() -> None:
    async with app.embedded("app.db"):
        print(await app.result(await app.enqueue(add, [2, 3])))

asyncio.run(main())
"""


def interpreter(version: str) -> Path | None:
    """Return an interpreter of a version of Python that this machine has: on the path, or of pyenv."""
    on_path = shutil.which(f"python{version}")
    of_pyenv = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python{version}"))
    return of_pyenv[-1] if of_pyenv else Path(on_path) if on_path else None


@pytest.mark.parametrize("version", ["3.11", "3.12", "3.13"])
def test_package_works_on_each_version_of_python(version: str, tmp_path: Path) -> None:
    python = interpreter(version)
    if python is None:
        pytest.skip(f"this machine has no Python {version}")
    try:
        made = Installed(tmp_path / "env", python, "[server]")
    except AssertionError as missing:
        if "network was disabled" in str(missing):
            pytest.skip(f"the cache of uv has no packages for Python {version}")
        raise
    assert made.python("--version").stdout.startswith(f"Python {version}.")
    assert made.python("-c", EMBEDDED).stdout == "5\n"
    helps = json.loads(made.python(str(PROJECT / "tests/cli/every_help.py")).stdout)
    assert helps["failed"] == []
