"""Bulk operations: what is changed, how fast, and when the change stops by itself. Pure rules, without I/O."""

from enum import StrEnum
from math import ceil
from typing import Annotated

import msgspec

from noonday.model.errors import Flaw, InvalidInput
from noonday.model.filters import Instant
from noonday.model.ids import ExecutionId, TenantId
from noonday.model.job import JobType, RequestBody, ms_of

MOST_RUNNING = 5
"""Maximum number of operations of a tenant that run at once."""
MOST_BATCH = 100
"""Maximum number of items of one batch: what one crash may repeat, and what a stop waits for."""
MOST_WATCHED = 500
"""Maximum number of runs whose end an operation awaits. It starts no more until some have ended."""
RECENT_RUNS = 200
"""Number of results beyond which older ones count half, so that a late failure stops an operation soon."""
LEAST_RESULTS = 5
"""Number of results before which an operation without a sample does not stop by itself."""
MOST_ERRORS = 5
"""Maximum number of errors that an operation shows."""
LEASE_MS = 60_000
"""Time after which the batch of a process that died is repeated by another one."""
MOST_RATE = 1_000
KEPT_MS = 30 * 86_400_000
"""Time for which an operation is kept after its end."""
LONGEST_ERROR = 200
LONGEST_TEXT = 1_000
"""Maximum number of characters of a text in a filter."""


class OperationKind(StrEnum):
    """What an operation does to each item."""

    PAUSE_JOBS = "PAUSE_JOBS"
    RESUME_JOBS = "RESUME_JOBS"
    CANCEL_JOBS = "CANCEL_JOBS"
    CANCEL_EXECUTIONS = "CANCEL_EXECUTIONS"
    RETRY_DEAD_LETTERS = "RETRY_DEAD_LETTERS"
    ARCHIVE_DEAD_LETTERS = "ARCHIVE_DEAD_LETTERS"


class OperationState(StrEnum):
    RUNNING = "RUNNING"
    STOPPED = "STOPPED"
    DONE = "DONE"


Text = Annotated[str, msgspec.Meta(max_length=LONGEST_TEXT)]
Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e9)]


class OperationFilter(RequestBody, frozen=True, kw_only=True):
    """Filter of an operation. All conditions must match; without conditions, all items. The kind decides which ones it has."""

    state: str | None = None
    """Of jobs: ACTIVE or PAUSED. Of executions: PENDING or RUNNING."""
    type: JobType | None = None
    name: Text | None = None
    unique_key: Text | None = None
    tag: Text | None = None
    pool: Text | None = None
    handler: Text | None = None
    job_id: Text | None = None
    worker: Text | None = None
    late_over: Seconds | None = None
    took_over: Seconds | None = None
    since: Instant | None = None
    """Of executions: earliest scheduled time. Of dead letters: earliest last failure. Inclusive."""
    until: Instant | None = None
    error: Text | None = None
    """Part of the last error, written `type: message`. ASCII letters match in either case."""
    fingerprint: Text | None = None
    """Fingerprint of the last error, as `GET /v1/dead-letters/groups` names it."""


class OperationRequest(RequestBody, frozen=True, kw_only=True):
    """Request body of `POST /v1/operations`."""

    kind: OperationKind
    filter: OperationFilter
    until: Instant | None = None
    """Only items from before this instant: the `until` of the preview. Default: now."""
    sample_size: Annotated[int, msgspec.Meta(ge=0, le=MOST_BATCH)] | None = None
    """Items to change first. Runs of these must end before others follow. Default: 5 for RETRY_DEAD_LETTERS, else 0."""
    rate_per_sec: Annotated[float, msgspec.Meta(ge=0.1, le=MOST_RATE)] = 50
    stop_above_percent: Annotated[int, msgspec.Meta(ge=0, le=100)] | None = None
    """Stop if more than this percentage of the latest results are failures. Default: 20. 100: never."""


class Counts(msgspec.Struct, frozen=True):
    """What has become of the items so far."""

    done: int = 0
    skipped: int = 0
    """Items that no longer needed the change, or did not allow it: a job that ended, a dead letter that was retried."""
    failed: int = 0
    runs_ended: int = 0
    """Runs that the operation started, and whose first attempt has ended."""
    runs_failed: int = 0

    @property
    def changed(self) -> int:
        return self.done + self.skipped + self.failed


