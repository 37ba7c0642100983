"""Valid values with defaults. A test states only what matters to it."""

from datetime import UTC, datetime
from itertools import count
from typing import Any

import msgspec

from noonday.model.audit import AuditEntry
from noonday.model.execution import Cause, Execution, Failure, Outcome, State
from noonday.model.firing import Entry, Kind
from noonday.model.ids import ExecutionId, JobId, TenantId, WorkerId, execution_id, partition_of
from noonday.model.job import Job, JobSpec, JobState, JobType, Target, anchor_of
from noonday.model.message import Dispatch, HandlerInfo, Hello, Report

NOW_MS = 1_893_456_000_000
"""2030-01-01T00:00:00Z."""
SECOND, MINUTE, HOUR, DAY = 1_000, 60_000, 3_600_000, 86_400_000
TENANT = TenantId("acme")
POOL, HANDLER = "etl", "load"
WORKER = WorkerId("w-1")

_serial = count(1)


def job_id() -> JobId:
    """Ids of jobs that are made later sort after earlier ones."""
    return JobId(f"01900000-0000-7000-8000-{next(_serial):012x}")


def instant(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)


def spec(**fields: Any) -> JobSpec:
    """A one-shot that is due at once by default."""
    return JobSpec(**{"type": JobType.ONE_TIME, "target": Target(POOL, HANDLER), **fields})


def every(seconds: float = 60, **fields: Any) -> JobSpec:
    return spec(type=JobType.INTERVAL, every_sec=seconds, **fields)


def job(of: JobSpec | None = None, *, now_ms: int = NOW_MS, **fields: Any) -> Job:
    wanted = of or spec()
    return Job(
        **{
            "id": job_id(),
            "tenant": TENANT,
            "revision": 1,
            "state": JobState.ACTIVE,
            "spec": wanted,
            "anchor_ms": anchor_of(wanted, now_ms),
            "payload": b"ciphertext",
            "created_ms": now_ms,
            "updated_ms": now_ms,
            "trace": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            **fields,
        }
    )


def entry(key: str | None = None, due_ms: int = NOW_MS, **fields: Any) -> Entry:
    name = key or job_id()
    return Entry(
        **{
            "due_ms": due_ms,
            "key": name,
            "kind": Kind.FIRE,
            "number": 1,
            "nominal_ms": due_ms,
            "partition": partition_of(JobId(name)),
            "tenant": TENANT,
            "pool": POOL,
            "lane": 1,
            "early": 0,
            "recurring": 0,
            **fields,
        }
    )


def execution(of: Job | None = None, nominal_ms: int = NOW_MS, **fields: Any) -> Execution:
    """An execution that is dispatched and not started by default."""
    owner = of or job()
    return Execution(
        **{
            "id": execution_id(owner.id, nominal_ms),
            "job_id": owner.id,
            "tenant": owner.tenant,
            "nominal_ms": nominal_ms,
            "due_ms": nominal_ms,
            "state": State.PENDING,
            "attempt": 1,
            "dispatch": 1,
            "revision": owner.revision,
            "cause": Cause.SCHEDULE,
            "pool": owner.spec.target.pool,
            "handler": owner.spec.target.handler,
            "lane": 1,
            "created_ms": nominal_ms,
            "fired_ms": nominal_ms,
            **fields,
        }
    )


def dispatch(execution: str | None = None, number: int = 1, **fields: Any) -> Dispatch:
    owner = job_id()
    return Dispatch(
        **{
            "execution_id": ExecutionId(execution or execution_id(owner, NOW_MS)),
            "number": number,
            "job_id": owner,
            "tenant": TENANT,
            "pool": POOL,
            "handler": HANDLER,
            "due_ms": NOW_MS,
            "nominal_ms": NOW_MS,
            "attempt": 1,
            "fired_ms": NOW_MS,
            "revision": 1,
            "timeout_sec": None,
            "heartbeat_timeout_sec": None,
            "start_deadline_sec": None,
            "payload": b"ciphertext",
            "progress": None,
            "trace": None,
            **fields,
        }
    )


def report(of: Dispatch, outcome: Outcome = Outcome.SUCCEEDED, **fields: Any) -> Report:
    """A report of a run that began when it was due and took a second. A run that did not begin has `started_ms` 0."""
    made = Report(
        execution_id=of.execution_id,
        dispatch=of.number,
        worker_id=WORKER,
        outcome=int(outcome),
        started_ms=0 if outcome in _UNBEGUN else of.due_ms,
        ended_ms=of.due_ms if outcome is Outcome.STARTED else of.due_ms + SECOND,
        pool=of.pool,
    )
    return msgspec.structs.replace(made, **fields)


_UNBEGUN = {Outcome.EXPIRED, Outcome.HANDED_BACK, Outcome.REVOKED}


def failure(message: str = "no such file", **fields: Any) -> Failure:
    return Failure(**{"type": "OSError", "message": message, **fields})


def hello(worker: str = WORKER, *handlers: HandlerInfo, **fields: Any) -> Hello:
    return Hello(
        **{
            "worker_id": WorkerId(worker),
            "at_ms": NOW_MS,
            "host": "build-7",
            "pid": 4711,
            "concurrency": {POOL: 4},
            "handlers": handlers or (HandlerInfo(POOL, HANDLER),),
            **fields,
        }
    )


def audit(action: str = "job.create", at_ms: int = NOW_MS, **fields: Any) -> AuditEntry:
    return AuditEntry(
        **{"tenant": TENANT, "at_ms": at_ms, "subject": "ann", "action": action, "target": "a target", **fields}
    )
