"""Entries of the log that are too large, and the other entries meanwhile."""

import asyncio
from collections.abc import Sequence

import msgspec
import pytest

from noonday.drivers.memory.bus import MemoryBus
from noonday.model.errors import BusUnavailable
from noonday.model.execution import Failure, Outcome
from noonday.model.ids import ExecutionId, JobId, WorkerId
from noonday.model.limits import BEAT_BYTES
from noonday.model.message import Beat, Bye, HandlerInfo, Hello, LogEntry, Oversized, Report, RunProgress
from noonday.worker.outbox import Item, Outbox, beats_of, cut
from tests.support.clock import ManualClock
from tests.support.factories import NOW_MS, WORKER

LIMIT = 2_000


class NarrowBus(MemoryBus):
    """Accepts entries of up to LIMIT bytes, and none while it is away."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock)
        self.away: set[int] = set()
        """Partitions that accept nothing."""
        self.answers = True

    async def partitions(self) -> int:
        if not self.answers:
            raise BusUnavailable("away")
        return 1

    async def report(self, partition: int, entries: Sequence[LogEntry]) -> Sequence[Oversized[LogEntry]]:
        if partition in self.away:
            raise BusUnavailable("away")
        sizes = {id(entry): len(msgspec.msgpack.encode(entry)) for entry in entries}
        await super().report(partition, [entry for entry in entries if sizes[id(entry)] <= LIMIT])
        return [Oversized(entry, size, LIMIT) for entry in entries if (size := sizes[id(entry)]) > LIMIT]

    async def entries(self) -> list[LogEntry]:
        return list((await self.read(0, 0, 1_000, 0)).entries)


def report(name: str = "x", **fields: object) -> Report:
    known = {"outcome": int(Outcome.SUCCEEDED), "started_ms": 1, "ended_ms": 2, **fields}
    return Report(ExecutionId(name), 1, WORKER, **known)  # type: ignore[arg-type]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def bus(clock: ManualClock) -> NarrowBus:
    return NarrowBus(clock)


@pytest.fixture
def outbox(bus: NarrowBus, clock: ManualClock) -> Outbox:
    return Outbox(bus, clock)


async def test_an_entry_that_is_too_large_fails_alone(outbox: Outbox, bus: NarrowBus) -> None:
    entries = [report("a"), report("b", result=b"r" * LIMIT), report("c")]
    outbox.add(Item(0, entry) for entry in entries)
    acked = await outbox.send()
    assert [item.entry for item in acked] == [entries[0], entries[2]]
    (item,) = await outbox.send()
    assert (len(outbox), outbox.unavailable_since) == (0, None)
    failed = (await bus.entries())[-1]
    assert failed is item.entry
    assert isinstance(failed, Report)
    assert (failed.execution_id, failed.outcome, failed.result) == ("b", Outcome.FAILED, None)
    assert failed.failure is not None
    assert failed.failure.type == "ReportTooLarge"
    assert not failed.failure.retryable
    assert str(LIMIT) in failed.failure.message


async def test_progress_and_record_are_dropped_before_the_result(outbox: Outbox, bus: NarrowBus) -> None:
    whole = report(result=b"r", progress=b"p" * LIMIT, details=b"a" * LIMIT, logs=b"l" * LIMIT)
    outbox.add([Item(0, whole)])
    await outbox.send()
    await outbox.send()
    assert await bus.entries() == [msgspec.structs.replace(whole, progress=None, details=None, logs=None)]


def test_the_text_of_a_failure_is_cut_and_its_outcome_stays() -> None:
    failure = Failure("ValueError", "x" * LIMIT, "t" * LIMIT, retryable=False)
    kept = cut(Oversized(report(outcome=int(Outcome.FAILED), failure=failure), 2 * LIMIT, LIMIT))
    assert isinstance(kept, Report)
    assert kept.outcome == Outcome.FAILED
    assert kept.failure == Failure("ValueError", "x" * 1_000, retryable=False)


def test_a_hello_that_is_too_large_leaves_out_schemas() -> None:
    handler = HandlerInfo("p", "h", schema={"type": "object"}, timeout_sec=3, doc="long")
    hello = Hello(WORKER, NOW_MS, "host", 1, {"p": 1}, (handler,))
    kept = cut(Oversized(hello, 2 * LIMIT, LIMIT))
    assert kept == msgspec.structs.replace(hello, handlers=(HandlerInfo("p", "h", timeout_sec=3),))


async def test_entry_that_cannot_be_cut_is_dropped_once(outbox: Outbox, bus: NarrowBus) -> None:
    outbox.add([Item(0, Bye(WorkerId("w" * LIMIT), NOW_MS)), Item(0, report())])
    for _ in range(3):
        await outbox.send()
    assert len(outbox) == 0
    assert await bus.entries() == [report()]


async def test_a_partition_that_takes_nothing_keeps_no_other_waiting(outbox: Outbox, bus: NarrowBus) -> None:
    bus.away = {1}
    outbox.add([Item(1, report("a")), Item(0, report("b"))])
    assert [item.entry for item in await outbox.send()] == [report("b")]
    assert (len(outbox), outbox.failures) == (1, 1)
    assert outbox.unavailable_since is not None
    bus.away = set()
    assert [item.entry for item in await outbox.send()] == [report("a")]
    assert outbox.unavailable_since is None


async def test_entries_of_a_cancelled_send_are_sent_again(clock: ManualClock) -> None:
    class SlowBus(NarrowBus):
        async def report(self, partition: int, entries: Sequence[LogEntry]) -> Sequence[Oversized[LogEntry]]:
            await asyncio.sleep(3_600)
            return ()

    outbox = Outbox(SlowBus(clock), clock)
    outbox.add([Item(0, report())])
    sending = asyncio.create_task(outbox.send())
    await asyncio.sleep(0)
    sending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sending
    assert len(outbox) == 1


def test_beats_are_split_by_bytes() -> None:
    progress = [RunProgress(ExecutionId(f"x-{n}"), 1, b"p" * 200) for n in range(10_000)]
    beats = beats_of(WORKER, NOW_MS, progress, [ExecutionId("stuck")])
    assert [each for beat in beats for each in beat.progress] == progress
    assert len(beats) > 1
    assert max(len(msgspec.msgpack.encode(beat)) for beat in beats) < 1.2 * BEAT_BYTES
    assert {beat.stuck for beat in beats} == {("stuck",)}


def test_a_beat_without_progress_is_one_beat() -> None:
    assert beats_of(WORKER, NOW_MS, [], []) == [Beat(WORKER, NOW_MS)]


def test_beat_that_is_too_large_is_sent_without_progress() -> None:
    beat = Beat(WORKER, NOW_MS, (RunProgress(ExecutionId("x"), 1, b"p" * LIMIT),))
    assert cut(Oversized(beat, 2 * LIMIT, LIMIT)) == Beat(WORKER, NOW_MS)


def test_a_report_names_the_same_run_after_it_was_cut() -> None:
    whole = report("x", result=b"r" * LIMIT, pool="p", job_id=JobId("j"), tenant="t", payload_bytes=7, attempt=2)
    kept = cut(Oversized(whole, 2 * LIMIT, LIMIT))
    assert isinstance(kept, Report)
    assert (kept.pool, kept.job_id, kept.tenant, kept.payload_bytes) == ("p", "j", "t", 7)
    assert (kept.started_ms, kept.ended_ms) == (whole.started_ms, whole.ended_ms)
