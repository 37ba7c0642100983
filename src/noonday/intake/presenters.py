"""Presenters of jobs: from rows of the store to wire types."""

from collections.abc import Mapping, Sequence
from datetime import date, timedelta
from functools import reduce
from typing import Any

import msgspec

from noonday.crypto.envelope import context_of
from noonday.crypto.keyring import Keyring
from noonday.model.attempt import AttemptLogs
from noonday.model.change import ChangeResult
from noonday.model.errors import BadKey, Flaw, InvalidInput
from noonday.model.execution import Cause, Execution, Failure, Outcome, State
from noonday.model.firing import Fire
from noonday.model.ids import ExecutionId
from noonday.model.job import Job, JobState, JobType, instant_of
from noonday.model.left_out import left_out_from, moves_in_force, schedule_of, skips_in_force, without
from noonday.model.move import Move
from noonday.model.redaction import redacted_call
from noonday.model.rows import JobRow
from noonday.model.skip import Skip
from noonday.model.snapshot import Snapshot
from noonday.model.usage import UsageTotals
from noonday.model.view import (
    INSTEAD_OF_READ_ONLY,
    AttemptLogsView,
    AttemptView,
    DayUsedView,
    DeadLetterView,
    ExecutionLogsView,
    ExecutionView,
    JobView,
    MoveView,
    SkipView,
    TransitionView,
    UsageView,
    UsedView,
)
from noonday.model.zones import local_text
from noonday.runtime.tracing import trace_id_of

_FAILURES = (State.FAILED, State.TIMED_OUT, State.FAILED_WORKER_LOST)
_transition = msgspec.json.Decoder(list[list[Any]])
_fields = tuple(field.name for field in msgspec.structs.fields(Job.__annotations__["spec"]) if field.name != "payload")


