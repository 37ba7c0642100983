"""An application whose handlers write a line for each event, for processes that are killed: a line in a file survives them.

VICTIM_LOG names the file. Each line is one JSON object, appended in a single write.
"""

import asyncio
import gc
import json
import os
import sqlite3
import threading
import time
from pathlib import Path
from typing import Any

from noonday import Context, Noonday
from noonday.drivers.sqlite.connection import ThreadedDatabase
from noonday.model.errors import DoNotRetry
from noonday.worker.context import Snooze

app = Noonday()
_log = os.open(os.environ["VICTIM_LOG"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)


@app.handler("act", pool="p")
async def act(ctx: Context, payload: dict[str, Any]) -> dict[str, Any]:
    """Do what the payload says, on the handlers' loop."""
    _begin(ctx, payload)
    for number in range(payload.get("children", 0)):
        ctx.enqueue("act", {"child": number}, pool="p")
    try:
        for step in range(ctx.progress.get("step", 0), round(payload.get("sec", 0) * 10)):
            ctx.heartbeat({"step": step, "ballast": "z" * payload.get("progress_bytes", 0)})
            await asyncio.sleep(0.1)
        return _conclude(ctx, payload)
    finally:
        _end(ctx)


@app.handler("plod", pool="p")
def plod(ctx: Context, payload: dict[str, Any]) -> dict[str, Any]:
    """Do what the payload says, in a thread."""
    _begin(ctx, payload)
    try:
        until = time.monotonic() + payload.get("sec", 0)
        while time.monotonic() < until and not ctx.cancelled:
            time.sleep(0.02)
        return _conclude(ctx, payload)
    finally:
        _end(ctx)


@app.handler("haul", pool="p", process=True)
def haul(ctx: Context, payload: dict[str, Any]) -> dict[str, Any]:
    """Do what the payload says, in a separate process.

    A killed process writes no end: its last sign of life counts as its end.
    """
    _begin(ctx, payload)
    try:
        until = time.monotonic() + payload.get("sec", 0)
        while (left_sec := until - time.monotonic()) > 0:
            _write("alive", ctx, at_ms=_now_ms())
            time.sleep(min(0.1, left_sec))
        return _conclude(ctx, payload)
    finally:
        _end(ctx)


@app.handler("mule", pool="processes", process=True)
def mule(ctx: Context, payload: dict[str, Any]) -> None:
    """Write a sign of life every few milliseconds, in a separate process."""
    _begin(ctx, payload)
    until = time.monotonic() + payload["sec"]
    while time.monotonic() < until:
        _write("alive", ctx, at_ms=_now_ms())
        time.sleep(0.02)
    _end(ctx)


@app.handler("block", pool="p")
async def block(ctx: Context, payload: dict[str, Any]) -> None:
    """Block the loop until a file appears, as no coroutine should."""
    _begin(ctx, payload)
    while _waits(payload):
        time.sleep(0.01)  # noqa: ASYNC251
    _end(ctx)


@app.handler("stay", pool="p")
async def stay(ctx: Context, payload: dict[str, Any]) -> str:
    """Wait until a file appears, or until the run is cancelled."""
    _begin(ctx, payload)
    try:
        while _waits(payload):
            await asyncio.sleep(0.01)
    finally:
        _end(ctx)
    return "stayed"


@app.handler("stubborn", pool="p")
def stubborn(ctx: Context, payload: dict[str, Any]) -> str:
    """Wait in a thread until a file appears, and ignore a cancellation."""
    _begin(ctx, payload)
    while _waits(payload):
        time.sleep(0.01)
    _end(ctx)
    return "never listened"


@app.handler("lose-store", pool="p")
async def lose_the_store(ctx: Context) -> None:
    """Break the writer of this process, so that it can neither commit nor roll back. Only the first time."""
    if ctx._dispatch.number > 1:
        return
    gc.unfreeze()
    writer = next(each for each in gc.get_objects() if isinstance(each, ThreadedDatabase))._writer
    writer._conn = _Broken(writer._conn)  # type: ignore[assignment]


class _Broken:
    def __init__(self, conn: sqlite3.Connection) -> None:
        self._conn = conn

    def __getattr__(self, name: str) -> Any:
        return getattr(self._conn, name)

    def execute(self, statement: str, *parameters: Any) -> Any:
        if statement in ("COMMIT", "ROLLBACK"):
            raise sqlite3.OperationalError("disk I/O error")
        return self._conn.execute(statement, *parameters)


def _waits(payload: dict[str, Any]) -> bool:
    return not Path(payload["until"]).exists()


def _conclude(ctx: Context, payload: dict[str, Any]) -> dict[str, Any]:
    if ctx.attempt <= payload.get("failures", 0):
        raise ValueError("told to\x00fail \ud800")
    if payload.get("final"):
        raise DoNotRetry("told to")
    if ctx._dispatch.number <= payload.get("snoozes", 0):
        raise Snooze(0.3)
    return {"attempt": ctx.attempt, "ballast": "y" * payload.get("result_bytes", 0)}


def _begin(ctx: Context, payload: dict[str, Any]) -> None:
    # A separate process does not receive the time of the check: the claim came before it.
    checked_ms = ctx._checked_ms or ctx._token.claimed_ms
    due_ms, token = ctx._dispatch.due_ms, ctx.token
    payload = {name: value for name, value in payload.items() if name != "ballast"}
    _write("start", ctx, start_ms=_now_ms(), checked_ms=checked_ms, due_ms=due_ms, token=token, payload=payload)


def _end(ctx: Context) -> None:
    _write("end", ctx, end_ms=_now_ms())


def _write(what: str, ctx: Context, **facts: Any) -> None:
    line = {
        "what": what,
        "execution": ctx.execution_id,
        "job": ctx.job_id,
        "dispatch": ctx._dispatch.number,
        "attempt": ctx.attempt,
        "pid": os.getppid() if ctx.handler == "haul" else os.getpid(),
        "thread": threading.current_thread().name,
        **facts,
    }
    os.write(_log, json.dumps(line).encode() + b"\n")


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
