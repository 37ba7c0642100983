"""The files of the pages about web frameworks, as programs: an engine with the handlers, and the web application beside it."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest

from noonday.sdk.sync import SyncClient
from tests.docs.pages import DOCS, blocks

pytestmark = pytest.mark.slow

T = TypeVar("T")
PATIENCE_SEC = 120.0
_FILE = re.compile(r"^# (?P<path>[\w/]+\.py)\n")
_API = re.compile(r"API\s+(http://\S+)")


def write_files(page: str, folder: Path) -> None:
    """Write each piece of Python that begins with the name of a file."""
    for block in blocks(DOCS / "howto" / page, "python"):
        if found := _FILE.match(block.text):
            path = folder / found["path"]
            for package in path.relative_to(folder).parents[:-1]:
                (folder / package).mkdir(parents=True, exist_ok=True)
                (folder / package / "__init__.py").touch()
            path.write_text(block.text)


class Project:
    """The processes of an application in one folder."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder = folder
        self._stack = stack
        self.environment = {**os.environ, "PYTHONPATH": str(folder), "PYTHONUNBUFFERED": "1"}
        self.environment.pop("NOONDAY_URL", None)

    def start(self, *arguments: str) -> "subprocess.Popen[str]":
        log = self._stack.enter_context((self.folder / f"{arguments[1]}.log").open("w"))
        process = subprocess.Popen(
            [sys.executable, "-m", *arguments], cwd=self.folder, env=self.environment, stdout=log, stderr=log, text=True
        )
        self._stack.callback(end, process)
        return process

    def start_engine(self, app: str) -> None:
        """As the pages say: `noonday up`, a token in a file, and the URL in the environment."""
        process = self.start("noonday", "up", app, "--port", "0")
        log = self.folder / "up.log"
        found = eventually(lambda: _API.search(log.read_text()), process, log)
        self.environment["NOONDAY_URL"] = found[1]
        (self.folder / "noonday.token").write_text(self.run("noonday", "token", "--subject", "shop"))

    def run(self, *arguments: str) -> str:
        ran = subprocess.run(
            [sys.executable, "-m", *arguments],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE_SEC,
            check=False,
        )
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    def serve(self, name: str, *arguments: str) -> Callable[..., Any]:
        """Start a web application, whose last argument is the port, and return a function that asks it."""
        port = free_port()
        process = self.start(*arguments, str(port))
        log = self.folder / f"{arguments[1]}.log"

        def ask(path: str, body: Any = None) -> Any:
            data = None if body is None else msgspec.json.encode(body)
            request = urllib.request.Request(
                f"http://127.0.0.1:{port}{path}", data, {"Content-Type": "application/json"}
            )
            with urllib.request.urlopen(request, timeout=PATIENCE_SEC) as answer:
                return msgspec.json.decode(answer.read())

        def is_up() -> bool:
            try:
                ask("/")
            except urllib.error.HTTPError:
                return True
            except OSError:
                return False
            return True

        eventually(is_up, process, log)
        return ask


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def end(process: "subprocess.Popen[str]") -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(PATIENCE_SEC)
    finally:
        process.kill()


def eventually(
    look: Callable[[], T | None], process: "subprocess.Popen[str] | None" = None, log: Path | None = None
) -> T:
    """Wait until `look` returns something true. Fail with the output of the process if it ends before."""
    deadline = time.monotonic() + PATIENCE_SEC
    while not (seen := look()):
        assert process is None or process.poll() is None, log and log.read_text()
        assert time.monotonic() < deadline, log and log.read_text()
        time.sleep(0.01)
    return seen


@contextmanager
def project(page: str, folder: Path) -> Iterator[Project]:
    write_files(page, folder)
    with ExitStack() as stack:
        yield Project(folder, stack)


WELCOME = {"address": "ada@example.com", "name": "Ada"}
WELCOMED = {"result": "to ada@example.com: Welcome, Ada!"}


def test_fastapi_runs_the_engine_in_its_one_process(tmp_path: Path) -> None:
    with project("fastapi.md", tmp_path) as shop:
        ask = shop.serve("one", "uvicorn", "one:web", "--port")
        job = ask("/sign-up", WELCOME)["job"]
        assert ask(f"/jobs/{job}/result") == WELCOMED
        assert ask("/ready") == {"status": "ready"}


def test_fastapi_uses_one_engine_in_many_processes(tmp_path: Path) -> None:
    with project("fastapi.md", tmp_path) as shop:
        shop.start_engine("jobs:app")
        ask = shop.serve("many", "uvicorn", "many:web", "--workers", "2", "--port")
        signed_up = [ask("/sign-up", WELCOME) for _ in range(8)]
        assert [ask(f"/jobs/{each['job']}/result") for each in signed_up] == [WELCOMED] * 8
        assert "clean_up" in shop.run("noonday", "job", "list", "--url", shop.environment["NOONDAY_URL"])


def test_flask_uses_the_engine_of_another_process(tmp_path: Path) -> None:
    with project("flask.md", tmp_path) as shop:
        shop.start_engine("jobs:app")
        ask = shop.serve("web", "flask", "--app", "web", "run", "--port")
        job = ask("/reports", {"month": "May"})["job"]
        assert ask(f"/reports/{job}") == {"report": "the report of May"}
        with SyncClient(shop.environment["NOONDAY_URL"], token_file=tmp_path / "noonday.token") as client:
            (monthly,) = client.list_jobs(name="monthly").items()
            client.result(client.trigger(monthly.job_id), timeout=PATIENCE_SEC)
            assert {made.payload for made in client.list_jobs(handler="make_report").items()} == {
                "May",
                "the last month",
            }


def test_django_creates_jobs_when_it_commits_and_by_command(tmp_path: Path) -> None:
    with project("django.md", tmp_path) as shop:
        shop.environment["DJANGO_SETTINGS_MODULE"] = "shop.settings"
        shop.run("django", "migrate", "--run-syncdb", "--verbosity", "0")
        shop.start_engine("shop.engine:app")
        ask = shop.serve("web", "django", "runserver", "--noreload")
        order = ask("/orders", {})["order"]
        eventually(lambda: ask(f"/orders/{order}")["state"] == "shipped")
        make = "from shop.models import Order; print(Order.objects.create().pk)"
        forgotten = shop.run("django", "shell", "--no-imports", "--command", make).strip()
        assert shop.run("django", "ship_forgotten") == f"order {forgotten}\n"
        eventually(lambda: ask(f"/orders/{forgotten}")["state"] == "shipped")
