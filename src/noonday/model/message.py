"""Messages of the bus: dispatches to workers, and the entries that workers and recorders write to the events log."""

from collections.abc import Mapping
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from noonday.model.endpoint import EndpointLimits
from noonday.model.execution import Failure
from noonday.model.ids import ExecutionId, InstanceId, JobId, WorkerId
from noonday.model.retry import RetryPolicy


class Dispatch(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """One dispatch of an execution to the workers of a pool. (execution, number) identifies it; the number only grows."""

    execution_id: ExecutionId
    number: int
    job_id: JobId
    tenant: str
    pool: str
    handler: str
    due_ms: int
    """The instant before which the handler must not start."""
    nominal_ms: int
    attempt: int
    fired_ms: int
    """The store's time of the fire. A worker does not start a dispatch that was fired too long ago."""
    revision: int
    timeout_sec: float | None
    heartbeat_timeout_sec: float | None
    start_deadline_sec: float | None
    payload: bytes | None
    """Ciphertext, bound to tenant and job."""
    progress: bytes | None
    """Ciphertext of the last progress that a former attempt reported."""
    trace: str | None
    """The `traceparent` of the job's creation, or of the dispatch itself if that is traced (see `created_trace`)."""
    name: str | None = None
    pool_timeout_sec: float | None = None
    """The pool's timeout, for a handler that has none."""
    created_trace: str | None = None
    """The `traceparent` of the job's creation if `trace` is that of the dispatch; empty if the creation was not traced."""
    lane: int = 1
    """Index into LANES."""
    endpoint: str | None = None
    """The endpoint that the handler calls, if any."""
    secrets: tuple[bytes, ...] = ()
    """Ciphertexts of the secrets that sign its calls."""
    weight: int = 1
    """The weight of its tenant where tenants take turns."""
    limits: EndpointLimits | None = None
    """The limits of the endpoint, if it has any."""
    max_attempts: int | None = None
    """Number of attempts by the retry policy of the job as it was fired. None if it has none; 0: the policy has the default."""
    pool_max_attempts: int | None = None
    """Number of attempts by the retry policy of the pool, likewise."""

    def with_pool_defaults(self, defaults: Mapping[str, Any] | None) -> "Dispatch":
        """Return the dispatch with the timeout and the number of attempts (`timeout_sec`, `max_attempts`) of its pool, if any."""
        if defaults is None:
            return self
        timeout_sec, attempts = defaults["timeout_sec"], defaults["max_attempts"]
        return msgspec.structs.replace(self, pool_timeout_sec=timeout_sec, pool_max_attempts=attempts)


class Report(msgspec.Struct, frozen=True, gc=False, array_like=True, tag="report"):
    """The outcome of a dispatch. A run of more than a second reports its start as well as its end."""

    execution_id: ExecutionId
    dispatch: int
    worker_id: WorkerId
    outcome: int
    started_ms: int
    """Time when the handler was entered. 0 if it was not."""
    ended_ms: int
    failure: Failure | None = None
    result: bytes | None = None
    progress: bytes | None = None
    snooze_ms: int = 0
    """Length of a snooze, or the shortest wait before the next attempt of a failure."""
    pool: str = ""
    job_id: JobId = JobId("")
    trace: str | None = None
    """The `traceparent` of a run that was traced, at its end."""
    late_ms: int = 0
    """Milliseconds from the due instant until the handler was entered."""
    tenant: str = ""
    """The tenant of the run. Set at its end."""
    payload_bytes: int = 0
    """Size of the payload as the worker received it. Set at the end."""
    details: bytes | None = None
    """Ciphertext of the attempt record."""
    attempt: int = 0
    """The number of the attempt, if it has an attempt record or log lines."""
    endpoint: str | None = None
    """The endpoint that was called, if the outcome is evidence of its health: a success, or a failure that it caused."""
    logs: bytes | None = None
    """Ciphertext of the last log lines of the attempt. None if it logged nothing."""
    children: bytes | None = None
    """Ciphertext of the jobs that the handler enqueued. None unless the attempt succeeded or snoozed."""
    children_count: int = 0
    """Number of these jobs."""


class HandlerInfo(msgspec.Struct, frozen=True, rename="camel"):
    """A handler as its worker announces it."""

    pool: str
    name: str
    schema: dict[str, object] | None = None
    retry_policy: RetryPolicy | None = None
    timeout_sec: float | None = None
    doc: str | None = None


class Hello(msgspec.Struct, frozen=True, array_like=True, tag="hello"):
    """The announcement of a worker that starts. Its identity is fresh at every start."""

    worker_id: WorkerId
    at_ms: int
    host: str
    pid: int
    concurrency: dict[str, int]
    handlers: tuple[HandlerInfo, ...]


class RunProgress(msgspec.Struct, frozen=True, array_like=True):
    """The progress that a handler reported in one run."""

    execution_id: ExecutionId
    dispatch: int
    progress: bytes
    """Ciphertext."""


class Beat(msgspec.Struct, frozen=True, array_like=True, tag="beat"):
    """The heartbeat of a worker, with the progress that its handlers reported since the last one."""

    worker_id: WorkerId
    at_ms: int
    progress: tuple[RunProgress, ...] = ()
    stuck: tuple[ExecutionId, ...] = ()
    """Runs that ignore their cancellation."""


class Bye(msgspec.Struct, frozen=True, array_like=True, tag="bye"):
    """The farewell of a worker that stops and has no dispatches left."""

    worker_id: WorkerId
    at_ms: int


class Tick(msgspec.Struct, frozen=True, array_like=True, tag="tick"):
    """A recorder's mark of time on its log partition, so that lag is never mistaken for a lost worker."""

    recorder: InstanceId
    number: int
    store_ms: int


LogEntry = Report | Hello | Beat | Bye | Tick


class Token(msgspec.Struct, frozen=True, order=True, array_like=True):
    """The fencing token of a run. It grows with every dispatch, and with every delivery of one dispatch."""

    dispatch: int
    claimed_ms: int
    taken_over: bool = False
    """An earlier claim of this dispatch lapsed without a report: its worker may have died in the handler."""

    def __int__(self) -> int:
        return (self.dispatch << 48) | (self.claimed_ms & ((1 << 48) - 1))


class LogBatch(msgspec.Struct, frozen=True):
    """Entries of a log partition, with the offset of the first and the offset to read next."""

    offset: int
    next_offset: int
    entries: tuple[LogEntry, ...]


T = TypeVar("T", bound="Dispatch | LogEntry")


class Oversized(NamedTuple, Generic[T]):
    """An entry that is larger than one message. It was not sent and cannot be sent."""

    entry: T
    size_bytes: int
    limit_bytes: int
