"""What a change that was decided on does to rows."""

from collections.abc import Sequence

import msgspec

from noonday.model.errors import StoreUnavailable
from noonday.model.execution import State
from noonday.model.firing import LANES, fire_entry
from noonday.model.ids import ExecutionId, partition_of
from noonday.model.job import Job, JobState, Overlap
from noonday.model.slots import of_ordering_key
from noonday.ports.jobs import Change, Execution, Fire, NewExecution, Scope, Snapshot
from noonday.transitions.inputs import Inputs
from noonday.transitions.write_set import WriteSet, watch_of

LOOKS = 16
"""How often a decision may ask for more. Each time it looks up four times as many of its times as before."""


def too_many_looks(job: Job) -> StoreUnavailable:
    return StoreUnavailable(f"gave up on job {job.id} after {LOOKS} looks at its executions; retry")


def require_what_changes(before: Snapshot, change: Change) -> None:
    """Raises Unread if a change is about executions that its snapshot does not have."""
    before.require(change.named)
    if change.job and change.job.spec.overlap is Overlap.ALLOW and before.job.spec.overlap is not Overlap.ALLOW:
        # Nothing waits for another any more.
        before.open_in(Scope.OPEN)


class Edit:
    """A change of one job, worked out. What belongs to the job's own row is `job`; the rest is in the write set."""

    def __init__(self, before: Snapshot, change: Change, existing: set[ExecutionId]) -> None:
        """`existing`: which of the executions to be made exist already."""
        self.before = before
        self.change = change
        self.job = change.job or before.job
        paused = [self.job.id] if self.job.state is JobState.PAUSED else []
        self.writes = WriteSet(Inputs(open_=before.known_open, paused=paused), _moment(before, change))
        self._existing = existing
        self._rows = {e.id: e for e in before.executions}
        self._leave_ordering_keys()
        if change.fire:
            self.writes.put_fire(self.job, change.fire)
        self.writes.decide(change.decisions)
        self._end(change.cancel)
        self._rebase(change.rebase)
        if self.job.spec.overlap is Overlap.ALLOW:
            self.writes.end_waiting(self.job.id)
        self._start(change.executions)
        self._suspend(change.suspend)
        self._release(change.release)
        self.writes.finish()

    @property
    def new_revision(self) -> bool:
        return self.job.revision != self.before.job.revision

    @property
    def fenced_pools(self) -> tuple[str, ...]:
        """Where dispatches that were fired before this change must not start: those who hold the present ones are asked, but
        earlier ones may come again. Also if nothing changes any more, because a bar may not have been set the first time."""
        change = self.change
        is_at_rest = self.job.state is not JobState.ACTIVE and not change.executions
        if not (change.cancel or change.suspend or change.rebase or self.new_revision or is_at_rest):
            return ()
        return tuple(sorted({self.before.job.spec.target.pool, *(e.pool for e in self.before.executions)}))

    @property
    def watch_more(self) -> int:
        """What the open executions are to be watched for besides what they are watched for already."""
        watch = watch_of(self.job.spec)
        return watch if watch != watch_of(self.before.job.spec) else 0

    def _leave_ordering_keys(self) -> None:
        """What waits keeps the slot of a line only as long as its job is in that line, and not paused."""
        key = self.job.spec.ordering_key
        stays = (of_ordering_key(key),) if key and self.job.state is not JobState.PAUSED else ()
        for row in self.before.known_open:
            if row.fired_ms is None and row.slots and row.slots != stays:
                watch = row.watch | watch_of(self.job.spec)
                now = self._rows[row.id] = msgspec.structs.replace(row, slots=(), watch=watch)
                self.writes.settle(row, now, "")

    def _end(self, cancel: Sequence[tuple[ExecutionId, str]]) -> None:
        """Close at once what nobody holds; ask the holder of the rest."""
        for execution, reason in cancel:
            row = self._rows[execution]
            if row.state is State.PENDING and row.fired_ms is None:
                self.writes.close(row, State.CANCELLED, reason)
            else:
                self.writes.revoke(row, reason)

    def _rebase(self, rebased: Sequence[ExecutionId]) -> None:
        """Executions that have not started go on under the job's new definition."""
        for execution in rebased:
            row = self._rows[execution]
            now = self.writes.rebase(row, self.job)
            self.writes.settle(row, now, "")
            if row.waits_until_ms is not None:
                self.writes.wait(now, row.waits_until_ms)
            elif not row.buffered:
                self.writes.suspend(now, row.suspended_until_ms or row.due_ms)

    def _start(self, wanted: Sequence[NewExecution]) -> None:
        job = self.job
        for new in wanted:
            if new.id in self._existing:
                continue
            if new.buffered and not self.writes.inputs.open.get(job.id):
                # What it was to wait for exists already, and has ended.
                new = msgspec.structs.replace(new, buffered=False)
            self.writes.add_execution(
                new.id,
                job.tenant,
                job.id,
                new.nominal_ms,
                new.due_ms,
                cause=new.cause,
                buffered=int(new.buffered),
                retry_of=new.retry_of,
            )
            self.writes.touched.add((job.tenant, job.id))
            row = _as_row(job, new)
            self.writes.opened(row)
            if new.revision is not None and new.revision != job.revision:
                # Made as all others are, and then told apart.
                self.writes.settle(row, msgspec.structs.replace(row, revision=new.revision), "")
            if not new.buffered:
                self.writes.wait(row, new.due_ms)

    def _suspend(self, waiting: Sequence[ExecutionId]) -> None:
        for execution in waiting:
            row = self._rows[execution]
            self.writes.suspend(row, row.waits_until_ms or row.due_ms)

    def _release(self, suspended: Sequence[tuple[ExecutionId, int]]) -> None:
        for execution, due_ms in suspended:
            self.writes.wait(self._rows[execution], due_ms)


def fire_columns(job: Job, fire: Fire) -> tuple[object, ...]:
    """A fire row: due or None, the rest of an entry, runs left, ordering key."""
    _, *rest = msgspec.structs.astuple(fire_entry(job, fire.nominal_ms, partition_of(job.id)))
    return (fire.due_ms, *rest, fire.runs_left, job.spec.ordering_key)


def _moment(before: Snapshot, change: Change) -> int:
    """When a change was decided, as far as it says so."""
    said = [before.job.updated_ms, *(new.due_ms for new in change.executions)]
    if change.job:
        said.append(change.job.updated_ms)
    if change.audit:
        said.append(change.audit.at_ms)
    return max(said)


def _as_row(job: Job, new: NewExecution) -> Execution:
    return Execution(
        id=new.id,
        job_id=job.id,
        tenant=job.tenant,
        nominal_ms=new.nominal_ms,
        due_ms=new.due_ms,
        state=State.PENDING,
        attempt=1,
        dispatch=1,
        revision=job.revision,
        cause=new.cause,
        pool=job.spec.target.pool,
        handler=job.spec.target.handler,
        lane=LANES.index(job.spec.priority),
        created_ms=new.due_ms,
        buffered=int(new.buffered),
        watch=watch_of(job.spec),
    )
