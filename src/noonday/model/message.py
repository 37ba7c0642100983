"""What travels on the bus: dispatches to workers, and what workers and recorders write to the log of events."""

import msgspec

from noonday.model.endpoint import EndpointLimits
from noonday.model.execution import Failure
from noonday.model.ids import ExecutionId, InstanceId, JobId, WorkerId
from noonday.model.retry import RetryPolicy


class Dispatch(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """One handing-out of an execution. (execution, number) names it; the number only grows."""

    execution_id: ExecutionId
    number: int
    job_id: JobId
    tenant: str
    pool: str
    handler: str
    due_ms: int
    """The instant before which it must not start."""
    nominal_ms: int
    attempt: int
    fired_ms: int
    """The store's time of the fire: a worker drops what was fired too long ago."""
    revision: int
    timeout_sec: float | None
    heartbeat_timeout_sec: float | None
    start_deadline_sec: float | None
    payload: bytes | None
    """Ciphertext, bound to tenant and job."""
    progress: bytes | None
    """Ciphertext: what the last attempt said."""
    trace: str | None
    """The `traceparent` under which the job was created; of the dispatch itself, if that is traced (`created_trace`)."""
    name: str | None = None
    pool_timeout_sec: float | None = None
    """What the pool says, for a handler that says nothing."""
    created_trace: str | None = None
    """The `traceparent` of the creation, once `trace` is that of the dispatch; empty, if it had none."""
    lane: int = 1
    """Index into LANES."""
    endpoint: str | None = None
    """Whom the handler calls, if it calls somebody."""
    secrets: tuple[bytes, ...] = ()
    """Ciphertext: what it signs its calls with."""
    weight: int = 1
    """How many turns its tenant has where tenants take turns."""
    limits: EndpointLimits | None = None
    """How whom it calls may be called, if there are limits."""


class Report(msgspec.Struct, frozen=True, gc=False, array_like=True, tag="report"):
    """What became of a dispatch. A run of more than a second reports its start as well as its end."""

    execution_id: ExecutionId
    dispatch: int
    worker_id: WorkerId
    outcome: int
    started_ms: int
    """When the handler was entered; 0 if it was not."""
    ended_ms: int
    failure: Failure | None = None
    result: bytes | None = None
    progress: bytes | None = None
    snooze_ms: int = 0
    """Of a snooze, how long it lasts; of a failure, how long the next attempt waits at least."""
    pool: str = ""
    job_id: JobId = JobId("")
    trace: str | None = None
    """The `traceparent` of a run that was traced, at its end."""
    late_ms: int = 0
    """How long after its instant the handler was entered."""
    tenant: str = ""
    """Whose run it was, at its end."""
    payload_bytes: int = 0
    """Of the payload as it was handed to the worker, at the end."""
    account: bytes | None = None
    """Ciphertext: what is kept of this attempt."""
    attempt: int = 0
    """Which attempt it was, if there is an account of it."""
    endpoint: str | None = None
    """Whom it called, if what came of it says something about them: it succeeded, or failed because of them."""


class HandlerInfo(msgspec.Struct, frozen=True, rename="camel"):
    """What a worker says of a handler it has."""

    pool: str
    name: str
    schema: dict[str, object] | None = None
    retry_policy: RetryPolicy | None = None
    timeout_sec: float | None = None
    doc: str | None = None


class Hello(msgspec.Struct, frozen=True, array_like=True, tag="hello"):
    """A worker is here. Its identity is fresh at every start."""

    worker_id: WorkerId
    at_ms: int
    host: str
    pid: int
    concurrency: dict[str, int]
    handlers: tuple[HandlerInfo, ...]


class Beat(msgspec.Struct, frozen=True, array_like=True, tag="beat"):
    """A sign of life, with what the handlers it runs have said since the last one."""

    worker_id: WorkerId
    at_ms: int
    progress: tuple[tuple[ExecutionId, int, bytes], ...] = ()
    """(execution, dispatch, ciphertext)."""
    stuck: tuple[ExecutionId, ...] = ()
    """Runs that ignore their cancellation."""


class Bye(msgspec.Struct, frozen=True, array_like=True, tag="bye"):
    """A worker leaves, and holds nothing any more."""

    worker_id: WorkerId
    at_ms: int


class Tick(msgspec.Struct, frozen=True, array_like=True, tag="tick"):
    """The recorder of a partition counts time on the log itself, so that lag is never mistaken for death."""

    recorder: InstanceId
    number: int
    store_ms: int


LogEntry = Report | Hello | Beat | Bye | Tick


class Token(msgspec.Struct, frozen=True, order=True, array_like=True):
    """The fencing token of a run: grows with every dispatch, and when one dispatch is delivered twice."""

    dispatch: int
    claimed_ms: int
    taken_over: bool = False
    """An earlier claim of this dispatch lapsed without a report: its worker may have died in the handler."""

    def __int__(self) -> int:
        return (self.dispatch << 48) | (self.claimed_ms & ((1 << 48) - 1))