class BulkOperation(msgspec.Struct, frozen=True, kw_only=True):
    """An operation as it is stored, with the batch that is being changed."""

    id: str
    tenant: TenantId
    kind: OperationKind
    filter: OperationFilter
    until_ms: int
    by: str
    created_ms: int
    sample_size: int
    rate_per_sec: float
    stop_above_percent: int
    total: int
    total_is_least: bool
    state: OperationState = OperationState.RUNNING
    next_ms: int = 0
    """When the next step is due. While a batch is being changed: when another process repeats it."""
    version: int = 1
    position: str | None = None
    """Where the search continues. None: at the beginning."""
    is_searched: bool = False
    """True if no item follows the present batch."""
    batch: tuple[str, ...] = ()
    """The items that are being changed. They are stored before the first is changed."""
    watched: tuple[ExecutionId, ...] = ()
    """Runs that the operation started, and whose first attempt has not ended."""
    counts: Counts = Counts()
    recent: tuple[int, int] = (0, 0)
    """Recent results, and how many of them are failures."""
    errors: tuple[str, ...] = ()
    stopped_because: str | None = None
    ended_ms: int | None = None

    @property
    def watches_runs(self) -> bool:
        return self.kind is OperationKind.RETRY_DEAD_LETTERS

    @property
    def is_sampling(self) -> bool:
        """Return whether the sample is not complete, or its runs have not ended."""
        changed = self.counts.changed
        return changed < self.sample_size or (0 < self.sample_size == changed and bool(self.watched))


class Results(msgspec.Struct, frozen=True):
    """What became of one batch."""

    done: int = 0
    skipped: int = 0
    failed: int = 0
    started: tuple[ExecutionId, ...] = ()
    errors: tuple[str, ...] = ()


_JOBS = frozenset({"state", "type", "name", "unique_key", "tag", "pool", "handler"})
_EXECUTIONS = frozenset(
    {"state", "pool", "handler", "tag", "worker", "job_id", "since", "until", "late_over", "took_over"}
)
_DEAD = frozenset({"job_id", "pool", "handler", "since", "until", "error", "fingerprint"})
CONDITIONS: dict[OperationKind, frozenset[str]] = {
    OperationKind.PAUSE_JOBS: _JOBS - {"state"},
    OperationKind.RESUME_JOBS: _JOBS - {"state"},
    OperationKind.CANCEL_JOBS: _JOBS,
    OperationKind.CANCEL_EXECUTIONS: _EXECUTIONS,
    OperationKind.RETRY_DEAD_LETTERS: _DEAD,
    OperationKind.ARCHIVE_DEAD_LETTERS: _DEAD,
}
"""The conditions that the filter of each kind may have."""
_STATES = {OperationKind.CANCEL_JOBS: ("ACTIVE", "PAUSED"), OperationKind.CANCEL_EXECUTIONS: ("PENDING", "RUNNING")}
_WIRE = {field.name: field.encode_name for field in msgspec.structs.fields(OperationFilter)}


def check(request: OperationRequest) -> None:
    """Raise InvalidInput for conditions that the kind does not have."""
    allowed = CONDITIONS[request.kind]
    names = ", ".join(sorted(_WIRE[name] for name in allowed))
    flaws = [
        Flaw(f"/filter/{_WIRE[name]}", f"{request.kind} has no condition {_WIRE[name]}; it has {names}", allowed=names)
        for name in _WIRE
        if getattr(request.filter, name) is not None and name not in allowed
    ]
    state = request.filter.state
    if "state" in allowed and state is not None and state not in _STATES[request.kind]:
        states = " or ".join(_STATES[request.kind])
        flaws.append(
            Flaw("/filter/state", f"{request.kind} changes items in state {states}, not {state}", state, allowed=states)
        )
    if flaws:
        raise InvalidInput("; ".join(flaw.detail for flaw in flaws), flaws)


def conditions(where: OperationFilter) -> dict[str, object]:
    """Return the conditions of a filter as JSON values, by their names in JSON."""
    members: dict[str, object] = msgspec.to_builtins(where)
    return members


