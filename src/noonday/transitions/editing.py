"""Edits: from the change of one job to the rows that it writes."""

from collections.abc import Sequence

import msgspec

from noonday.model.change import Change, NewExecution
from noonday.model.errors import StoreUnavailable
from noonday.model.execution import Execution, State
from noonday.model.firing import LANES, Fire, fire_entry
from noonday.model.ids import ExecutionId, partition_of
from noonday.model.job import Job, JobState, Overlap
from noonday.model.slots import of_ordering_key
from noonday.model.snapshot import Scope, Snapshot
from noonday.transitions.inputs import Inputs
from noonday.transitions.rows import TimelineRow, timeline_row, watch_of
from noonday.transitions.write_set import WriteSet, rebased

MAX_READS = 16
"""Maximum number of reads for one decision. Each read looks up four times as many of the job's times as the one before."""


def too_many_reads(job: Job) -> StoreUnavailable:
    return StoreUnavailable(f"gave up on job {job.id} after {MAX_READS} reads of its executions; retry")


def require_named_executions(before: Snapshot, change: Change) -> None:
    """Raise Unread if a change names executions that its snapshot does not contain."""
    before.require(change.named)
    if change.job and change.job.spec.overlap is Overlap.ALLOW and before.job.spec.overlap is not Overlap.ALLOW:
        # The buffered executions stop waiting for each other, so all of them change.
        before.open_in(Scope.OPEN)


class Edit:
    """Applies a change of one job. `job` is the job's new row; `writes` has everything else."""

    def __init__(self, before: Snapshot, change: Change, existing: set[ExecutionId]) -> None:
        """`existing`: the executions of the change that exist already. They are not created again."""
        self.before = before
        self.change = change
        self.job = change.job or before.job
        paused = [self.job.id] if self.job.state is JobState.PAUSED else []
        self.writes = WriteSet(Inputs(open_=before.known_open, paused=paused), _decided_ms(before, change))
        self._existing = existing
        self._rows = {e.id: e for e in before.executions}
        self._leave_ordering_keys()
        if change.fire:
            self.writes.put_fire(self.job, change.fire)
        self.writes.decide(change.decisions)
        self._cancel(change.cancel)
        self._rebase(change.rebase)
        if self.job.spec.overlap is Overlap.ALLOW:
            self.writes.start_all_buffered(self.job.id)
        self._start()
        self._suspend(change.suspend)
        self._release(change.release)
        self.writes.finish()

    @property
    def new_revision(self) -> bool:
        return self.job.revision != self.before.job.revision

    @property
    def fenced_pools(self) -> tuple[str, ...]:
        """Pools to fence: dispatches of the job that were fired before this change must not start there.

        Revocations reach the present dispatches only, and an earlier one may be delivered again. A job that is paused or
        cancelled is fenced even if nothing changes, because the fence may not have been set the first time.
        """
        change = self.change
        is_stopped = self.job.state is not JobState.ACTIVE and not change.executions
        if not (change.cancel or change.suspend or change.rebase or self._new_definition or is_stopped):
            return ()
        return tuple(sorted({self.before.job.spec.target.pool, *(e.pool for e in self.before.executions)}))

    @property
    def _new_definition(self) -> bool:
        """Whether dispatches of the former revision differ from those of the new one. A skip or a move concerns no dispatch."""
        job, before = self.job, self.before.job
        is_left_out = (job.skips, job.moves) != (before.skips, before.moves)
        only_left_out = is_left_out and job.spec == before.spec and job.payload == before.payload
        return self.new_revision and not only_left_out

    @property
    def added_watch(self) -> int:
        """Watch flags that open executions get in addition to those they have."""
        watch = watch_of(self.job.spec)
        return watch if watch != watch_of(self.before.job.spec) else 0

    @property
    def created(self) -> list[NewExecution]:
        """The executions of the change that did not exist."""
        return [new for new in self.change.executions if new.id not in self._existing]

    def _leave_ordering_keys(self) -> None:
        """Free the slots of ordering keys that waiting executions keep, if the job left the key or is paused."""
        key = self.job.spec.ordering_key
        kept = (of_ordering_key(key),) if key and self.job.state is not JobState.PAUSED else ()
        for row in self.before.known_open:
            if row.fired_ms is None and row.slots and row.slots != kept:
                watch = row.watch | watch_of(self.job.spec)
                now = self._rows[row.id] = msgspec.structs.replace(row, slots=(), watch=watch)
                self.writes.settle(row, now, "")

    def _cancel(self, cancelled: Sequence[tuple[ExecutionId, str]]) -> None:
        """Close executions that are not dispatched, and revoke the others."""
        for execution, reason in cancelled:
            row = self._rows[execution]
            if row.state is State.PENDING and row.fired_ms is None:
                self.writes.close(row, State.CANCELLED, reason)
            else:
                self.writes.revoke(row, reason)

    def _rebase(self, executions: Sequence[ExecutionId]) -> None:
        """Move executions that have not started to the job's new definition."""
        for execution in executions:
            row = self._rows[execution]
            now = rebased(row, self.job)
            self.writes.settle(row, now, "")
            if row.waits_until_ms is not None:
                self.writes.wait(now, row.waits_until_ms)
            elif not row.buffered:
                self.writes.suspend(now, row.suspended_until_ms or row.due_ms)

    def _start(self) -> None:
        job = self.job
        for new in self.created:
            if new.buffered and not self.writes.inputs.open.get(job.id):
                # The execution that it would wait for exists already and has ended.
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
            self.writes.note_open(row)
            if new.revision is not None and new.revision != job.revision:
                # `add_execution` stores the job's present revision, so this one is corrected afterwards.
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


def fire_row(job: Job, fire: Fire) -> TimelineRow:
    """Return the fire row of a new job."""
    entry = fire_entry(job, fire.nominal_ms, partition_of(job.id))
    return timeline_row(entry, fire.due_ms, fire.runs_left, job.spec.ordering_key)


def _decided_ms(before: Snapshot, change: Change) -> int:
    """Return the time of a change: the latest instant that it names."""
    instants = [before.job.updated_ms, *(new.due_ms for new in change.executions)]
    if change.job:
        instants.append(change.job.updated_ms)
    if change.audit:
        instants.append(change.audit.at_ms)
    return max(instants)


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
