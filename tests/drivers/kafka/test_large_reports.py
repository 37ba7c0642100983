"""A worker on a real broker whose runs report more than one message can hold."""

import asyncio

from noonday.drivers.kafka.bus import KafkaBus
from noonday.drivers.kafka.options import KafkaOptions
from noonday.model.execution import Outcome
from noonday.model.handler import Mode
from noonday.model.message import Beat, LogEntry, Report
from noonday.worker.context import Context
from tests.support.eventually import eventually
from tests.worker.rig import PATIENCE_SEC, handler, rig

RUNS = 30
PROGRESS_BYTES = 60_000
"""Bytes of progress of each run: together they are larger than a message."""


async def test_neither_large_progress_nor_a_large_result_silences_a_worker(
    bus: KafkaBus, options: KafkaOptions
) -> None:
    go_on = asyncio.Event()
    loop = asyncio.get_running_loop()

    async def talk(ctx: Context) -> None:
        ctx.heartbeat("p" * PROGRESS_BYTES)
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(go_on.wait(), loop))

    async def boast(ctx: Context) -> str:
        return "r" * 2 * options.message_bytes

    handlers = [handler(talk, Mode.ASYNC), handler(boast, Mode.ASYNC)]
    # As if processes got a changed setting one after the other: the worker allows more than a message can hold.
    limits = {"result_limit": 4 * options.message_bytes, "cancel_grace_sec": 0.0, "drain_sec": 0.0}
    async with rig(handlers, bus=bus, real_time=True, concurrency={"p": RUNS + 1}, **limits) as here:
        talking = [await here.publish("talk") for _ in range(RUNS)]
        boasting = await here.publish("boast")
        log: list[LogEntry] = []
        progress: dict[str, int] = {}

        async def look() -> None:
            log[:] = [each for n in range(2) for each in (await bus.read(n, 0, 10_000, 0.1)).entries]
            progress.update(
                {one.execution_id: len(one.progress) for each in log if isinstance(each, Beat) for one in each.progress}
            )

        async def all_say_how_far_they_are() -> bool:
            await here.turn()
            await look()
            return len(progress) == RUNS

        await eventually(all_say_how_far_they_are, PATIENCE_SEC)
        go_on.set()
        ends: dict[str, Report] = {}

        async def all_have_ended() -> bool:
            await here.turn()
            await look()
            ended = (each for each in log if isinstance(each, Report) and each.outcome != Outcome.STARTED)
            ends.update({each.execution_id: each for each in ended})
            return len(ends) == RUNS + 1

        await eventually(all_have_ended, PATIENCE_SEC)
        assert here.worker.reasons_not_ready() == []
    assert set(progress) == {each.execution_id for each in talking}
    assert all(ends[each.execution_id].outcome == Outcome.SUCCEEDED for each in talking)
    failed = ends[boasting.execution_id]
    assert failed.outcome == Outcome.FAILED
    assert failed.failure is not None
    assert failed.failure.type == "ReportTooLarge"
