"""The project as `pip install noonday` installs it: without extras, into an environment of its own."""

import json
import os
import subprocess
import sys
import venv
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

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        venv.create(folder, symlinks=True)
        # The packages were downloaded when this project was set up, so their cache is enough.
        self._run(
            *(Path(sys.executable).with_name("uv"), "pip", "install", "--quiet", "--offline"),
            *("--python", folder / "bin/python", "--constraint", PROJECT / "requirements.lock", PROJECT),
        )

    def python(self, *words: str) -> "subprocess.CompletedProcess[str]":
        return self._run(self._folder / "bin/python", *words)

    def noonday(self, *words: str, **environ: str) -> "subprocess.CompletedProcess[str]":
        return self._run(self._folder / "bin/noonday", *words, check=False, **environ)

    def _run(self, *words: str | Path, check: bool = True, **environ: str) -> "subprocess.CompletedProcess[str]":
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("NOONDAY_", "PYTHON"))}
        result = subprocess.run(
            words, capture_output=True, text=True, env=kept | environ, cwd=self._folder, check=False
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
