"""Check the log against the store.

The log has a report for each transition (I6) and for each message that is not delivered again (I14). It has a silence for each
lost worker (I15).
"""

import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from noonday.model.execution import Outcome, State
from noonday.model.message import Report, Tick
from tests.simulation.history import History, Logged
from tests.simulation.observing import Seen
from tests.simulation.rows import Rows, StoredExecution

TICKS_TO_JUDGE = 6
TICK_MS = 5_000
FORGOTTEN_MS = 300_000
"""An offset may pass any message whose dispatch was fired longer ago."""
_REPORTED = {
    State.SUCCEEDED: Outcome.SUCCEEDED,
    State.FAILED: Outcome.FAILED,
    State.TIMED_OUT: Outcome.TIMED_OUT,
}


def check_log(rows: Rows, history: History) -> Iterator[str]:
    """Check I6 and I15, if the log was noted."""
    if not history.log:
        return
    reports: dict[str, list[Report]] = defaultdict(list)
    for _, _, entry in history.log:
        if isinstance(entry, Report):
            reports[entry.execution_id].append(entry)
    silences = _Silences(history)
    for execution in rows.executions.values():
        yield from _fenced(execution, reports.get(execution.id, ()))
        yield from silences.check(execution)


def _fenced(execution: StoredExecution, reports: Sequence[Report]) -> Iterator[str]:
    """I6: each start and each end was reported for the current dispatch, by the worker that had it."""
    dispatch, worker = 0, None
    for transition in execution.transitions:
        if transition.state is State.PENDING:
            dispatch, worker = dispatch + 1, None
        elif transition.state is State.RUNNING:
            worker = transition.worker
            if not any(r.dispatch == dispatch and r.worker_id == worker for r in reports):
                yield f"I6: {execution.id} was started under dispatch {dispatch} by {worker}, which reported nothing of it"
        elif (outcome := _REPORTED.get(transition.state)) is not None and not any(
            r.dispatch == dispatch and r.worker_id == worker and r.outcome == outcome and r.ended_ms == transition.at_ms
            for r in reports
        ):
            yield f"I6: {execution.id} is {transition.state.name} under dispatch {dispatch} of {worker}, which no report says"


def check_offsets(history: History, seen: Mapping[str, Sequence[Seen]]) -> Iterator[str]:
    """I14: no committed offset passes a message whose execution is PENDING under that dispatch and has no report in the log."""
    reported: dict[tuple[str, int], int] = {}
    for _, at_ms, entry in history.log:
        if isinstance(entry, Report):
            reported.setdefault((entry.execution_id, entry.dispatch), at_ms)
    for at_ms, execution, dispatch, fired_ms in history.passed:
        if reported.get((execution, dispatch), sys.maxsize) <= at_ms or at_ms - fired_ms > FORGOTTEN_MS:
            continue
        note = next((note for note in reversed(seen.get(execution, ())) if note.at_ms <= at_ms), None)
        if note is not None and (note.state, note.dispatch, note.fired) == (State.PENDING, dispatch, True):
            yield f"I14: the offset of dispatch {dispatch} of {execution} was committed at {at_ms}, before any report of it"


class _Silences:
    """For each worker, the entries of its partition of the log, with their times."""

    def __init__(self, history: History) -> None:
        self._log: Mapping[int, list[Logged]] = defaultdict(list)
        self._partition: dict[str, int] = {}
        for logged in history.log:
            self._log[logged.partition].append(logged)
            worker = getattr(logged.entry, "worker_id", None)
            if worker is not None:
                self._partition.setdefault(worker, logged.partition)
        self._ended = history.log_ends
        self._skew_ms = history.skew_ms

    def check(self, execution: StoredExecution) -> Iterator[str]:
        """I15: a worker is lost when its recorder read six ticks of its own and no entry of the worker, or when the log is
        gone."""
        worker = None
        for transition in execution.transitions:
            worker = transition.worker if transition.state is State.RUNNING else worker
            if (
                transition.state is State.FAILED_WORKER_LOST
                and worker is not None
                and not self._is_lost(worker, transition.at_ms)
            ):
                yield f"I15: {execution.id} was given up with worker {worker} at {transition.at_ms}, which was not silent"

    def _is_lost(self, worker: str, at_ms: int) -> bool:
        partition = self._partition.get(worker)
        at_ms += self._skew_ms
        if partition is None or self._ended.get(partition, at_ms) < at_ms:
            return True
        ticks: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for _, written_ms, entry in self._log[partition]:
            if written_ms > at_ms:
                break
            if isinstance(entry, Tick):
                heard = ticks[entry.recorder]
                if not heard or (entry.number > heard[-1][0] and written_ms - heard[-1][1] >= TICK_MS):
                    heard.append((entry.number, written_ms))
                if len(heard) >= TICKS_TO_JUDGE:
                    return True
            elif getattr(entry, "worker_id", None) == worker:
                ticks.clear()
        return False