class Presenter:
    """Builds views of jobs, executions and dead letters. Decrypts payloads, progress and results, and links to logs."""

    def __init__(self, keyring: Keyring, logs_url: str | None) -> None:
        self._keyring = keyring
        self._logs_url = logs_url

    def job(
        self,
        row: JobRow,
        *,
        executions: Sequence[Execution] = (),
        warnings: tuple[str, ...] = (),
        payload: Any = msgspec.UNSET,
        summary: bool = False,
    ) -> JobView:
        """Build the view of a job. `payload` is the plaintext, if it is known. A `summary` has none and decrypts nothing."""
        job, fire = row.job, row.fire
        if summary:
            payload = None
        next_ms = _next_ms(job, fire)
        spec = {name: getattr(job.spec, name) for name in _fields}
        shown = self.open(job.payload, job.tenant, job.id) if payload is msgspec.UNSET else payload
        return JobView(
            **spec,
            payload=shown if job.spec.target.endpoint is None else redacted_call(shown),
            job_id=job.id,
            tenant=job.tenant,
            state=state_of(row),
            version=job.revision,
            created_at=instant_of(job.created_ms),
            updated_at=instant_of(job.updated_ms),
            next_fire_at=instant_of(next_ms),
            next_fire_at_local=_local(job, next_ms),
            runs_left=fire.runs_left if fire else None,
            halted=job.halted,
            skips=tuple(map(_skip_view, skips_in_force(job, fire.nominal_ms) if fire else ())),
            moves=tuple(_move_view(each) for each in moves_in_force(job) if fire and _is_to_come(each, fire)),
            paused_until=instant_of(job.paused_until_ms),
            warnings=warnings,
            executions=tuple(self.execution(e, job.spec.name, summary=summary) for e in executions),
        )

    def job_after(self, applied: ChangeResult, *, warnings: tuple[str, ...] = ()) -> JobView:
        """Build the view of a job after a change."""
        after = applied.after
        return self.job(JobRow(after.job, after.fire, after.has_open, died=after.died), warnings=warnings)

    def read_only_warnings(self, before: Snapshot, read_only: Mapping[str, Any]) -> tuple[str, ...]:
        """Return a warning for each read-only member of a request that differs from the job and that only a request changes.

        Raises InvalidInput if the members are those of another job.
        """
        job = before.job
        state = state_of(JobRow(job, before.fire, before.has_open))
        own = {"jobId": job.id, "tenant": job.tenant, "state": state, "version": job.revision}
        differ = [name for name in own if read_only.get(name, own[name]) != own[name]]
        if foreign := [
            Flaw(f"/{name}", f"the body is of another job: the {name} of this one is {own[name]}", read_only[name])
            for name in differ
            if name in ("jobId", "tenant")
        ]:
            raise InvalidInput(foreign[0].detail, foreign)
        return tuple(
            f"ignored {name} {read_only[name]!r:.100}: it is read-only and was {own[name]!r}; {INSTEAD_OF_READ_ONLY[name]}"
            for name in differ
        )

    def execution(
        self, row: Execution, job_name: str | None = None, waiting_for: str | None = None, *, summary: bool = False
    ) -> ExecutionView:
        """Build the view of an execution. A `summary` has no progress, result or traceback, and decrypts nothing."""
        transitions = _transitions(row)
        error = msgspec.json.decode(row.failure, type=Failure) if row.failure else None
        if error and summary:
            error = msgspec.structs.replace(error, traceback=None)
        return ExecutionView(
            execution_id=row.id,
            job_id=row.job_id,
            job_name=job_name,
            state=row.state.name,
            attempt=row.attempt,
            dispatch=row.dispatch,
            cause=Cause(row.cause).name,
            pool=row.pool,
            handler=row.handler,
            scheduled_at=instant_of(row.nominal_ms),
            due_at=instant_of(row.due_ms),
            next_attempt_at=instant_of(row.waits_until_ms),
            started_at=instant_of(row.started_ms),
            finished_at=instant_of(row.finished_ms),
            worker_id=row.worker_id,
            error=error,
            progress=None if summary else self.open(row.progress, row.tenant, row.job_id),
            result=None if summary else self.open(row.result, row.tenant, row.job_id),
            trace_id=trace_id_of(row.id),
            logs_url=self._logs_url.replace("{executionId}", row.id) if self._logs_url else None,
            cancel_requested=row.revocation,
            retry_of=row.retry_of,
            waiting_for=waiting_for,
            version=row.revision,
            attempts=_attempts(transitions),
            transitions=transitions,
        )

    def execution_after(self, applied: ChangeResult, execution_id: ExecutionId) -> ExecutionView:
        """Build the view of an execution that a change created or revoked."""
        row = next(e for e in applied.after.executions if e.id == execution_id)
        return self.execution(row, applied.after.job.spec.name)

    def logs(self, row: Execution, attempts: Sequence[AttemptLogs]) -> ExecutionLogsView:
        return ExecutionLogsView(
            execution_id=row.id,
            attempts=tuple(
                AttemptLogsView(
                    attempt=each.attempt,
                    dispatch=each.dispatch,
                    outcome=Outcome(each.outcome).name,
                    started_at=instant_of(each.started_ms or None),
                    finished_at=instant_of(each.ended_ms),
                    text=self._open_text(each.logs, row.tenant, row.job_id),
                )
                for each in attempts
            ),
        )

    def dead_letter(
        self, row: Execution, died_ms: int, archived: bool, retried_as: str | None, job_name: str | None = None
    ) -> DeadLetterView:
        return DeadLetterView(
            execution=self.execution(row, job_name),
            died_at=instant_of(died_ms),
            archived=archived,
            retried_as=retried_as,
        )

    def open(self, sealed: bytes | None, tenant: str, job_id: str) -> Any:
        """Decrypt and decode a value. If that fails, returns an object with the reason as `unreadable`."""
        try:
            return self.decrypted(sealed, tenant, job_id)
        except BadKey as error:
            return {"unreadable": error.detail}
        except RecursionError:
            # The value was stored before nesting was limited.
            return {"unreadable": "nested too deeply to be decoded"}

    def _open_text(self, sealed: bytes, tenant: str, job_id: str) -> str:
        try:
            return self._keyring.open(sealed, context_of(tenant, job_id)).decode("utf-8", "replace")
        except BadKey as error:
            return f"[unreadable: {error.detail}]"

    def decrypted(self, sealed: bytes | None, tenant: str, job_id: str) -> Any:
        """Decrypt and decode a value. Raises BadKey, and RecursionError if the value is older than the limit of nesting."""
        if sealed is None:
            return None
        return msgspec.json.decode(self._keyring.open(sealed, context_of(tenant, job_id)))


def state_of(row: JobRow) -> str:
    """Return the state of a job. COMPLETED and DEAD are computed, never stored: no due time and no open execution.

    DEAD: the last execution failed permanently, and its dead letter was not retried.
    """
    if row.job.state is not JobState.ACTIVE:
        return row.job.state.name
    waits = row.fire is not None and row.fire.due_ms is not None
    if waits or row.open:
        return "ACTIVE"
    return "DEAD" if row.died else "COMPLETED"


def _skip_view(skip: Skip) -> SkipView:
    return SkipView(at=instant_of(skip.nominal_ms), by=skip.by, reason=skip.reason, requested_at=instant_of(skip.at_ms))


def _move_view(move: Move) -> MoveView:
    return MoveView(
        at=instant_of(move.nominal_ms),
        to=instant_of(move.to_ms),
        by=move.by,
        reason=move.reason,
        requested_at=instant_of(move.at_ms),
    )


