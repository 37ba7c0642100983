"""The receiver of tasks in scenarios: a real HTTP server that writes a line for each call, as handlers do."""

import asyncio
import contextlib
import json
import os
import time
from collections.abc import Callable, Iterable
from datetime import datetime
from pathlib import Path
from typing import Any

from aiohttp import web


class Receiver:
    """Does what the body of a call says: takes `sec` seconds, answers 500 to the first `failures` attempts.

    Each call is a line when it begins and a line when it was answered, in the same file as the handlers' lines.
    """

    def __init__(self, log: Path, callers: Callable[[], Iterable[int]], last_dead: Callable[[], int]) -> None:
        """`callers`: the processes that may be calling; `last_dead`: the process that died last, and may have called
        before."""
        self._log = log
        self._callers = callers
        self._last_dead = last_dead
        self._pids: dict[object, int] = {}
        """The process of each connection."""

    async def __aenter__(self) -> "Receiver":
        app = web.Application()
        app.router.add_post("/", self._answer)
        self._runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=1.0)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}/"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    async def _answer(self, request: web.Request) -> web.Response:
        headers, body = request.headers, await request.json()
        token = int(headers["noonday-token"])
        call = {"execution": headers["webhook-id"], "dispatch": token >> 48, "pid": self._pid_of(request), "job": None}
        due = datetime.fromisoformat(headers["noonday-scheduled-at"])
        # The request does not have the time of the caller's pre-start check; its claim, which came before, is part of the token.
        checked_ms = token & (1 << 48) - 1
        begun = {"token": token, "start_ms": _now_ms(), "checked_ms": checked_ms, "payload": body}
        begun["due_ms"] = round(due.timestamp() * 1000)
        self._write({"what": "start", **call, **begun})
        # A caller that is gone when the answer is ready does not receive it: then there is no line for the end.
        await asyncio.sleep(body.get("sec", 0))
        self._write({"what": "end", **call, "end_ms": _now_ms()})
        failed = int(headers["noonday-attempt"]) <= body.get("failures", 0)
        return web.Response(status=500 if failed else 200, text="no" if failed else "yes")

    def _pid_of(self, request: web.Request) -> int:
        """Return the pid of the caller. A caller that is gone before it could be found is the process that died last."""
        transport = request.transport
        if transport not in self._pids:
            port = transport.get_extra_info("peername")[1] if transport else 0
            found = (pid for pid in self._callers() if _has_connection(pid, port))
            self._pids[transport] = next(found, None) or self._last_dead()
        return self._pids[transport]

    def _write(self, line: dict[str, Any]) -> None:
        """Write a line in a single write, so that lines of several writers are whole."""
        with contextlib.closing(_Appending(self._log)) as log:
            log.write(json.dumps(line).encode() + b"\n")


def _has_connection(pid: int, port: int) -> bool:
    """Whether a process has a connection from this port, according to the kernel."""
    inodes = {
        fields[9]
        for fields in (line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:])
        if int(fields[1].rpartition(":")[2], 16) == port
    }
    with contextlib.suppress(OSError):
        for fd in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                if any(f"socket:[{inode}]" == str(fd.readlink()) for inode in inodes):
                    return True
    return False


class _Appending:
    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def write(self, line: bytes) -> None:
        os.write(self._fd, line)

    def close(self) -> None:
        os.close(self._fd)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
