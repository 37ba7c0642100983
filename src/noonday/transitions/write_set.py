"""Write set: everything that one transition writes, and the one function that closes an execution."""

from collections.abc import Iterable
from typing import Any

import msgspec

from noonday.model.execution import WATCH_OVERLAP, Execution, State
from noonday.model.firing import LANES, Entry, Fire, Kind
from noonday.model.ids import ExecutionId, JobId, partition_of
from noonday.model.job import Job, JobState, spread_ms
from noonday.model.left_out import schedule_of
from noonday.model.slots import is_of_ordering_key, slot_key
from noonday.transitions.inputs import Inputs
from noonday.transitions.rows import RevokedRow, watch_of
from noonday.transitions.written_rows import WrittenRows

_encode = msgspec.json.Encoder().encode


def as_json(value: Any) -> str:
    return _encode(value).decode()


def transition(state: State, at_ms: int, worker: str | None = None, reason: object = None) -> str:
    """Return the stored text of one transition of an execution."""
    if reason is not None:
        return as_json([int(state), at_ms, worker, reason])
    return f'[{state:d},{at_ms},"{worker}"]' if worker else f"[{state:d},{at_ms}]"


def dispatch_entry(execution: Execution, due_ms: int) -> Entry:
    """Return the timeline entry of an execution that waits for its first or next dispatch."""
    return Entry(
        due_ms=due_ms,
        key=execution.id,
        kind=Kind.DISPATCH,
        number=execution.dispatch,
        nominal_ms=execution.nominal_ms,
        partition=partition_of(execution.job_id),
        tenant=execution.tenant,
        pool=execution.pool,
        lane=execution.lane,
        early=int(not execution.watch),
        recurring=0,
    )


def rebased(was: Execution, job: Job) -> Execution:
    """Return an unstarted execution under the present definition of its job."""
    return msgspec.structs.replace(
        was,
        revision=job.revision,
        pool=job.spec.target.pool,
        handler=job.spec.target.handler,
        lane=LANES.index(job.spec.priority),
        watch=was.watch | watch_of(job.spec),
        revocation=None,
        progress=None,
    )


class WriteSet(WrittenRows):
    """The changes of executions in one transition, and the rows that follow from them.

    Call `finish` last, before the driver writes the rows.
    """

    def __init__(self, inputs: Inputs, now_ms: int) -> None:
        super().__init__()
        self.inputs = inputs
        self.now_ms = now_ms
        self._closed: set[JobId] = set()
        """Jobs of which a watched execution was closed."""
        self._unwritten: set[ExecutionId] = set()
        """New executions, which only `new` has so far."""

    def note_open(self, execution: Execution) -> None:
        """Add a new execution to the inputs, for the overlap rule of what follows."""
        self.inputs.open.setdefault(execution.job_id, []).append(execution)
        self._unwritten.add(execution.id)

    def settle(self, was: Execution, now: Execution, transitions: str) -> None:
        """Change an execution from `was` to `now`, and append the text `transitions` to its transitions.

        An execution that is closed or no longer dispatched frees its slots. It keeps only the slot of its ordering key, while
        it waits for another dispatch and its job is not paused.
        """
        closed = now.state >= State.FAILED
        if closed:
            self.closed_by_state[now.state.name] += 1
        if was.slots and (closed or now.fired_ms is None):
            frees_all = closed or now.job_id in self.inputs.paused
            kept = () if frees_all else tuple(name for name in now.slots if is_of_ordering_key(name))
            self.free_slots(was.tenant, [name for name in was.slots if name not in kept])
            now = msgspec.structs.replace(now, slots=kept)
        before = self._settled.get(now.id)
        appended = before.transitions + transitions if before else transitions
        self._settled[now.id] = msgspec.structs.replace(now, transitions=appended)
        self.inputs.note(now, is_open=not closed)
        if was.watch & WATCH_OVERLAP:
            self.touched.add((was.tenant, was.job_id))
            if closed:
                self._closed.add(was.job_id)

    def free_slots(self, tenant: str, names: Iterable[str]) -> None:
        """Free slots of an execution, by their names."""
        for key in (slot_key(tenant, name) for name in names):
            self.slots[key] -= 1
            self.freed.add(key)

    def close(self, was: Execution, state: State, reason: str) -> None:
        """Close an execution that is not dispatched, or whose dispatch has ended without a start."""
        now = msgspec.structs.replace(
            was, state=state, finished_ms=self.now_ms, fired_ms=None, buffered=0, revocation=reason, progress=None
        )
        self.drop([was.id])
        self.settle(was, now, "," + transition(state, self.now_ms, None, reason))

    def revoke(self, execution: Execution, reason: str) -> None:
        """Revoke a dispatched execution: its worker stops it, or does not start it."""
        self.revoked.append(RevokedRow(execution.id, reason))
        self.revocations.append((execution.pool, execution.id, execution.dispatch, reason))

    def wait(self, execution: Execution, due_ms: int) -> None:
        """Put an execution on the timeline: a dispatch row with a due time."""
        self.put(dispatch_entry(execution, due_ms), due_ms)

    def wait_unless_paused(self, execution: Execution, due_ms: int) -> None:
        if execution.job_id in self.inputs.paused:
            self.suspend(execution, due_ms)
        else:
            self.wait(execution, due_ms)

    def suspend(self, execution: Execution, until_ms: int) -> None:
        """Put a dispatch row without a due time on the timeline. It stores `until_ms`, for which it waits once released."""
        self.put(msgspec.structs.replace(dispatch_entry(execution, 0), nominal_ms=until_ms), None)

    def return_run(self, job: Job) -> None:
        """Return one run to `maxRuns`, for a scheduled execution that ended without a start.

        A job whose runs were used up gets its next time back on the timeline.
        """
        fire = self.inputs.fires.get(job.id)
        if fire is None or fire.runs_left is None:
            return
        following = None
        if fire.due_ms is None and fire.runs_left == 0 and job.state is JobState.ACTIVE:
            following = schedule_of(job).next_after(max(self.now_ms, fire.nominal_ms - 1))
        if following is None:
            self._runs_returned[job.id] += 1
            self.inputs.fires[job.id] = msgspec.structs.replace(fire, runs_left=fire.runs_left + 1)
        else:
            self.inputs.fires[job.id] = Fire(following, following + spread_ms(job.spec, job.id), 1)
            self.put_fire(job, self.inputs.fires[job.id])

    def finish(self) -> None:
        """Start the oldest buffered execution of each job whose last open one was closed.

        An open execution that is not watched does not delay it, because its end would not be noticed. Executions created
        while the job allows overlap are not watched.
        """
        while self._closed:
            open_ = self.inputs.open.get(self._closed.pop(), [])
            buffered = [e for e in open_ if e.buffered]
            if buffered and not any(e.watch & WATCH_OVERLAP for e in open_ if not e.buffered):
                self._start_buffered(buffered[0])

    def start_all_buffered(self, job_id: JobId) -> None:
        """Start every buffered execution of a job that allows overlap now."""
        for execution in list(self.inputs.open.get(job_id, ())):
            if execution.buffered:
                self._start_buffered(execution)

    def _start_buffered(self, was: Execution) -> None:
        now = msgspec.structs.replace(was, buffered=0)
        if was.id in self._unwritten:
            self.new[was.id] = msgspec.structs.replace(self.new[was.id], buffered=0)
            self.inputs.note(now, is_open=True)
        else:
            self.settle(was, now, "")
        self.wait_unless_paused(now, max(self.now_ms, now.due_ms))
