"""Settlement: from the outcomes of dispatches to the new states of their executions."""

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
    Execution,
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
from noonday.model.recording import SettleResult
from noonday.model.retry import DEFAULT_POLICY
from noonday.model.usage import usage_of
from noonday.transitions.inputs import Inputs
from noonday.transitions.rows import NewChildren, NewIncident
from noonday.transitions.write_set import WriteSet, as_json, rebased, transition

_encode = msgspec.json.Encoder().encode

_NEVER_RETURNING = frozenset({Outcome.STARTED, Outcome.SUCCEEDED, Outcome.CANCELLED, Outcome.EXPIRED})
"""Outcomes after which an execution does not wait for another dispatch."""
Case = tuple[Execution, Outcome, Report | None]
"""An execution as it is stored, the outcome of its dispatch, and the report of it (None if there is no report)."""


class Settlement:
    """Cases to settle, and the rows that must be read before they can be settled."""

    def __init__(self, cases: Iterable[Case], refused: Sequence[Report] = ()) -> None:
        """`refused`: reports of another dispatch or worker, which are only counted."""
        self.cases = [
            (execution, _effective(execution, outcome, report), report) for execution, outcome, report in cases
        ]
        self._refused = tuple(refused)

    @property
    def failed(self) -> list[ExecutionId]:
        """Executions that failed, whose retry policy must be read."""
        return [e.id for e, outcome, _ in self.cases if outcome in (Outcome.FAILED, Outcome.TIMED_OUT, Outcome.LOST)]

    @property
    def revoked_jobs(self) -> list[tuple[str, JobId]]:
        """(tenant, job) of revoked executions, which continue under the present definition of the job."""
        return sorted({(e.tenant, e.job_id) for e, outcome, _ in self.cases if outcome is Outcome.REVOKED})

    @property
    def deciding_jobs(self) -> list[tuple[str, JobId]]:
        """(tenant, job) whose state affects the result: a returning execution of a paused job is suspended.

        A pause revokes what is dispatched. So an unwatched execution can belong to a paused job only if it has such a
        revocation, or that of a later edit, or if a person asked for it, perhaps after the pause.
        """
        deciding = {
            (e.tenant, e.job_id)
            for e, outcome, _ in self.cases
            if e.revocation in RETURN_REASONS or (e.cause is not Cause.SCHEDULE and outcome not in _NEVER_RETURNING)
        }
        return sorted(deciding.union(self.revoked_jobs, self.watched_jobs))

    @property
    def watched_jobs(self) -> list[tuple[str, JobId]]:
        """(tenant, job) of executions that others may wait for."""
        return sorted({(e.tenant, e.job_id) for e, _, _ in self.cases if e.watch})

    @property
    def open_to_read(self) -> dict[JobId, int]:
        """Number of open executions to read of each job with an overlap rule.

        It is one more than may close here, which shows whether another is open.
        """
        cases = Counter(e.job_id for e, _, _ in self.cases if e.watch & WATCH_OVERLAP)
        return {job: count + 1 for job, count in cases.items()}

    def settle(self, inputs: Inputs, now_ms: int) -> tuple[WriteSet, SettleResult]:
        """Apply every case. Reports of illegal transitions are refused and change nothing."""
        writes = WriteSet(inputs, now_ms)
        accepted: list[Report] = []
        illegal: list[Report] = []
        for execution, outcome, report in self.cases:
            is_legal = _settle_one(writes, execution, outcome, report)
            if report is None:
                continue
            if is_legal:
                accepted.append(report)
            elif outcome is Outcome.SUCCEEDED and execution.state is State.SUCCEEDED:
                writes.repeated_successes.append(report)
            else:
                illegal.append(report)
        writes.finish()
        return writes, SettleResult(
            entries=tuple(writes.entries),
            refused=(*self._refused, *illegal),
            by_state=dict(writes.closed_by_state),
            freed=tuple(name for _, name in writes.freed),
            usage=usage_of(accepted),
            with_children=len(writes.children),
        )


def match_reports(rows: Iterable[Execution], reports: Sequence[Report]) -> Settlement:
    """Return the settlement of reports. A report that is not of the present dispatch and its worker is refused."""
    by_id = {row.id: row for row in rows}
    cases: list[Case] = []
    refused = []
    for report in reports:
        row = by_id.get(report.execution_id)
        if row is None or not _is_current(row, report):
            refused.append(report)
        else:
            cases.append((row, Outcome(report.outcome), report))
            # A second report of the same dispatch comes after the first one has settled it, and is refused.
            del by_id[report.execution_id]
    return Settlement(cases, refused)


