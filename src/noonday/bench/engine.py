"""The engine that is measured: as `noonday up` runs it, with one handler that notes when it was called."""

import os
import sys
import time
from array import array
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from noonday.bench.works import TARGET
from noonday.sdk.registry import Registry
from noonday.wiring.application import new_event_loop
from noonday.wiring.embedded import Embedded
from noonday.wiring.server import SWITCH_SEC
from noonday.wiring.settings import Settings, load_settings
from noonday.worker.context import Context
from noonday.worker.host import HandlerThread

_COUNT = ("NOONDAY_STORE_", "NOONDAY_SCHEDULER_", "NOONDAY_WORKER_")


class Notes:
    """What the handler saw, in the order it saw it. Written on the handlers' loop."""

    def __init__(self) -> None:
        self._executions: list[str] = []
        self._at_ns = array("q")
        self.registry = Registry()
        self.registry.handler(TARGET.handler, pool=TARGET.pool)(self.note)

    async def note(self, ctx: Context) -> None:
        self._at_ns.append(time.time_ns())
        self._executions.append(ctx.execution_id)

    def __len__(self) -> int:
        return len(self._executions)

    def starts(self) -> list[tuple[str, int]]:
        return list(zip(self._executions, self._at_ns, strict=True))


def environment() -> dict[str, str]:
    """The environment without what would lead a process to other data or tokens. Settings of the engine count."""
    return {
        name: value for name, value in os.environ.items() if not name.startswith("NOONDAY_") or name.startswith(_COUNT)
    }


def settings_for(data: str) -> Settings:
    """Everything by default, but what the environment says."""
    return load_settings({"data": data}, environment(), None)


@asynccontextmanager
async def running(settings: Settings, notes: Notes) -> AsyncIterator[Embedded]:
    sys.setswitchinterval(SWITCH_SEC)
    thread = HandlerThread(new_event_loop, "noonday-handlers")
    try:
        embedded = await Embedded.open(settings, notes.registry.handlers, handlers_loop=thread.loop)
        try:
            yield embedded
        finally:
            await embedded.close()
    finally:
        thread.close()
