"""Starts that are announced: a run that may have run before starts only once its start is on the log."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

import structlog

from noonday.model.errors import NoondayError
from noonday.ports.bus import Bus
from noonday.ports.clock import Clock
from noonday.runtime.supervise import should_log
from noonday.worker.acks import Acks
from noonday.worker.claims import Claims
from noonday.worker.ended import EndedRuns
from noonday.worker.hosts import Hosts
from noonday.worker.outbox import Item
from noonday.worker.run import INTERRUPTED, Run

log = structlog.get_logger("noonday.worker")
_RETRY_SEC = 0.5
"""Seconds until the next try after the log did not accept a start."""


@dataclass(eq=False)
class StartAnnouncer:
    """Reports the starts of runs that may have run before, and then starts them: see `Run.may_have_run`."""

    _bus: Bus
    _hosts: Hosts
    _claims: Claims
    _ended: EndedRuns
    _acks: Acks
    _clock: Clock
    _announcing: dict[Run, None] = field(default_factory=dict)
    """Runs that may start once the log has acknowledged their start."""
    _wake: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def is_announcing(self) -> bool:
        """True if runs wait until the log has their start."""
        return bool(self._announcing)

    async def run_forever(self) -> None:
        failures = 0
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                await self.announce_once()
                failures = 0
            except NoondayError as error:
                failures += 1
                if should_log(failures):
                    log.warning("start report failed", error=error.detail, failures=failures)
                await self._clock.sleep(_RETRY_SEC)
                self._wake.set()

    async def announce_once(self) -> int:
        """Report the starts of runs that may have run before, then start them. Returns their number.

        A run starts only once its report outlives this process. Raises BusUnavailable.
        """
        by_partition: dict[int, list[Item]] = {}
        now_ms = self._clock.now_ms()
        for run in self._announcing:
            run.announced_ms = run.announced_ms or now_ms
            item = Item(run.identity.partition, run.start_report(), run)
            by_partition.setdefault(item.partition, []).append(item)
        for partition, items in by_partition.items():
            await self._bus.report_durably(partition, [item.entry for item in items])
            self._start([item.run for item in items if item.run is not None])
        await self._acks.send()
        return sum(map(len, by_partition.values()))

    def start_others(self, runs: list[Run]) -> None:
        """Start runs, except those whose start is announced first."""
        announced = [run for run in runs if run.may_have_run]
        if announced:
            self._announcing.update(dict.fromkeys(announced))
            self._wake.set()
            runs = [run for run in runs if not run.may_have_run]
        self._hosts.start(runs)

    def take_all(self) -> list[Run]:
        """Remove and return the runs that have not started. Their starts may be on the log already."""
        runs, self._announcing = self._announcing, {}
        return list(runs)

    def _start(self, runs: Sequence[Run]) -> None:
        for run in runs:
            run.start_reported = True
        self._acks.add(runs)
        # Some runs may have been returned meanwhile.
        starting = [run for run in runs if run in self._announcing]
        for run in starting:
            del self._announcing[run]
        stale = self._claims.stale(starting)
        for run in stale:
            self._ended.reject(run, INTERRUPTED)
        self._hosts.start([run for run in starting if run not in stale] if stale else starting)
