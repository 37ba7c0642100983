"""What the handlers saw: of each call the execution and the time, kept in memory until somebody asks for it."""

import asyncio
import time
from array import array
from pathlib import Path

import msgspec

from bench.works import TARGET, WAITING
from noonday.sdk.registry import Registry
from noonday.worker.context import Context


class Seen(msgspec.Struct, frozen=True):
    """The notes of one process, in the order of the calls."""

    executions: list[str]
    at_ns: list[int]
    at_once: int
    """How many handlers were waiting at the same time, at most."""

    def starts(self) -> list[tuple[str, int]]:
        return list(zip(self.executions, self.at_ns, strict=True))


class Notes:
    """Two handlers that note that they were called, and what they noted. Written on the handlers' loop."""

    def __init__(self) -> None:
        self._executions: list[str] = []
        self._at_ns = array("q")
        self._waiting = 0
        self._at_once = 0
        self.registry = Registry()
        self.registry.handler(TARGET.handler, pool=TARGET.pool)(self.note)
        self.registry.handler(WAITING.handler, pool=WAITING.pool)(self.wait)

    async def note(self, ctx: Context) -> None:
        self._at_ns.append(time.time_ns())
        self._executions.append(ctx.execution_id)

    async def wait(self, ctx: Context, seconds: float) -> None:
        await self.note(ctx)
        self._waiting += 1
        self._at_once = max(self._at_once, self._waiting)
        try:
            await asyncio.sleep(seconds)
        finally:
            self._waiting -= 1

    def __len__(self) -> int:
        return len(self._executions)

    def seen(self) -> Seen:
        return Seen(self._executions, list(self._at_ns), self._at_once)

    def write(self, path: Path) -> None:
        """Write the whole file or nothing, so that a reader never sees a part of it."""
        unfinished = path.with_suffix(".unfinished")
        unfinished.write_bytes(msgspec.msgpack.encode(self.seen()))
        unfinished.rename(path)


def read_notes(path: Path) -> Seen:
    return msgspec.msgpack.decode(path.read_bytes(), type=Seen)
