"""A process that does one part of a measurement, and tells about it in lines of JSON on its standard output."""

import asyncio
import os
import sys
from contextlib import AbstractAsyncContextManager
from typing import BinaryIO

import msgspec

from bench.callers import Called, Calls, call_all
from bench.creation import (
    APPLICATION_WAYS,
    Bulk,
    create_through_application,
    create_through_desk,
    store_at_rest,
)
from bench.engine import embedded_rig
from bench.figures import Created, Figures
from bench.fleet import Running
from bench.measure import Tell, measure
from bench.rig import Rig
from bench.works import AtRest, Burst, Crons, Stream, Tenants, Waiting, Webhooks, Work
from noonday.model.errors import NoondayError
from noonday.wiring.engine_thread import new_event_loop
from noonday.wiring.settings import Settings
from noonday.wiring.telemetry import set_up_logs


class DataFile(msgspec.Struct, frozen=True, tag="data-file"):
    """What the engine of one machine runs on."""

    path: str


Ground = DataFile | Running


class Order(msgspec.Struct, frozen=True):
    """What to do, and on what; callers over HTTP need no ground."""

    part: Burst | Stream | Crons | Waiting | Webhooks | Tenants | AtRest | Bulk | Calls
    ground: Ground | None = None
    head_start_sec: float = 0


class Progress(msgspec.Struct, frozen=True):
    stage: str
    done: int
    of: int


class Line(msgspec.Struct, frozen=True, omit_defaults=True):
    """One of these; the last line is anything but progress."""

    progress: Progress | None = None
    figures: Figures | None = None
    created: Created | None = None
    called: Called | None = None
    failed: str | None = None


def main() -> None:
    out = _own_output()
    set_up_logs(Settings())
    order = msgspec.json.decode(sys.stdin.buffer.read(), type=Order)

    def send(line: Line) -> None:
        out.write(msgspec.json.encode(line) + b"\n")

    def tell(stage: str, done: int, of: int) -> None:
        send(Line(progress=Progress(stage, done, of)))

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        try:
            send(runner.run(_do(order, tell)))
        except* (NoondayError, OSError) as errors:
            send(Line(failed=_words_of(errors)))


def _own_output() -> BinaryIO:
    """Standard output, kept for our lines: whatever else prints, prints to standard error."""
    own = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    return own


async def _do(order: Order, tell: Tell) -> Line:
    match order.part, order.ground:
        case Calls() as calls, _:
            return Line(called=await call_all(calls, tell))
        case Bulk() as bulk, DataFile(path) if bulk.way in APPLICATION_WAYS:
            return Line(created=await create_through_application(bulk, path, tell))
        case part, ground:
            assert ground
            async with _rig(ground) as rig:
                return await _do_on(rig, part, order.head_start_sec, tell)


def _rig(ground: Ground) -> AbstractAsyncContextManager[Rig]:
    if isinstance(ground, DataFile):
        return embedded_rig(ground.path)
    # The clients of the servers are an extra: one machine alone needs none of them.
    from bench.cluster import cluster_rig

    return cluster_rig(ground)


async def _do_on(rig: Rig, part: Work | AtRest | Bulk, head_start: float, tell: Tell) -> Line:
    match part:
        case AtRest() as rest:
            return Line(created=await store_at_rest(rest, rig, tell))
        case Bulk() as bulk:
            return Line(created=await create_through_desk(bulk, rig, tell))
        case work:
            return Line(figures=await measure(work, rig, head_start, tell))


def _words_of(error: BaseException) -> str:
    """The first of what went wrong: callers that share a server fail together."""
    if isinstance(error, BaseExceptionGroup):
        return _words_of(error.exceptions[0])
    return error.detail if isinstance(error, NoondayError) else repr(error)


if __name__ == "__main__":
    main()
