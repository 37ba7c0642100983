"""Triggers: runs of a job that a person asks for, in addition to its schedule."""

from noonday.intake.change_times import refuse_if_cancelled
from noonday.intake.edits import overlap_of
from noonday.model.audit import AuditEntry
from noonday.model.change import Change, NewExecution
from noonday.model.errors import Conflict, InvalidInput
from noonday.model.execution import Cause
from noonday.model.firing import Start
from noonday.model.ids import ExecutionId, JobId, discriminator, execution_id
from noonday.model.job import Job
from noonday.model.pool import BUILT_IN_POOLS, NOTICES_POOL
from noonday.model.snapshot import Scope, Snapshot


def trigger(
    before: Snapshot,
    key: str,
    now_ms: int,
    audit: AuditEntry,
    *,
    payload: bytes | None = None,
    force: bool = False,
) -> Change:
    """Run a job now, in addition to its schedule, with its own payload or with the given one.

    With `force`, the overlap rule does not apply: the run neither waits for open executions nor cancels them. Without it, raises
    Conflict if the rule forbids the run.
    """
    refuse_if_cancelled(before.job)
    job = before.job
    if job.spec.target.pool == NOTICES_POOL:
        raise Conflict(
            "a notice cannot be triggered: POST /v1/alert-preferences/{id}/test sends another one to the same recipient"
        )
    if payload is not None:
        refuse_payload_of_built_in(job)
    start, cancel = (Start.NOW, False) if force else overlap_of(before)
    if start is Start.SKIP:
        raise Conflict(
            f"overlap is {job.spec.overlap} and an execution of this job is open; `force` runs the job beside it"
        )
    open_ = before.open_in(Scope.UNBUFFERED) if cancel else ()
    others = tuple((e.id, f"overlap {job.spec.overlap}") for e in open_)
    execution = NewExecution(
        id_of_trigger(job.id, key, now_ms),
        now_ms,
        now_ms,
        Cause.TRIGGER,
        buffered=start is Start.BUFFER,
        payload=payload,
    )
    return Change(executions=(execution,), cancel=others, audit=audit)


def refuse_payload_of_built_in(job: Job) -> None:
    """Raise InvalidInput if the service of a built-in pool makes the payloads of a job."""
    pool = job.spec.target.pool
    if pool in BUILT_IN_POOLS:
        detail = f"a job of the built-in pool {pool!r} takes no other payload: PATCH /v1/tasks/{{id}} changes a task"
        raise InvalidInput.of("/payload", detail)


def id_of_trigger(job_id: JobId, key: str, now_ms: int) -> ExecutionId:
    return execution_id(job_id, now_ms, discriminator("trigger", key))
