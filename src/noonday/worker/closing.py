"""The orderly stop of a worker."""

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass

import structlog

from noonday.model.handler import Mode
from noonday.ports.clock import Clock
from noonday.runtime.supervise import stop
from noonday.worker.acks import Acks
from noonday.worker.active import ActiveRuns
from noonday.worker.deadlines import KILL_CONFIRM_SEC
from noonday.worker.ended import EndedRuns
from noonday.worker.heartbeats import Heartbeats
from noonday.worker.membership import Membership
from noonday.worker.reporting import Reporter
from noonday.worker.rounds import CLOSING_POLL_SEC, Rounds
from noonday.worker.starting import Starter

log = structlog.get_logger("noonday.worker")
FINAL_REPORT_SEC = 1.0
"""Seconds that a stopping worker tries to report, beyond the drain time and the cancel grace."""


@dataclass(eq=False)
class OrderlyStop:
    """Returns what has not started, lets runs end, reports them, and leaves the pools, within a bounded time."""

    _rounds: Rounds
    _starter: Starter
    _active: ActiveRuns
    _ended: EndedRuns
    _reporter: Reporter
    _acks: Acks
    _heartbeats: Heartbeats
    _membership: Membership
    _clock: Clock
    _cancel_grace_sec: float

    async def close(self, drain_sec: float) -> None:
        """Let runs finish within the drain time, interrupt the others, and report."""
        drained_at = self._clock.monotonic() + drain_sec
        deadline = drained_at + self._cancel_grace_sec + FINAL_REPORT_SEC
        leaving = asyncio.create_task(self._membership.leave())
        await self._rounds.stop()
        self._starter.return_unstarted()
        over = asyncio.Event()
        reporting = asyncio.create_task(self._report_until(over))
        await self._end_runs(drained_at)
        over.set()
        reported = await self._within(deadline, self._send_byes())
        await self._within(min(deadline, self._clock.monotonic() + FINAL_REPORT_SEC), self._acks.send_after_release())
        await self._within(deadline, _wait_for(leaving))
        await stop([reporting, leaving])
        if not reported:
            log.warning(
                "stopped without acknowledged reports",
                worker=self._membership.id,
                runs=len(self._active) + len(self._ended),
                note="the recorder marks this worker as lost, which uses up an attempt of each run it had started",
            )

    async def retire(self) -> None:
        """Take nothing more, return what has not started, and leave the pools. Started runs continue."""
        await self._rounds.stop()
        self._starter.return_unstarted()
        await self._membership.leave()

    async def _end_runs(self, drained_at: float) -> None:
        """Let runs end until `drained_at` by the monotonic clock, interrupt the others, and abandon those that ignore it."""
        await self._wait_for_runs(drained_at - self._clock.monotonic())
        self._active.interrupt_all()
        await self._wait_for_runs(self._cancel_grace_sec)
        # The processes were killed by now; confirming their death takes a moment.
        await self._wait_for_runs(KILL_CONFIRM_SEC, Mode.PROCESS)
        for run in self._active.not_ended():
            self._active.abandon(run)

    async def _wait_for_runs(self, seconds: float, mode: Mode | None = None) -> None:
        """Wait at most `seconds` for all runs (of a mode) to end. Their reports may still be unsent."""
        deadline = self._clock.monotonic() + seconds
        while self._active.not_ended(mode) and self._clock.monotonic() < deadline:
            await self._clock.sleep(CLOSING_POLL_SEC)

    async def _report_until(self, over: asyncio.Event) -> None:
        while not over.is_set():
            await self._reporter.report_once()
            await self._clock.sleep(CLOSING_POLL_SEC)

    async def _send_byes(self) -> None:
        """Send all reports, then a Bye for each identity. No report waits for the signals: they may be unavailable."""
        await self._reporter.send_all()
        self._heartbeats.end_all()
        await self._reporter.send_all()

    async def _within(self, deadline: float, work: Coroutine[None, None, None]) -> bool:
        """Run a coroutine until a deadline. Returns whether it completed."""
        task = asyncio.create_task(work)
        waiting = asyncio.create_task(self._clock.sleep(max(0.0, deadline - self._clock.monotonic())))
        await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED)
        done = task.done()
        await stop([task, waiting])
        return done


async def _wait_for(task: "asyncio.Task[None]") -> None:
    await asyncio.wait({task})
