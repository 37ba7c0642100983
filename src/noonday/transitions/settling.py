"""What outcomes do to executions."""

from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

from noonday.model.alert import AlertKind
from noonday.model.execution import (
    FINAL,
    GONE,
    KEPT_DISPATCHES,
    RETURN_REASONS,
    WATCH_OVERLAP,
    Cause,
    Outcome,
    State,
    Verdict,
    is_cancel,
    judge,
)
from noonday.model.firing import still_wanted
from noonday.model.ids import ExecutionId, JobId
from noonday.model.job import Job
from noonday.model.message import Report
from noonday.model.pool import NOTICES_POOL
from noonday.model.retry import DEFAULT_POLICY
from noonday.model.usage import usage_of
from noonday.ports.executions import Settled
from noonday.ports.jobs import Execution
from noonday.transitions.inputs import Inputs
from noonday.transitions.write_set import WriteSet, as_json, transition

_failure = msgspec.json.Encoder().encode

Case = tuple[Execution, Outcome, Report | None]
"""An execution as it is, what happened to it, and the report that says so (None: found out without one)."""


class Settlement:
    """Cases to settle, with what must be read before they can be."""

    def __init__(self, cases: Iterable[Case], refused: Sequence[Report] = ()) -> None:
        """`refused`: reports that a fence has refused already."""
        self.cases = [
            (execution, _in_effect(execution, outcome, report), report) for execution, outcome, report in cases
        ]
        self._refused = tuple(refused)

    @property
    def failed(self) -> list[ExecutionId]:
        """Executions whose retry policy matters."""
        return [e.id for e, outcome, _ in self.cases if outcome in (Outcome.FAILED, Outcome.TIMED_OUT, Outcome.LOST)]

    @property
    def asked_back(self) -> list[tuple[str, JobId]]:
        """(tenant, job) of those that go on under the job as it is now."""
        return sorted({(e.tenant, e.job_id) for e, outcome, _ in self.cases if outcome is Outcome.REVOKED})

    @property
    def decided_by(self) -> list[tuple[str, JobId]]:
        """(tenant, job) of those whose state decides what becomes of executions. Whatever was handed out when its job was paused
        is marked by that, or by an edit after it."""
        marked = {(e.tenant, e.job_id) for e, _, _ in self.cases if e.cancel in RETURN_REASONS}
        return sorted(marked.union(self.asked_back, self.watched))

    @property
    def watched(self) -> list[tuple[str, JobId]]:
        """(tenant, job) of those that others may wait for."""
        return sorted({(e.tenant, e.job_id) for e, _, _ in self.cases if e.watch})

    @property
    def turns(self) -> dict[JobId, int]:
        """Jobs that do not allow overlap, and how many of their open executions to read: one more than may end here tells
        whether another is open."""
        cases = Counter(e.job_id for e, _, _ in self.cases if e.watch & WATCH_OVERLAP)
        return {job: count + 1 for job, count in cases.items()}

    def settle(self, inputs: Inputs, now_ms: int) -> tuple[WriteSet, Settled]:
        writes = WriteSet(inputs, now_ms)
        believed: list[Report] = []
        illegal: list[Report] = []
        for execution, outcome, report in self.cases:
            moved = _settle_one(writes, execution, outcome, report)
            if report is None:
                continue
            if moved:
                believed.append(report)
            elif outcome is Outcome.SUCCEEDED and execution.state is State.SUCCEEDED:
                writes.said_again.append(report)
            else:
                illegal.append(report)
        writes.finish()
        return writes, Settled(
            entries=tuple(writes.entries),
            refused=(*self._refused, *illegal),
            by_state=dict(writes.rested),
            freed=tuple(name for _, name in writes.freed),
            usage=usage_of(believed),
        )


def sort_out(rows: Iterable[Execution], reports: Sequence[Report]) -> Settlement:
    """Which reports are of the dispatch and the worker that their execution is with, and which are refused."""
    by_id = {row.id: row for row in rows}
    cases: list[Case] = []
    refused = []
    for report in reports:
        row = by_id.get(report.execution_id)
        if row is None or not _is_fenced_in(row, report):
            refused.append(report)
        else:
            cases.append((row, Outcome(report.outcome), report))
            # A second report of the same dispatch is judged by what the first one did: it is too late.
            del by_id[report.execution_id]
    return Settlement(cases, refused)