def unreported(rows: Iterable[Execution], outcome: Outcome) -> Settlement:
    """Return the settlement of executions without a report, such as those of a lost worker."""
    return Settlement([(row, outcome, None) for row in rows])


def split_successes(reports: Sequence[Report]) -> tuple[list[Report], list[Report]]:
    """Return the successes, which a driver may settle in bulk, and the other reports.

    A start whose end is in the same batch is dropped, because it adds nothing. A success after more than `KEPT_DISPATCHES`
    dispatches is not settled in bulk, because its start may not be among the stored transitions; nor is one with child jobs.
    """
    ends = {(r.execution_id, r.dispatch, r.worker_id) for r in reports if r.outcome != Outcome.STARTED}
    successes, others = [], []
    for report in reports:
        is_simple = report.dispatch <= KEPT_DISPATCHES and report.children is None
        if report.outcome == Outcome.SUCCEEDED and is_simple:
            successes.append(report)
        elif report.outcome != Outcome.STARTED or (report.execution_id, report.dispatch, report.worker_id) not in ends:
            others.append(report)
    return successes, others


def _is_current(row: Execution, report: Report) -> bool:
    """Return whether a report is of the present dispatch, which is off the timeline, and of the worker that has it."""
    return row.dispatch == report.dispatch and row.fired_ms is not None and row.worker_id in (None, report.worker_id)


def _settle_one(writes: WriteSet, execution: Execution, outcome: Outcome, report: Report | None) -> bool:
    """Settle one case. Returns False, and changes nothing, if the transition is illegal."""
    verdict = judge(
        outcome,
        state=execution.state,
        attempt=execution.attempt,
        policy=writes.inputs.policies.get(execution.id, DEFAULT_POLICY),
        execution=execution.id,
        started=report is None or report.started_ms > 0,
        retryable=report is None or report.failure is None or report.failure.retryable,
        cancel_requested=is_cancel(execution.revocation),
        snooze_ms=report.snooze_ms if report else 0,
        returned=execution.dispatch - execution.attempt,
    )
    if verdict is None:
        return False
    if outcome is Outcome.REVOKED:
        _return_revoked(writes, execution, writes.inputs.jobs.get(execution.job_id))
    else:
        _apply(writes, execution, verdict, report, outcome)
    return True


def _effective(execution: Execution, outcome: Outcome, report: Report | None) -> Outcome:
    """Return REVOKED if an edit or a pause revoked a dispatch that returns unstarted for another reason, else the outcome."""
    unstarted = outcome in (Outcome.ORPHANED, Outcome.HANDED_BACK) or (
        outcome in (Outcome.INTERRUPTED, Outcome.SNOOZED) and report is not None and not report.started_ms
    )
    is_revoked = execution.state is State.PENDING and execution.revocation in RETURN_REASONS
    return Outcome.REVOKED if is_revoked and unstarted else outcome


def _apply(writes: WriteSet, was: Execution, verdict: Verdict, report: Report | None, outcome: Outcome) -> None:
    rest = verdict.rest
    at_ms = report.ended_ms if report else writes.now_ms
    returns = rest is State.PENDING
    starts = State.RUNNING in verdict.transitions
    now = msgspec.structs.replace(
        was,
        state=rest,
        attempt=was.attempt + verdict.attempt,
        dispatch=was.dispatch + returns,
        fired_ms=None if returns else was.fired_ms,
        worker_id=None if returns else (report.worker_id if report else was.worker_id),
        started_ms=_started_ms(report) if report and starts else was.started_ms,
        finished_ms=at_ms if rest in FINAL else None,
        revocation=was.revocation if is_cancel(was.revocation) or rest is State.RUNNING else None,
        failure=_failure_text(was, report, outcome),
        progress=report.progress if report else None,
        result=report.result if report else None,
    )
    writes.settle(was, now, _transitions_text(verdict, report, outcome, at_ms, was))
    if returns:
        # An execution that did not start may have been dispatched early, so it waits for its instant.
        has_started = was.state is State.RUNNING or (report is not None and report.started_ms > 0)
        earliest_ms = 0 if has_started else was.due_ms
        writes.wait_unless_paused(now, max(at_ms, writes.now_ms, earliest_ms) + (verdict.wait_ms or 0))
    if rest is State.DEAD:
        writes.add_dead_letter(now.id)
    if report and report.children is not None and _keeps_children(outcome, rest):
        writes.children.append(_children_of(was, report.children, report.children_count))
    if was.pool != NOTICES_POOL and (kind := _incident(was, verdict, report)):
        writes.incidents.append(NewIncident(kind, now.tenant, now.id, now.job_id, _incident_text(was, report, outcome)))