def planned(
    request: OperationRequest, operation_id: str, tenant: TenantId, by: str, now_ms: int, total: int, *, is_least: bool
) -> BulkOperation:
    """Return a new operation with the defaults of its kind."""
    until_ms = ms_of(request.until)
    sample = 5 if request.kind is OperationKind.RETRY_DEAD_LETTERS else 0
    return BulkOperation(
        id=operation_id,
        tenant=tenant,
        kind=request.kind,
        filter=request.filter,
        until_ms=now_ms + 1 if until_ms is None else min(until_ms, now_ms + 1),
        by=by,
        created_ms=now_ms,
        sample_size=sample if request.sample_size is None else request.sample_size,
        rate_per_sec=request.rate_per_sec,
        stop_above_percent=20 if request.stop_above_percent is None else request.stop_above_percent,
        total=total,
        total_is_least=is_least,
        next_ms=now_ms,
    )


def batch_size(operation: BulkOperation) -> int:
    """Return how many items to change next. 0: the operation waits for its runs."""
    if operation.counts.changed < operation.sample_size:
        return operation.sample_size - operation.counts.changed
    if operation.is_sampling:
        return 0
    room = MOST_WATCHED - len(operation.watched) if operation.watches_runs else MOST_BATCH
    return min(MOST_BATCH, ceil(operation.rate_per_sec), room)


def with_results(operation: BulkOperation, results: Results, now_ms: int) -> BulkOperation:
    """Return the operation after its batch. The next one is due when the rate allows it."""
    counts = operation.counts
    counts = msgspec.structs.replace(
        counts,
        done=counts.done + results.done,
        skipped=counts.skipped + results.skipped,
        failed=counts.failed + results.failed,
    )
    judged = results.failed if operation.watches_runs else results.done + results.failed
    changed = msgspec.structs.replace(
        operation,
        counts=counts,
        batch=(),
        watched=operation.watched + (results.started if operation.watches_runs else ()),
        recent=_recent(operation.recent, judged, results.failed),
        errors=(operation.errors + results.errors)[:MOST_ERRORS],
        next_ms=now_ms + round(len(operation.batch) * 1000 / operation.rate_per_sec),
    )
    return _braked(changed, now_ms)


def with_ends(operation: BulkOperation, ended: dict[ExecutionId, bool], now_ms: int) -> BulkOperation:
    """Return the operation after runs have ended. `ended` tells for each of them whether it failed."""
    if not ended:
        return operation
    failed = sum(ended.values())
    counts = msgspec.structs.replace(
        operation.counts,
        runs_ended=operation.counts.runs_ended + len(ended),
        runs_failed=operation.counts.runs_failed + failed,
    )
    changed = msgspec.structs.replace(
        operation,
        counts=counts,
        watched=tuple(run for run in operation.watched if run not in ended),
        recent=_recent(operation.recent, len(ended), failed),
    )
    return _braked(changed, now_ms)


def stopped(operation: BulkOperation, because: str, now_ms: int) -> BulkOperation:
    return msgspec.structs.replace(
        operation, state=OperationState.STOPPED, stopped_because=because, ended_ms=now_ms, batch=()
    )


def finished(operation: BulkOperation, now_ms: int) -> BulkOperation:
    return msgspec.structs.replace(operation, state=OperationState.DONE, ended_ms=now_ms)


def _recent(recent: tuple[int, int], results: int, failed: int) -> tuple[int, int]:
    results, failed = recent[0] + results, recent[1] + failed
    return (results // 2, failed // 2) if results >= RECENT_RUNS else (results, failed)


def _braked(operation: BulkOperation, now_ms: int) -> BulkOperation:
    """Return the operation, stopped if too many of its recent results are failures."""
    results, failed = operation.recent
    if operation.state is not OperationState.RUNNING or results < (operation.sample_size or LEAST_RESULTS):
        return operation
    if failed * 100 <= operation.stop_above_percent * results:
        return operation
    limit = operation.stop_above_percent
    because = f"{failed} of the latest {results} results are failures, more than {limit} %"
    return stopped(operation, because, now_ms)