def _is_to_come(move: Move, fire: Fire) -> bool:
    return max(move.nominal_ms, move.to_ms) >= fire.nominal_ms


def _next_ms(job: Job, fire: Fire | None) -> int | None:
    """Return when a job is due next, apart from occurrences that are left out."""
    if fire is None or fire.due_ms is None:
        return None
    left_out = left_out_from(job, fire.nominal_ms)
    if not left_out:
        return fire.due_ms
    following = without(schedule_of(job), left_out).next_after(fire.nominal_ms - 1)
    return None if following is None else following + fire.due_ms - fire.nominal_ms


def _local(job: Job, next_ms: int | None) -> str | None:
    if next_ms is None or job.spec.type is not JobType.CRON:
        return None
    return local_text(next_ms, job.spec.timezone or "UTC")


def _transitions(row: Execution) -> tuple[TransitionView, ...]:
    """Build the transitions of an execution, with the attempt and dispatch of each.

    Both follow from the states: every return to PENDING is the next dispatch, and after a failure also the next attempt. An
    execution with many dispatches has only its first and last transitions stored.
    """
    attempt = dispatch = 1
    last: State | None = None
    views = []
    for each in _transition.decode(f"[{row.transitions}]"):
        state = State(each[0])
        if state is State.PENDING and last is not None:
            dispatch += 1
            attempt += last in _FAILURES
        reason = each[3] if len(each) > 3 else None
        views.append(
            TransitionView(
                state=state.name,
                at=instant_of(each[1]),
                attempt=attempt,
                dispatch=dispatch,
                worker_id=each[2] if len(each) > 2 else None,
                reason=_text(reason),
            )
        )
        last = state
    # The execution in the response to a change has no transitions.
    return tuple(views) if not views or row.dispatch <= dispatch else _with_gap(row, views, dispatch)


def _with_gap(row: Execution, views: Sequence[TransitionView], kept: int) -> tuple[TransitionView, ...]:
    """Note how many dispatches are missing, and where. The transitions after the gap belong to the present dispatch."""
    at = max(at for at, view in enumerate(views) if view.state == State.PENDING.name)
    missing = row.dispatch - kept
    reason = "; ".join(filter(None, (views[at].reason, f"{missing} dispatches after this one are not stored")))
    return (
        *views[:at],
        msgspec.structs.replace(views[at], reason=reason),
        *(msgspec.structs.replace(view, dispatch=row.dispatch, attempt=row.attempt) for view in views[at + 1 :]),
    )


def _text(reason: Any) -> str | None:
    if isinstance(reason, dict):
        return f"{reason.get('type')}: {reason.get('message')}"
    return None if reason is None else str(reason)


def _attempts(transitions: Sequence[TransitionView]) -> tuple[AttemptView, ...]:
    """Build the attempts: each run of the handler, from RUNNING to the next transition."""
    attempts: list[AttemptView] = []
    started: TransitionView | None = None
    for transition in transitions:
        if transition.state == State.RUNNING.name:
            started = transition
            continue
        if started is not None:
            attempts.append(_attempt(started, transition))
            started = None
    if started is not None:
        attempts.append(_attempt(started, None))
    return tuple(attempts)


def _attempt(started: TransitionView, ended: TransitionView | None) -> AttemptView:
    kind, _, message = (ended.reason or "").partition(": ") if ended else ("", "", "")
    failed = ended is not None and ended.state in {state.name for state in _FAILURES}
    return AttemptView(
        attempt=started.attempt,
        dispatch=started.dispatch,
        state=ended.state
        if ended and ended.state != State.PENDING.name
        else (ended.reason or "" if ended else "RUNNING"),
        worker_id=started.worker_id,
        started_at=started.at,
        finished_at=ended.at if ended else None,
        error=Failure(kind, message) if failed else None,
    )


def usage_view(tenant: str, from_day: int, to_day: int, days: Sequence[tuple[int, UsageTotals]]) -> UsageView:
    total = reduce(UsageTotals.plus, (used for _, used in days), UsageTotals())
    return UsageView(
        tenant=tenant,
        from_=_date_of(from_day),
        to=_date_of(to_day),
        days=tuple(DayUsedView(day=_date_of(day), **_used(used)) for day, used in days),
        total=UsedView(**_used(total)),
    )


def _used(used: UsageTotals) -> dict[str, Any]:
    return {
        "runs": used.runs,
        "succeeded": used.succeeded,
        "failed": used.failed,
        "run_seconds": used.run_ms / 1000,
        "payload_bytes": used.payload_bytes,
    }


def _date_of(day: int) -> date:
    return date(1970, 1, 1) + timedelta(days=day)
