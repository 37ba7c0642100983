"""`noonday up` as a separate process. A scenario starts it, sends requests, stops it and kills it."""

import asyncio
import inspect
import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import aiohttp

from noonday.crypto.tokens import mint

ROOT = Path(__file__).parents[2]
SECRET = "a secret that is long enough for every scenario"
APP = "tests.scenarios.victim:app"
PATIENCE_SEC = 180.0
"""Seconds that a scenario waits for events that are immediate on an idle machine."""
UNFINISHED = (
    """SELECT 1 FROM executions WHERE state < 2 UNION ALL SELECT 1 FROM timeline WHERE due_ms IS NOT NULL LIMIT 1"""
)
"""Whether anything is open or will be due.

One statement: an occurrence that is fired between two statements would be in neither.
"""


class Server:
    """One data file, and the process that serves it at present, if any."""

    def __init__(
        self, folder: Path, *, data: Path | None = None, prefix: Sequence[str] = (), **settings: object
    ) -> None:
        """`settings` by their variables, as in `worker_drain_sec=5`; `prefix` is put before the command."""
        self.folder = folder
        self.data = data or folder / "noonday.db"
        self.log = folder / "effects.jsonl"
        self.prefix = prefix
        self.settings = settings
        self.process: subprocess.Popen[bytes] | None = None
        self.starts = 0
        self.url: str | None = None
        """The address of the API, after it has answered."""
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> "Server":
        self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=PATIENCE_SEC))
        return self

    async def __aexit__(self, *exception: object) -> None:
        self.kill()
        assert self._session is not None
        await self._session.close()

    # -- the process ---------------------------------------------------------------------------------------------------

    def start(self) -> subprocess.Popen[bytes]:
        """Start the process without waiting for it."""
        self.starts += 1
        self.url = None
        command = [sys.executable, "-m", "noonday", "up", APP, "--port", "0", "--data", str(self.data)]
        with self._file("out").open("wb") as out, self._file("err").open("wb") as err:
            self.process = subprocess.Popen(
                [*self.prefix, *command], stdout=out, stderr=err, env=self._environment(), cwd=self.folder
            )
        return self.process

    async def up(self) -> "Server":
        """Start the process, and wait until it answers."""
        self.start()
        return await self.answering()

    async def answering(self) -> "Server":
        self.url = await until(self._find_url)
        return self

    def kill(self) -> None:
        """Send kill -9, if the process is alive. It is dead afterwards."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.url = None

    def signal(self, number: int = signal.SIGTERM) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    async def exit_code(self) -> int:
        """Wait until the process has ended by itself."""
        process = self.process
        assert process is not None
        await until(lambda: process.poll() is not None)
        self.url = None
        return process.returncode

    @property
    def out(self) -> str:
        """The standard output of the present or last process."""
        return self._file("out").read_text()

    @property
    def err(self) -> str:
        return self._file("err").read_text()

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    # -- requests ------------------------------------------------------------------------------------------------------

    async def ask(self, method: str, path: str, body: Any = None, **more: str) -> tuple[int, Any]:
        """Send one request, once. Raises OSError or aiohttp.ClientError if it is not answered."""
        if self.url is None:
            raise ConnectionError("the process is not up")
        assert self._session is not None
        headers = {"Authorization": f"Bearer {_token()}", **more}
        async with self._session.request(method, self.url + path, json=body, headers=headers) as response:
            text = await response.read()
            return response.status, json.loads(text) if text else None

    async def create(self, handler: str, payload: Any = None, *, pool: str = "p", **fields: Any) -> dict[str, Any]:
        """Create a one-shot that is due at once, unless `fields` (in the words of the wire) say otherwise."""
        status, job = await self.ask("POST", "/v1/jobs", job_body(handler, payload, pool=pool, **fields))
        assert status == 201, job
        return job  # type: ignore[no-any-return]

    async def executions(self, job: dict[str, Any]) -> list[dict[str, Any]]:
        status, page = await self.ask("GET", f"/v1/jobs/{job['jobId']}/executions?limit=500")
        assert status == 200, page
        return page["executions"]  # type: ignore[no-any-return]

    async def execution(self, job: dict[str, Any], *, state: str) -> dict[str, Any]:
        """Wait until the one execution of a one-shot is in a state, and return it in full."""

        async def look() -> dict[str, Any] | None:
            found = await self.executions(job)
            return found[0] if found and found[0]["state"] == state else None

        execution = await until(look)
        return (await self.ask("GET", f"/v1/executions/{execution['executionId']}"))[1]  # type: ignore[no-any-return]

    async def started(self, job: dict[str, Any], times: int = 1) -> dict[str, Any]:
        """Wait until the handler of a job was entered so many times, and return its last line."""
        return await until(lambda: len(lines := self.lines("start", job)) >= times and lines[-1])

    # -- results -------------------------------------------------------------------------------------------------------

    def lines(self, what: str | None = None, job: dict[str, Any] | None = None) -> list[dict[str, Any]]:
        """The lines that the handlers wrote, in order."""
        if not self.log.exists():
            return []
        # The last line may be incomplete while a handler writes it.
        whole, _, _ = self.log.read_text().rpartition("\n")
        lines = [json.loads(line) for line in whole.splitlines()]
        return [line for line in lines if what in (None, line["what"]) and (job is None or job["jobId"] == line["job"])]

    def query(self, sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
        """Query the file directly. A process may be at work on it."""
        with closing(sqlite3.connect(f"file:{self.data}?mode=ro", uri=True, timeout=PATIENCE_SEC)) as conn:
            return conn.execute(sql, parameters).fetchall()

    def _file(self, kind: str) -> Path:
        return self.folder / f"{kind}-{self.starts}.txt"

    def _find_url(self) -> str | None:
        assert self.process is not None
        if self.process.poll() is not None:
            raise AssertionError(f"it ended with exit code {self.process.returncode}: {self.err}")
        found = re.search(r"(http://\S+)/docs", self.out)
        return found[1] if found else None

    def _environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("NOONDAY_")}
        chosen = {f"NOONDAY_{name.upper()}": str(value) for name, value in self.settings.items()}
        ours = {"PYTHONPATH": str(ROOT), "VICTIM_LOG": str(self.log), "NOONDAY_AUTH_SECRET": SECRET}
        return kept | ours | chosen


def job_body(handler: str, payload: Any = None, *, pool: str = "p", **fields: Any) -> dict[str, Any]:
    quick = {"maxAttempts": 6, "backoff": "FIXED", "initialDelayMs": 300}
    target = {"pool": pool, "handler": handler}
    return {
        "type": "ONE_TIME",
        "target": target,
        "payload": {"v": 1, **(payload or {})},
        "retryPolicy": quick,
        **fields,
    }


async def until(look: Callable[[], Any], within_sec: float = PATIENCE_SEC) -> Any:
    """Call `look` again and again until it returns something true, and return that."""
    deadline = time.monotonic() + within_sec
    while True:
        seen = look()
        if inspect.isawaitable(seen):
            seen = await seen
        if seen:
            return seen
        assert time.monotonic() < deadline, f"not within {within_sec:g} s: {inspect.getsource(look).strip()}"
        await asyncio.sleep(0.02)


@asynccontextmanager
async def served(folder: Path, **settings: Any) -> AsyncIterator[Server]:
    """Start a server, and wait until it is up."""
    async with Server(folder, **settings) as server:
        yield await server.up()


def _token() -> str:
    return mint(
        SECRET, tenant="default", subject="scenario", scopes=["operator"], ttl_seconds=86_400, now=int(time.time())
    )
