"""Applies outcomes to executions, one by one decided, set by set written."""

import sqlite3
from collections.abc import Sequence

import msgspec

from noonday.drivers.sqlite.ledger import Ledger, as_json, move
from noonday.drivers.sqlite.queries import load
from noonday.model.execution import ASKED_BACK_REASONS, FINAL, Outcome, State, Verdict, is_cancel, judge
from noonday.model.firing import still_wanted
from noonday.model.ids import JobId
from noonday.model.job import Job, JobState
from noonday.model.message import HandlerInfo, Report
from noonday.model.retry import DEFAULT_POLICY, RetryPolicy
from noonday.model.view import PoolSettings
from noonday.ports.jobs import Execution

SQL = load("settling")
_failure = msgspec.json.Encoder().encode
_policies = msgspec.json.Decoder(list[tuple[str, RetryPolicy | None, HandlerInfo | None, PoolSettings | None]])
_jobs = msgspec.json.Decoder(list[Job])

Case = tuple[Execution, Outcome, Report | None]
"""An execution as it is, what happened to it, and the report that says so (None: found out without one)."""


def settle_rows(ledger: Ledger, cases: Sequence[Case]) -> list[Report]:
    """Settle each case. Answers the reports whose move would not have been legal: they changed nothing."""
    cases = [(execution, _in_effect(execution, outcome, report), report) for execution, outcome, report in cases]
    policies = _policies_for(ledger.conn, cases)
    jobs = _jobs_asked_back(ledger.conn, cases)
    refused = []
    for execution, outcome, report in cases:
        verdict = judge(
            outcome,
            state=execution.state,
            attempt=execution.attempt,
            policy=policies.get(execution.id, DEFAULT_POLICY),
            execution=execution.id,
            started=report is None or report.started_ms > 0,
            retryable=report is None or report.failure is None or report.failure.retryable,
            cancel_requested=is_cancel(execution.cancel),
            snooze_ms=report.snooze_ms if report else 0,
        )
        if verdict is None:
            if report:
                refused.append(report)
        elif outcome is Outcome.ASKED_BACK:
            _take_back(ledger, execution, jobs.get(execution.job_id))
        else:
            _apply(ledger, execution, verdict, report, outcome)
    return refused


def _in_effect(execution: Execution, outcome: Outcome, report: Report | None) -> Outcome:
    """What an edit or a pause asks for is asked back also if it comes back, not started, for another reason."""
    unstarted = outcome in (Outcome.FORGOTTEN, Outcome.HANDED_BACK) or (
        outcome is Outcome.INTERRUPTED and report is not None and not report.started_ms
    )
    wished = execution.state is State.PENDING and execution.cancel in ASKED_BACK_REASONS
    return Outcome.ASKED_BACK if wished and unstarted else outcome


def _apply(ledger: Ledger, was: Execution, verdict: Verdict, report: Report | None, outcome: Outcome) -> None:
    rest = verdict.rest
    at_ms = report.ended_ms if report else ledger.now_ms
    returns = rest is State.PENDING
    began = State.RUNNING in verdict.moves
    now = msgspec.structs.replace(
        was,
        state=rest,
        attempt=was.attempt + verdict.attempt,
        dispatch=was.dispatch + returns,
        fired_ms=None if returns else was.fired_ms,
        worker_id=None if returns else (report.worker_id if report else was.worker_id),
        started_ms=_start_of(report) if report and began else was.started_ms,
        finished_ms=at_ms if rest in FINAL else None,
        cancel=was.cancel if is_cancel(was.cancel) else None,
        failure=_failure_text(was, report, outcome),
        progress=report.progress if report else None,
        result=report.result if report else None,
    )
    ledger.settle(was, now, _moves_text(verdict, report, outcome, at_ms, was))
    if returns:
        ledger.wait(now, max(at_ms, ledger.now_ms) + (verdict.wait_ms or 0))
    if rest is State.DEAD:
        ledger.bury(now.id)


def _failure_text(was: Execution, report: Report | None, outcome: Outcome) -> str | None:
    if report and report.failure:
        return _failure(report.failure).decode()
    if outcome is Outcome.LOST:
        return as_json({"type": "WorkerLost", "message": f"worker {was.worker_id} stopped speaking while it ran this"})
    if outcome is Outcome.SUCCEEDED:
        return None
    return was.failure


def _moves_text(verdict: Verdict, report: Report | None, outcome: Outcome, at_ms: int, was: Execution) -> str:
    """What is appended to the moves of an execution."""
    text = ""
    for state in verdict.moves:
        if state is State.RUNNING:
            text += "," + move(state, _start_of(report) if report else at_ms, report.worker_id if report else None)
        else:
            text += "," + move(state, at_ms, None, _reason(state, report, outcome, was))
    return text


def _start_of(report: Report) -> int:
    return report.started_ms or report.ended_ms


def _reason(state: State, report: Report | None, outcome: Outcome, was: Execution) -> object:
    if state in (State.FAILED, State.TIMED_OUT) and report and report.failure:
        return report.failure
    if state is State.FAILED_WORKER_LOST:
        return f"worker {was.worker_id} is lost"
    if state is State.CANCELLED:
        return was.cancel
    if state is State.PENDING and outcome not in (Outcome.FAILED, Outcome.TIMED_OUT, Outcome.LOST):
        return outcome.name
    return None


def _take_back(ledger: Ledger, was: Execution, job: Job | None) -> None:
    """A dispatch that had not started was asked back: the occurrence goes on under the job as it is now, or ends."""
    if job is None or was.cancel not in ASKED_BACK_REASONS or not still_wanted(job, was.nominal_ms, was.cause):
        ledger.close(was, State.CANCELLED, was.cancel or "the job no longer has this time")
        return
    now = msgspec.structs.replace(ledger.rebase(was, job), dispatch=was.dispatch + 1, fired_ms=None, worker_id=None)
    ledger.settle(was, now, "," + move(State.PENDING, ledger.now_ms, None, was.cancel))
    held = job.state is JobState.PAUSED
    ledger.wait(now, None if held else max(was.due_ms, ledger.now_ms))


def _policies_for(conn: sqlite3.Connection, cases: Sequence[Case]) -> dict[str, RetryPolicy]:
    """What the job says beats the handler's, which beats the pool's."""
    failed = [e.id for e, outcome, _ in cases if outcome in (Outcome.FAILED, Outcome.TIMED_OUT, Outcome.LOST)]
    if not failed:
        return {}
    rows = _policies.decode(conn.execute(SQL.policies, (as_json(failed),)).fetchone()[0])
    chosen = {}
    for execution, of_job, handler, pool in rows:
        of_handler, of_pool = handler and handler.retry_policy, pool and pool.retry_policy
        chosen[execution] = of_job or of_handler or of_pool or DEFAULT_POLICY
    return chosen


def _jobs_asked_back(conn: sqlite3.Connection, cases: Sequence[Case]) -> dict[JobId, Job]:
    asked = sorted({(e.tenant, e.job_id) for e, outcome, _ in cases if outcome is Outcome.ASKED_BACK})
    if not asked:
        return {}
    jobs = _jobs.decode(conn.execute(SQL.jobs, (as_json(asked),)).fetchone()[0])
    return {job.id: job for job in jobs}
