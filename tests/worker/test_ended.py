"""Ended runs between the hosts and the reporter."""

import asyncio
import threading

from noonday.model.execution import Outcome
from noonday.worker.ended import EndedRuns
from noonday.worker.run import INTERRUPTED, Run
from tests.support.clock import ManualClock
from tests.support.factories import NOW_MS, dispatch


def run() -> Run:
    return Run(dispatch(), None, None)


async def test_runs_are_taken_in_the_order_in_which_they_ended() -> None:
    ended, runs = EndedRuns(ManualClock()), [run(), run(), run()]
    for each in runs:
        ended.add(each)
    assert ended.take(2) == runs[:2]
    assert list(ended) == runs[2:]


async def test_a_rejected_run_ends_now_and_wakes_the_reporter() -> None:
    ended, rejected = EndedRuns(ManualClock()), run()
    ended.reject(rejected, INTERRUPTED)
    assert (rejected.outcome, rejected.ended_ms, list(ended)) == (Outcome.INTERRUPTED, NOW_MS, [rejected])
    assert ended.wake.is_set()


async def test_an_unstarted_run_keeps_the_outcome_it_is_given() -> None:
    ended, expired = EndedRuns(ManualClock()), run()
    ended.end_unstarted(expired, Outcome.EXPIRED)
    assert (expired.outcome, len(ended)) == (Outcome.EXPIRED, 1)


async def test_a_host_in_another_thread_wakes_the_reporter() -> None:
    ended = EndedRuns(ManualClock())
    thread = threading.Thread(target=ended.add_from_host, args=(run(),))
    thread.start()
    async with asyncio.timeout(60):
        await ended.wake.wait()
    thread.join()
    assert len(ended) == 1
