"""Revocations of runs in progress."""

from noonday.model.errors import SignalsUnavailable
from noonday.model.execution import SPARES_RUNNING
from noonday.model.ids import ExecutionId
from noonday.ports.signals import Signals
from noonday.worker.active import ActiveRuns
from noonday.worker.connectivity import Connectivity


class Revocations:
    """Asks runs whose dispatch is revoked to stop."""

    def __init__(self, signals: Signals, connectivity: Connectivity, active: ActiveRuns) -> None:
        self._signals = signals
        self._connectivity = connectivity
        self._active = active

    async def stop_revoked(self) -> None:
        """Ask the signals about all runs in progress, and stop those that are revoked."""
        by_pool: dict[str, list[tuple[ExecutionId, int]]] = {}
        for run in self._active.all():
            by_pool.setdefault(run.dispatch.pool, []).append((run.dispatch.execution_id, run.dispatch.number))
        for pool, names in by_pool.items():
            try:
                revoked = await self._signals.revoked(pool, names)
            except SignalsUnavailable:
                self._connectivity.note_signals_unavailable()
                return
            self._connectivity.note_signals_available()
            for execution, reason in revoked.items():
                found = self._active.find(execution)
                if found is not None and reason not in SPARES_RUNNING and not found.is_completed:
                    self._active.request_stop(found, reason)