def _children_of(was: Execution, children: bytes, count: int) -> NewChildren:
    return NewChildren(was.tenant, was.id, was.dispatch, was.job_id, count, children)


def _keeps_children(outcome: Outcome, rest: State) -> bool:
    """Return whether the child jobs of a dispatch are created: it succeeded, or snoozed and was not cancelled meanwhile."""
    return rest is State.SUCCEEDED or (outcome is Outcome.SNOOZED and rest is State.PENDING)


def _incident(was: Execution, verdict: Verdict, report: Report | None) -> str | None:
    """Return the kind of incident: a first failure, a dead letter, an expiry, or None."""
    if verdict.rest is State.DEAD:
        is_gone = report and report.failure and report.failure.type == GONE
        return GONE if is_gone else AlertKind.EXHAUSTED
    if verdict.rest is State.EXPIRED:
        return AlertKind.MISSED
    # A verdict adds an attempt only after a failure.
    return AlertKind.FAILED if verdict.attempt and was.attempt == 1 else None


def _incident_text(was: Execution, report: Report | None, outcome: Outcome) -> str:
    if report and report.failure:
        failure = report.failure
        text = failure.message if failure.type == GONE else f"{failure.type}: {failure.message}"
        return text.replace("\x00", "\ufffd")  # not every store accepts NUL in a text column
    if outcome is Outcome.LOST:
        return f"WorkerLost: worker {was.worker_id} was lost while it ran this execution"
    return "not started within its start deadline" if outcome is Outcome.EXPIRED else outcome.name


def _failure_text(was: Execution, report: Report | None, outcome: Outcome) -> str | None:
    if report and report.failure:
        return _encode(report.failure).decode()
    if outcome is Outcome.LOST:
        return as_json(
            {"type": "WorkerLost", "message": f"worker {was.worker_id} was lost while it ran this execution"}
        )
    if outcome is Outcome.SUCCEEDED:
        return None
    return was.failure


def _transitions_text(verdict: Verdict, report: Report | None, outcome: Outcome, at_ms: int, was: Execution) -> str:
    """Return the text to append to an execution's transitions. After `KEPT_DISPATCHES` dispatches, only its end is stored."""
    text = ""
    if was.dispatch > KEPT_DISPATCHES:
        if verdict.rest not in FINAL:
            return ""
        if was.state is State.RUNNING:
            text = "," + transition(State.RUNNING, was.started_ms or at_ms, was.worker_id)
    for state in verdict.transitions:
        if state is State.RUNNING:
            text += "," + transition(
                state, _started_ms(report) if report else at_ms, report.worker_id if report else None
            )
        else:
            text += "," + transition(state, at_ms, None, _reason(state, report, outcome, was))
    return text


def _started_ms(report: Report) -> int:
    return report.started_ms or report.ended_ms


def _reason(state: State, report: Report | None, outcome: Outcome, was: Execution) -> object:
    if state in (State.FAILED, State.TIMED_OUT) and report and report.failure:
        # The execution itself stores the traceback of its last failure.
        return msgspec.structs.replace(report.failure, traceback=None)
    if state is State.FAILED_WORKER_LOST:
        return f"worker {was.worker_id} is lost"
    if state is State.CANCELLED:
        return was.revocation
    if state is State.PENDING and outcome not in (Outcome.FAILED, Outcome.TIMED_OUT, Outcome.LOST):
        return f"{outcome.name}: {report.failure.message}" if report and report.failure else outcome.name
    return None


def _return_revoked(writes: WriteSet, was: Execution, job: Job | None) -> None:
    """Return a revoked dispatch that has not started: its occurrence continues under the job's present definition, or ends."""
    if job is None or was.revocation not in RETURN_REASONS or not still_wanted(job, was.nominal_ms, was.cause):
        writes.close(was, State.CANCELLED, was.revocation or "the job no longer has this time")
        if job is not None and not is_cancel(was.revocation) and was.cause is Cause.SCHEDULE and was.started_ms is None:
            writes.return_run(job)
        return
    now = msgspec.structs.replace(rebased(was, job), dispatch=was.dispatch + 1, fired_ms=None, worker_id=None)
    kept = was.dispatch <= KEPT_DISPATCHES
    writes.settle(was, now, "," + transition(State.PENDING, writes.now_ms, None, was.revocation) if kept else "")
    writes.wait_unless_paused(now, max(was.due_ms, writes.now_ms))
