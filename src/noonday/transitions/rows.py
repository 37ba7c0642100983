"""Rows that a transition writes. Drivers store them by the names of their fields."""

import msgspec

from noonday.model.execution import WATCH_KEY, WATCH_OVERLAP
from noonday.model.firing import LANES, Entry
from noonday.model.ids import ExecutionId, JobId
from noonday.model.job import Job, JobSpec, JobState, Overlap

_encode = msgspec.json.Encoder().encode


class JobColumns(msgspec.Struct, frozen=True):
    """The row of a job. `spec` is its JSON; None keeps the stored text, with fields that only a newer release knows."""

    tenant: str
    id: JobId
    revision: int
    state: int
    name: str | None
    type: str
    pool: str
    handler: str
    lane: int
    unique_key: str | None
    timeout_sec: float | None
    heartbeat_sec: float | None
    deadline_sec: float | None
    watch: int
    anchor_ms: int
    created_ms: int
    updated_ms: int
    trace: str | None
    endpoint: str | None
    halted: str | None
    spec: str | None
    payload: bytes | None
    skips: str | None
    moves: str | None
    paused_until_ms: int | None


def job_columns(job: Job, *, with_spec: bool = True) -> JobColumns:
    spec = job.spec
    return JobColumns(
        tenant=job.tenant,
        id=job.id,
        revision=job.revision,
        state=int(job.state),
        name=spec.name,
        type=spec.type.value,
        pool=spec.target.pool,
        handler=spec.target.handler,
        lane=LANES.index(spec.priority),
        # A cancelled job releases its key.
        unique_key=None if job.state is JobState.CANCELLED else spec.unique_key,
        timeout_sec=spec.timeout_sec,
        heartbeat_sec=spec.heartbeat_timeout_sec,
        deadline_sec=spec.start_deadline_sec,
        watch=watch_of(spec),
        anchor_ms=job.anchor_ms,
        created_ms=job.created_ms,
        updated_ms=job.updated_ms,
        trace=job.trace,
        endpoint=spec.target.endpoint,
        halted=job.halted,
        spec=_encode(spec).decode() if with_spec else None,
        payload=job.payload,
        skips=_encode(job.skips).decode() if job.skips else None,
        moves=_encode(job.moves).decode() if job.moves else None,
        paused_until_ms=job.paused_until_ms,
    )


def watch_of(spec: JobSpec) -> int:
    """Return the watch flags of executions of a job: whether others wait for their end."""
    overlap = WATCH_OVERLAP if spec.overlap is not Overlap.ALLOW else 0
    return overlap | (WATCH_KEY if spec.concurrency else 0)


class NewExecutionRow(msgspec.Struct, frozen=True):
    """An execution to insert. The store takes pool, handler, lane, watch flags and revision from its job."""

    id: ExecutionId
    tenant: str
    job_id: JobId
    nominal_ms: int
    due_ms: int
    cause: int = 0
    fired_ms: int | None = None
    """Time when its first dispatch was fired. None if it waits."""
    buffered: int = 0
    retry_of: ExecutionId | None = None
    slots: tuple[str, ...] | None = None


class TimelineRow(msgspec.Struct, frozen=True):
    """A timeline row to insert or replace: an entry, its runs left and its ordering key."""

    due_ms: int | None
    key: str
    kind: int
    number: int
    nominal_ms: int
    partition: int
    tenant: str
    pool: str
    lane: int
    early: int
    recurring: int
    runs_left: int | None = None
    ordering_key: str | None = None


def timeline_row(
    entry: Entry, due_ms: int | None, runs_left: int | None = None, ordering_key: str | None = None
) -> TimelineRow:
    """Return the timeline row of an entry. Without a due time, nothing of it is ready."""
    return TimelineRow(
        due_ms=due_ms,
        key=entry.key,
        kind=entry.kind,
        number=entry.number,
        nominal_ms=entry.nominal_ms,
        partition=entry.partition,
        tenant=entry.tenant,
        pool=entry.pool,
        lane=entry.lane,
        early=entry.early,
        recurring=entry.recurring,
        runs_left=runs_left,
        ordering_key=ordering_key,
    )


class Redispatch(msgspec.Struct, frozen=True):
    """An existing execution that is dispatched, and the slots that it occupies."""

    id: str
    slots: tuple[str, ...] | None


class RevokedRow(msgspec.Struct, frozen=True):
    """A dispatched execution and the reason of its revocation."""

    id: ExecutionId
    reason: str


class ReturnedRuns(msgspec.Struct, frozen=True):
    """A job and the number of runs that return to its `maxRuns`."""

    job_id: JobId
    count: int


class NewIncident(msgspec.Struct, frozen=True):
    """An event that may become an alert."""

    kind: str
    tenant: str
    execution_id: ExecutionId
    job_id: JobId
    message: str


class NewChildren(msgspec.Struct, frozen=True):
    """The child jobs of a dispatch that succeeded or snoozed."""

    tenant: str
    execution_id: ExecutionId
    dispatch: int
    job_id: JobId
    jobs: int
    """Number of child jobs."""
    children: bytes
    """Ciphertext, as base64 in JSON."""


class SlotChange(msgspec.Struct, frozen=True):
    """A slot and the change of the number of executions that occupy it."""

    tenant: str
    key: str
    more: int
    limit: int | None = None
    """The limit of a concurrency key. None if the slot's own row has its cap."""


class TouchedJob(msgspec.Struct, frozen=True):
    """A job whose open executions changed, so that decisions made from the former ones are stale."""

    tenant: str
    id: JobId