def found(rows: Iterable[Execution], outcome: Outcome) -> Settlement:
    """What became of executions of which nobody reports any more."""
    return Settlement([(row, outcome, None) for row in rows])


def successes_first(reports: Sequence[Report]) -> tuple[list[Report], list[Report]]:
    """Successes, which are many and plain; the rest. A start whose end is in the same batch says nothing new.

    The end of an execution that came back very often is not plain: its start may not be among its transitions.
    """
    ends = {(r.execution_id, r.dispatch, r.worker_id) for r in reports if r.outcome != Outcome.STARTED}
    plain, others = [], []
    for report in reports:
        if report.outcome == Outcome.SUCCEEDED and report.dispatch <= KEPT_DISPATCHES:
            plain.append(report)
        elif report.outcome != Outcome.STARTED or (report.execution_id, report.dispatch, report.worker_id) not in ends:
            others.append(report)
    return plain, others


def _is_fenced_in(row: Execution, report: Report) -> bool:
    """The report is of the present dispatch, which is off the timeline, and of the worker that has it."""
    return row.dispatch == report.dispatch and row.fired_ms is not None and row.worker_id in (None, report.worker_id)


def _settle_one(writes: WriteSet, execution: Execution, outcome: Outcome, report: Report | None) -> bool:
    """False if the move would not have been legal: it changed nothing."""
    verdict = judge(
        outcome,
        state=execution.state,
        attempt=execution.attempt,
        policy=writes.inputs.policies.get(execution.id, DEFAULT_POLICY),
        execution=execution.id,
        started=report is None or report.started_ms > 0,
        retryable=report is None or report.failure is None or report.failure.retryable,
        cancel_requested=is_cancel(execution.cancel),
        snooze_ms=report.snooze_ms if report else 0,
        returned=execution.dispatch - execution.attempt,
    )
    if verdict is None:
        return False
    if outcome is Outcome.REVOKED:
        _take_back(writes, execution, writes.inputs.jobs.get(execution.job_id))
    else:
        _apply(writes, execution, verdict, report, outcome)
    return True


def _in_effect(execution: Execution, outcome: Outcome, report: Report | None) -> Outcome:
    """What an edit or a pause asks for is asked back also if it comes back, not started, for another reason."""
    unstarted = outcome in (Outcome.ORPHANED, Outcome.HANDED_BACK) or (
        outcome in (Outcome.INTERRUPTED, Outcome.SNOOZED) and report is not None and not report.started_ms
    )
    wished = execution.state is State.PENDING and execution.cancel in RETURN_REASONS
    return Outcome.REVOKED if wished and unstarted else outcome


def _apply(writes: WriteSet, was: Execution, verdict: Verdict, report: Report | None, outcome: Outcome) -> None:
    rest = verdict.rest
    at_ms = report.ended_ms if report else writes.now_ms
    returns = rest is State.PENDING
    began = State.RUNNING in verdict.transitions
    now = msgspec.structs.replace(
        was,
        state=rest,
        attempt=was.attempt + verdict.attempt,
        dispatch=was.dispatch + returns,
        fired_ms=None if returns else was.fired_ms,
        worker_id=None if returns else (report.worker_id if report else was.worker_id),
        started_ms=_start_of(report) if report and began else was.started_ms,
        finished_ms=at_ms if rest in FINAL else None,
        cancel=was.cancel if is_cancel(was.cancel) or rest is State.RUNNING else None,
        failure=_failure_text(was, report, outcome),
        progress=report.progress if report else None,
        result=report.result if report else None,
    )
    writes.settle(was, now, _moves_text(verdict, report, outcome, at_ms, was))
    if returns:
        # One that did not start may have been dispatched ahead of its instant, and waits for it.
        has_started = was.state is State.RUNNING or (report is not None and report.started_ms > 0)
        earliest_ms = 0 if has_started else was.due_ms
        writes.wait_unless_paused(now, max(at_ms, writes.now_ms, earliest_ms) + (verdict.wait_ms or 0))
    if rest is State.DEAD:
        writes.bury(now.id)
    if was.pool != NOTICES_POOL and (kind := _incident(was, verdict, report)):
        writes.incidents.append((kind, now.tenant, now.id, now.job_id, _what_happened(was, report, outcome)))


