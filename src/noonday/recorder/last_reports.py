"""The last reports of each worker, in case the worker dies before it marks their claims as acked."""

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from noonday.model.claim import DispatchRef
from noonday.model.ids import WorkerId
from noonday.model.message import Report

SILENT_SEC = 3.0
"""Silence after which a worker counts as silent. A worker that runs something reports more often."""


class LastReports:
    """The dispatches that each worker reported within its last SILENT_SEC.

    A worker marks the claims of its reports as acked before it reports again, so only its last reports can be unmarked. If it
    dies first, their claims lapse, and a redelivered dispatch runs again. The recorder therefore marks them in place of every
    silent worker, dead or idle: marking twice changes nothing.
    """

    def __init__(self) -> None:
        self._by_worker: dict[WorkerId, deque[_Batch]] = {}

    def add(self, offset: int, reports: Sequence[Report], reported_at: float) -> None:
        """Add a batch of the log. A batch that is read again, because the store refused it, counts once."""
        refs: dict[WorkerId, list[DispatchRef]] = {}
        for report in reports:
            refs.setdefault(report.worker_id, []).append((report.execution_id, report.dispatch))
        for worker, worker_refs in refs.items():
            batches = self._by_worker.setdefault(worker, deque())
            while batches and batches[0].reported_at < reported_at - SILENT_SEC:
                batches.popleft()
            first_at = batches.pop().reported_at if batches and batches[-1].offset == offset else reported_at
            batches.append(_Batch(offset, first_at, worker_refs))

    def silent_workers(self, now: float) -> list[WorkerId]:
        return [worker for worker, batches in self._by_worker.items() if batches[-1].reported_at < now - SILENT_SEC]

    def dispatches_of(self, worker: WorkerId) -> list[DispatchRef]:
        return [ref for batch in self._by_worker[worker] for ref in batch.refs]

    def remove(self, worker: WorkerId) -> None:
        del self._by_worker[worker]


class _Batch(NamedTuple):
    """The dispatches that one worker reported in one batch of the log. `reported_at` is monotonic time."""

    offset: int
    reported_at: float
    refs: list[DispatchRef]
