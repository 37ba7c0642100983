"""Child jobs: the jobs that a handler enqueues.

They travel with the report of the attempt, and become jobs once the attempt has succeeded or snoozed. Their ids follow from the
execution and their names, so that the same request of a later attempt means the same job.
"""

from collections.abc import Sequence

import msgspec

from noonday.model.ids import ExecutionId, JobId, TenantId, child_job_id
from noonday.model.job import JobSpec
from noonday.model.stored import StoredDecoder


class ChildJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job that a handler has enqueued, and that does not exist yet."""

    job_id: JobId
    """The id that it gets, unless its unique key is taken."""
    spec: JobSpec
    enqueued_ms: int
    """When the handler enqueued it. A `runAt` after this may have passed when the job is created."""
    trace: str | None = None
    """The `traceparent` of the run that enqueued it, if that is traced."""

    def is_same_as(self, other: "ChildJob") -> bool:
        return self.job_id == other.job_id and _encode(self.spec) == _encode(other.spec)


class WaitingChildren(msgspec.Struct, frozen=True):
    """The child jobs of one dispatch, as they are stored until they are created."""

    tenant: TenantId
    execution_id: ExecutionId
    dispatch: int
    job_id: JobId
    """The job of the execution."""
    children: bytes
    """Ciphertext, bound to the tenant and the job of the execution."""


def child_of(
    execution: ExecutionId, dispatch: int, position: int, spec: JobSpec, now_ms: int, trace: str | None = None
) -> ChildJob:
    """Return the child job that a handler enqueues as the `position`-th of a dispatch.

    A name makes it the same job in every dispatch of the execution. Without a name, it is a job of this dispatch only.
    """
    key = f"{dispatch}/{position}" if spec.name is None else f"name/{spec.name}"
    return ChildJob(job_id=child_job_id(execution, key), spec=spec, enqueued_ms=now_ms, trace=trace)


def encode_children(children: Sequence[ChildJob]) -> bytes:
    return _encode(children)


def decode_children(text: bytes) -> list[ChildJob]:
    """Decode child jobs, perhaps of a worker of another version. Raises msgspec.MsgspecError."""
    return _decoder.decode(text)


_encode = msgspec.json.Encoder().encode
_decoder = StoredDecoder(list[ChildJob])
