"""A process that does one part of a measurement, and tells about it in lines of JSON on its standard output."""

import asyncio
import os
import sys
from typing import BinaryIO

import msgspec

from noonday.bench.callers import Called, Calls, call_all
from noonday.bench.creation import Bulk, create_in_bulk, store_at_rest
from noonday.bench.figures import Created, Figures
from noonday.bench.measure import Tell, measure
from noonday.bench.works import AtRest, Burst, Crons, Stream
from noonday.model.errors import NoondayError
from noonday.wiring.application import new_event_loop
from noonday.wiring.settings import Settings
from noonday.wiring.telemetry import set_up_logs


class Order(msgspec.Struct, frozen=True):
    """What to do, on which data file."""

    part: Burst | Stream | Crons | AtRest | Bulk | Calls
    data: str
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
    match order.part:
        case AtRest() as rest:
            return Line(created=await store_at_rest(rest, order.data, tell))
        case Bulk() as bulk:
            return Line(created=await create_in_bulk(bulk, order.data, tell))
        case Calls() as calls:
            return Line(called=await call_all(calls, tell))
        case work:
            return Line(figures=await measure(work, order.data, order.head_start_sec, tell))


def _words_of(error: BaseException) -> str:
    """The first of what went wrong: callers that share a server fail together."""
    if isinstance(error, BaseExceptionGroup):
        return _words_of(error.exceptions[0])
    return error.detail if isinstance(error, NoondayError) else repr(error)


if __name__ == "__main__":
    main()
