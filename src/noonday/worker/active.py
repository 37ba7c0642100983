"""Runs in progress: how they are found, stopped, abandoned and removed."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import structlog

from noonday.model.handler import Mode
from noonday.model.ids import ExecutionId
from noonday.model.message import Dispatch
from noonday.ports.clock import Clock
from noonday.runtime.metrics import Metrics
from noonday.worker.abandoned import Abandoned
from noonday.worker.capacity import Capacity
from noonday.worker.ended import EndedRuns
from noonday.worker.hosts import Hosts
from noonday.worker.parked import ParkedDispatches
from noonday.worker.run import INTERRUPTED, Run

log = structlog.get_logger("noonday.worker")


@dataclass(eq=False)
class ActiveRuns:
    """Started runs that are not reported yet, by execution. A stand-in takes the place of an abandoned run."""

    _hosts: Hosts
    _capacity: Capacity
    _ended: EndedRuns
    _parked: ParkedDispatches
    _clock: Clock
    _metrics: Metrics
    abandoned: Abandoned
    _runs: dict[ExecutionId, Run] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self._runs)

    def all(self) -> list[Run]:
        return list(self._runs.values())

    def begun(self) -> list[Run]:
        """Return the runs whose handler is entered."""
        return [run for run in self._runs.values() if run.begun_at]

    def not_ended(self, mode: Mode | None = None) -> list[Run]:
        """Return the runs (of a mode) that have not ended."""
        return [run for run in self._runs.values() if not run.ended_ms and mode in (None, run.mode)]

    def busy(self, pool: str) -> int:
        """Return how many handlers of a pool run now."""
        return sum(run.dispatch.pool == pool and not run.ended_ms and bool(run.begun_at) for run in self._runs.values())

    def find(self, execution: ExecutionId) -> Run | None:
        return self._runs.get(execution)

    def find_duplicate(self, dispatch: Dispatch) -> Run | None:
        """Return the active run of another delivery of the same dispatch. It may run for longer than a claim lasts."""
        run = self._runs.get(dispatch.execution_id)
        return run if run is not None and run.dispatch.number == dispatch.number else None

    def add(self, runs: Sequence[Run]) -> tuple[list[Run], list[Run]]:
        """Add runs that start. Returns those that may, and those whose execution still runs here under an earlier dispatch.

        The latter start when the earlier run has ended, which is asked to stop.
        """
        starting, superseding = [], []
        for run in runs:
            other = self._runs.setdefault(run.dispatch.execution_id, run)
            if other is run:
                starting.append(run)
            elif other.dispatch.number == run.dispatch.number:
                self._capacity.release([run])
                self._parked.add([run.dispatch])
            elif other.dispatch.number > run.dispatch.number:
                self._ended.reject(run, INTERRUPTED)
            else:
                superseding.append(run)
                self.request_stop(other, INTERRUPTED)
        return starting, superseding

    def remove(self, runs: Iterable[Run]) -> list[Run]:
        """Remove runs that are about to be reported. Returns those that were active; the others had not started."""
        removed = []
        for run in runs:
            if self._runs.get(run.dispatch.execution_id) is run:
                del self._runs[run.dispatch.execution_id]
                removed.append(run)
        return removed

    def request_stop(self, run: Run, reason: str) -> None:
        """Ask a run to end, unless it has been asked or has ended."""
        if run.stop_requested is None and not run.ended_ms:
            run.stop_requested_at = self._clock.monotonic()
            run.stop_requested = reason
            self._hosts.stop(run, reason)

    def interrupt_all(self) -> None:
        """Ask all runs to end. It uses up no attempt."""
        for run in self.all():
            self.request_stop(run, INTERRUPTED)

    def abandon(self, run: Run) -> None:
        """Report the end of a run that ignores its stop request. Should the run end after all, its own outcome is dropped."""
        log.warning(
            "run abandoned",
            execution=run.dispatch.execution_id,
            handler=run.dispatch.handler,
            why=run.stop_requested,
            mode=run.mode.value,
        )
        stand_in = run.stand_in(self._clock.now_ms())
        run.is_abandoned = True
        self._runs[run.dispatch.execution_id] = stand_in
        if self.abandoned.add(run):
            self._hosts.abandon(run)
        else:
            self._capacity.keep_slot(run)
        self._metrics.abandoned.inc()
        self._ended.add(stand_in)
        self._hosts.note_failure(stand_in)

    def without_abandoned(self, ended: list[Run]) -> list[Run]:
        """Return the ended runs without abandoned ones, whose ends are reported already. Free the slots that those kept."""
        return [run for run in ended if not self._was_abandoned(run)] if self.abandoned else ended

    def _was_abandoned(self, run: Run) -> bool:
        if run not in self.abandoned:
            return False
        log.info("abandoned run ended", execution=run.dispatch.execution_id, handler=run.dispatch.handler)
        if self.abandoned.remove(run):
            self._capacity.free_kept_slot(run)
        return True
