"""Collects what one decision changes; knows the one way to close an execution."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from noonday.model.execution import WATCH_KEY, WATCH_OVERLAP, State
from noonday.model.firing import LANES, Decision, Entry, Kind, fire_entry
from noonday.model.ids import ExecutionId, JobId, partition_of
from noonday.model.job import Job, JobSpec, JobState, Overlap, rule_of, spread_ms
from noonday.model.message import Report
from noonday.model.slots import SlotKey, is_of_ordering_key, slot_key
from noonday.ports.jobs import Execution, Fire
from noonday.transitions.inputs import Inputs

_encode = msgspec.json.Encoder().encode


def as_json(value: Any) -> str:
    return _encode(value).decode()


def transition(state: State, at_ms: int, worker: str | None = None, reason: object = None) -> str:
    """One move of an execution, as it is kept."""
    if reason is not None:
        return as_json([int(state), at_ms, worker, reason])
    return f'[{state:d},{at_ms},"{worker}"]' if worker else f"[{state:d},{at_ms}]"


def watch_of(spec: JobSpec) -> int:
    overlap = WATCH_OVERLAP if spec.overlap is not Overlap.ALLOW else 0
    return overlap | (WATCH_KEY if spec.concurrency else 0)


def dispatch_entry(execution: Execution, due_ms: int) -> Entry:
    """The timeline row of an execution that waits to be handed out (again)."""
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


class WriteSet:
    """The writes of one decision, set by set. `finish` comes last, before they are written."""

    def __init__(self, inputs: Inputs, now_ms: int) -> None:
        self.inputs = inputs
        self.now_ms = now_ms
        self.entries: list[Entry] = []
        """What is on the timeline now and should be on the hot index."""
        self.revocations: list[tuple[str, ExecutionId, int, str]] = []
        self.rested: Counter[str] = Counter()
        """How many executions ended in each state."""
        self.new: list[tuple[Any, ...]] = []
        """(id, tenant, job, nominal, due, cause, fired, buffered, retry of, slots)."""
        self._settled: dict[ExecutionId, tuple[Any, ...]] = {}
        self.put_rows: list[tuple[Any, ...]] = []
        """Columns of the timeline: due or None, the rest of an entry, runs left, ordering key."""
        self.runs_returned: Counter[JobId] = Counter()
        """How many runs of `maxRuns` jobs have back, because an execution that was fired ended before it started."""
        self.dropped: list[str] = []
        self.decisions: list[tuple[Any, ...]] = []
        self.buried: list[str] = []
        self.incidents: list[tuple[str, str, ExecutionId, JobId, str]] = []
        """(kind, tenant, execution, job, message) of what somebody has to act upon."""
        self.revoked: list[tuple[ExecutionId, str]] = []
        self.handed_out_again: list[tuple[str, tuple[str, ...] | None]] = []
        """(execution, slots)."""
        self.slots: Counter[SlotKey] = Counter()
        """How many more of each are in use; fewer, if negative."""
        self.freed: set[SlotKey] = set()
        self.said_again: list[Report] = []
        """Successes that were settled before: their handler has recorded them itself, or they came twice."""
        self.touched: set[tuple[str, JobId]] = set()
        """(tenant, job) of watched jobs of which an execution was opened, closed or had its turn."""
        self._closed: set[JobId] = set()
        self._fresh: set[ExecutionId] = set()
        """New executions, not written yet."""

    def add_execution(
        self,
        execution: ExecutionId,
        tenant: str,
        job_id: JobId,
        nominal_ms: int,
        due_ms: int,
        *,
        cause: int = 0,
        fired_ms: int | None = None,
        buffered: int = 0,
        retry_of: str | None = None,
        slots: tuple[str, ...] = (),
    ) -> None:
        self.new.append(
            (execution, tenant, job_id, nominal_ms, due_ms, cause, fired_ms, buffered, retry_of, slots or None)
        )

    def opened(self, execution: Execution) -> None:
        """A new execution of a job of which others may be open, or wait."""
        self.inputs.open.setdefault(execution.job_id, []).append(execution)
        self._fresh.add(execution.id)

    def settle(self, was: Execution, now: Execution, transitions: str) -> None:
        """An execution changes from what it was to what it is now. One that is not dispatched any more keeps no slot but that of
        its ordering key, and that one only while it waits for a time."""
        closed = now.state >= State.FAILED
        if closed:
            self.rested[now.state.name] += 1
        if was.slots and (closed or now.fired_ms is None):
            lets_go = closed or now.job_id in self.inputs.paused
            kept = () if lets_go else tuple(name for name in now.slots if is_of_ordering_key(name))
            self.free_slots(was.tenant, [name for name in was.slots if name not in kept])
            now = msgspec.structs.replace(now, slots=kept)
        before = self._settled.get(now.id)
        self._settled[now.id] = (
            now.id,
            int(now.state),
            now.attempt,
            now.dispatch,
            now.revision,
            now.fired_ms,
            now.buffered,
            now.worker_id,
            now.started_ms,
            now.finished_ms,
            now.cancel,
            now.failure,
            now.progress,
            now.result,
            now.slots or None,
            now.pool,
            now.handler,
            now.lane,
            now.watch,
            before[-1] + transitions if before else transitions,
        )
        self.inputs.note(now, is_open=not closed)
        if was.watch & WATCH_OVERLAP:
            self.touched.add((was.tenant, was.job_id))
            if closed:
                self._closed.add(was.job_id)

    def free_slots(self, tenant: str, names: Iterable[str]) -> None:
        """Slots that an execution does not hold any more."""
        for key in (slot_key(tenant, name) for name in names):
            self.slots[key] -= 1
            self.freed.add(key)

    @property
    def settled(self) -> list[tuple[Any, ...]]:
        """What executions are now, each once, and what is to be added to their transitions."""
        return list(self._settled.values())

    def close(self, was: Execution, state: State, reason: str) -> None:
        """End an execution that nobody holds."""
        now = msgspec.structs.replace(
            was, state=state, finished_ms=self.now_ms, fired_ms=None, buffered=0, cancel=reason, progress=None
        )
        self.drop([was.id])
        self.settle(was, now, "," + transition(state, self.now_ms, None, reason))

    def revoke(self, execution: Execution, reason: str) -> None:
        """Ask whoever holds an execution to end it."""
        self.revoked.append((execution.id, reason))
        self.revocations.append((execution.pool, execution.id, execution.dispatch, reason))

    def rebase(self, was: Execution, job: Job) -> Execution:
        """What an execution that has not started becomes under the job as it is now."""
        return msgspec.structs.replace(
            was,
            revision=job.revision,
            pool=job.spec.target.pool,
            handler=job.spec.target.handler,
            lane=LANES.index(job.spec.priority),
            watch=was.watch | watch_of(job.spec),
            cancel=None,
            progress=None,
        )

    def wait(self, execution: Execution, due_ms: int) -> None:
        """Give an execution a dispatch row."""
        self.put(dispatch_entry(execution, due_ms), due_ms)

    def wait_unless_paused(self, execution: Execution, due_ms: int) -> None:
        if execution.job_id in self.inputs.paused:
            self.suspend(execution, due_ms)
        else:
            self.wait(execution, due_ms)

    def suspend(self, execution: Execution, until_ms: int) -> None:
        """A dispatch row without a due time: it waits to be released, and then for the time it would have waited for."""
        self.put(msgspec.structs.replace(dispatch_entry(execution, 0), nominal_ms=until_ms), None)

    def put(
        self, entry: Entry, due_ms: int | None, runs_left: int | None = None, ordering_key: str | None = None
    ) -> None:
        _, *rest = msgspec.structs.astuple(entry)
        self.put_rows.append((due_ms, *rest, runs_left, ordering_key))
        if due_ms is not None:
            self.entries.append(entry)

    def put_fire(self, job: Job, fire: Fire) -> None:
        entry = fire_entry(job, fire.nominal_ms, partition_of(job.id))
        self.put(entry, fire.due_ms, fire.runs_left, job.spec.ordering_key)

    def return_run(self, job: Job) -> None:
        """An execution that the schedule fired has ended without a start: it does not count against `maxRuns`. A job that waits
        for nothing because its runs were used up waits for its next time."""
        fire = self.inputs.fires.get(job.id)
        if fire is None or fire.runs_left is None:
            return
        following = None
        if fire.due_ms is None and fire.runs_left == 0 and job.state is JobState.ACTIVE:
            following = rule_of(job.spec, job.anchor_ms).next_after(max(self.now_ms, fire.nominal_ms - 1))
        if following is None:
            self.runs_returned[job.id] += 1
            self.inputs.fires[job.id] = msgspec.structs.replace(fire, runs_left=fire.runs_left + 1)
        else:
            self.inputs.fires[job.id] = Fire(following, following + spread_ms(job.spec, job.id), 1)
            self.put_fire(job, self.inputs.fires[job.id])

    def drop(self, keys: Iterable[str]) -> None:
        self.dropped.extend(keys)

    def decide(self, decisions: Sequence[Decision]) -> None:
        self.decisions.extend(msgspec.structs.astuple(d) for d in decisions)

    def bury(self, execution: ExecutionId) -> None:
        self.buried.append(execution)

    def finish(self) -> None:
        """The last open execution of a job was closed: the oldest one that waited for it has its turn.

        Nobody waits for one that is not watched, such as one made since the job allows overlap: its end would not be seen.
        """
        while self._closed:
            open_ = self.inputs.open.get(self._closed.pop(), [])
            waiting = [e for e in open_ if e.buffered]
            if waiting and not any(e.watch & WATCH_OVERLAP for e in open_ if not e.buffered):
                self._give_turn(waiting[0])

    def end_waiting(self, job_id: JobId) -> None:
        """Executions of this job do not wait for each other any more."""
        for execution in list(self.inputs.open.get(job_id, ())):
            if execution.buffered:
                self._give_turn(execution)

    def _give_turn(self, was: Execution) -> None:
        turn = msgspec.structs.replace(was, buffered=0)
        if was.id in self._fresh:
            at = next(at for at, row in enumerate(self.new) if row[0] == was.id)
            self.new[at] = (*self.new[at][:7], 0, *self.new[at][8:])
            self.inputs.note(turn, is_open=True)
        else:
            self.settle(was, turn, "")
        self.wait_unless_paused(turn, max(self.now_ms, turn.due_ms))
