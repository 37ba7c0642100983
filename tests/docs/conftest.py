"""A real server for examples that use one."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from noonday.crypto.tokens import mint
from noonday.runtime.clock import SystemClock

_API = re.compile(r"API\s+(http://\S+)")


@dataclass(frozen=True)
class Server:
    url: str
    folder: Path
    """The folder of the server, with its data file under the usual name."""
    token: str

    @property
    def environment(self) -> dict[str, str]:
        """The environment of a second terminal in which the commands are on the path."""
        commands = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        return {**os.environ, "PATH": commands, "NOONDAY_URL": self.url, "NOONDAY_TOKEN": self.token}


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("server")
    command = [sys.executable, "-u", "-m", "noonday", "up", "--port", "0"]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        url = _wait_for_url(process)
        secret = (folder / "noonday.db.secret").read_text().strip()
        now = SystemClock().now_ms() / 1000
        token = mint(secret, tenant="default", subject="docs", scopes=["operator"], ttl_seconds=86_400, now=now)
        yield Server(url, folder, token)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)
        assert process.returncode == 0


def _wait_for_url(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    output = ""
    for line in process.stdout:
        output += line
        if found := _API.search(line):
            # The greeting is printed at once if everything works.
            return found[1]
    raise AssertionError(f"the server did not start: {output}")