def _incident(was: Execution, verdict: Verdict, report: Report | None) -> str | None:
    """As what somebody has to hear of it: a first failure, and an end that is none."""
    if verdict.rest is State.DEAD:
        is_gone = report and report.failure and report.failure.type == GONE
        return GONE if is_gone else AlertKind.EXHAUSTED
    if verdict.rest is State.EXPIRED:
        return AlertKind.MISSED
    # An attempt is added only where one has failed.
    return AlertKind.FAILED if verdict.attempt and was.attempt == 1 else None


def _what_happened(was: Execution, report: Report | None, outcome: Outcome) -> str:
    if report and report.failure:
        said = report.failure
        words = said.message if said.type == GONE else f"{said.type}: {said.message}"
        return words.replace("\x00", "\ufffd")  # which not every store takes in a text of its own
    if outcome is Outcome.LOST:
        return f"WorkerLost: worker {was.worker_id} stopped speaking while it ran this"
    return "it was not started within its deadline" if outcome is Outcome.EXPIRED else outcome.name


def _failure_text(was: Execution, report: Report | None, outcome: Outcome) -> str | None:
    if report and report.failure:
        return _failure(report.failure).decode()
    if outcome is Outcome.LOST:
        return as_json({"type": "WorkerLost", "message": f"worker {was.worker_id} stopped speaking while it ran this"})
    if outcome is Outcome.SUCCEEDED:
        return None
    return was.failure


def _moves_text(verdict: Verdict, report: Report | None, outcome: Outcome, at_ms: int, was: Execution) -> str:
    """What is appended to the moves of an execution: of one that came back very often, only its end."""
    text = ""
    if was.dispatch > KEPT_DISPATCHES:
        if verdict.rest not in FINAL:
            return ""
        if was.state is State.RUNNING:
            text = "," + transition(State.RUNNING, was.started_ms or at_ms, was.worker_id)
    for state in verdict.transitions:
        if state is State.RUNNING:
            text += "," + transition(
                state, _start_of(report) if report else at_ms, report.worker_id if report else None
            )
        else:
            text += "," + transition(state, at_ms, None, _reason(state, report, outcome, was))
    return text


def _start_of(report: Report) -> int:
    return report.started_ms or report.ended_ms


def _reason(state: State, report: Report | None, outcome: Outcome, was: Execution) -> object:
    if state in (State.FAILED, State.TIMED_OUT) and report and report.failure:
        # The traceback of the last failure is in the execution itself.
        return msgspec.structs.replace(report.failure, traceback=None)
    if state is State.FAILED_WORKER_LOST:
        return f"worker {was.worker_id} is lost"
    if state is State.CANCELLED:
        return was.cancel
    if state is State.PENDING and outcome not in (Outcome.FAILED, Outcome.TIMED_OUT, Outcome.LOST):
        return f"{outcome.name}: {report.failure.message}" if report and report.failure else outcome.name
    return None


def _take_back(writes: WriteSet, was: Execution, job: Job | None) -> None:
    """A dispatch that had not started was asked back: the occurrence goes on under the job as it is now, or ends."""
    if job is None or was.cancel not in RETURN_REASONS or not still_wanted(job, was.nominal_ms, was.cause):
        writes.close(was, State.CANCELLED, was.cancel or "the job no longer has this time")
        if job is not None and not is_cancel(was.cancel) and was.cause is Cause.SCHEDULE and was.started_ms is None:
            writes.return_run(job)
        return
    now = msgspec.structs.replace(writes.rebase(was, job), dispatch=was.dispatch + 1, fired_ms=None, worker_id=None)
    kept = was.dispatch <= KEPT_DISPATCHES
    writes.settle(was, now, "," + transition(State.PENDING, writes.now_ms, None, was.cancel) if kept else "")
    writes.wait_unless_paused(now, max(was.due_ms, writes.now_ms))
