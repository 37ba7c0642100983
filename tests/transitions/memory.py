"""Rows of jobs, executions and the timeline in memory. They read inputs and apply write sets as a store does."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from dataclasses import replace as with_fields

import msgspec

from noonday.model.batch import FireRequest
from noonday.model.change import Change
from noonday.model.execution import KEPT_DISPATCHES, OPEN, WATCH_OVERLAP, Cause, Execution, Outcome, State
from noonday.model.firing import LANES, Entry, Fire, Kind, plan_fire
from noonday.model.ids import ExecutionId, JobId, WorkerId
from noonday.model.job import Job, JobState, rule_of, spread_ms
from noonday.model.message import Report
from noonday.model.recording import SettleResult
from noonday.model.slots import SlotKey, capped_by, slot_key
from noonday.model.snapshot import Snapshot
from noonday.transitions.editing import Edit
from noonday.transitions.fire_batch import FireBatch, is_constrained, open_to_read
from noonday.transitions.inputs import Inputs, Limit, RetryPolicySources
from noonday.transitions.rows import TimelineRow, watch_of
from noonday.transitions.settling import Settlement, match_reports, split_successes, unreported
from noonday.transitions.write_set import WriteSet
from tests.support.factories import NOW_MS


@dataclass(frozen=True)
class MemoryRows:
    """The rows of a store. A transition leaves them as they are and returns new ones."""

    jobs: Mapping[JobId, Job]
    executions: Mapping[ExecutionId, Execution]
    timeline: Mapping[str, TimelineRow] = field(default_factory=dict)
    caps: Mapping[SlotKey, int] = field(default_factory=dict)

    @classmethod
    def of(
        cls, jobs: Iterable[Job], executions: Iterable[Execution] = (), caps: Mapping[SlotKey, int] | None = None
    ) -> "MemoryRows":
        """Return rows of jobs and executions, with the timeline that belongs to them."""
        store = cls({job.id: job for job in jobs}, {row.id: row for row in executions}, {}, caps or {})
        writes = WriteSet(Inputs(), NOW_MS)
        for row in store.executions.values():
            if row.waits_until_ms is not None:
                writes.wait(row, row.waits_until_ms)
            elif row.suspended_until_ms is not None:
                writes.suspend(row, row.suspended_until_ms)
        for job in store.jobs.values():
            fire = _first_fire(job, has_fired=bool(store.executions_of(job.id)))
            if fire is not None:
                writes.put_fire(job, fire)
        return with_fields(store, timeline=store._timeline_after(writes))

    # -- transitions ---------------------------------------------------------------------------------------------------

    def settle(self, reports: Sequence[Report]) -> "Settling":
        """Settle a batch of reports, the successes first, as drivers do."""
        successes, others = split_successes(reports)
        return self._settle(match_reports(self.executions.values(), successes + others))

    def lose(self, worker: WorkerId) -> "Settling":
        """Settle what a lost worker ran."""
        ran = [row for row in self.executions.values() if row.state is State.RUNNING and row.worker_id == worker]
        return self._settle(unreported(ran, Outcome.LOST))

    def requeue_orphans(self) -> "Settling":
        """Settle all dispatches of which no worker reported anything."""
        return self._settle(unreported([row for row in self.executions.values() if row.awaits_start], Outcome.ORPHANED))

    def _settle(self, settlement: Settlement) -> "Settling":
        writes, settled = settlement.settle(self._inputs_of(settlement), NOW_MS)
        return Settling(self, self._after(writes), writes, settled)

    def fire(self, requests: Sequence[FireRequest]) -> "Firing":
        """Fire requests whose entries are on the timeline and due."""
        batch = FireBatch(self._inputs_of_fires(requests), self._owners(requests), NOW_MS)
        batch.fire(requests)
        return Firing(self, self._after(batch.writes), batch.writes, batch, tuple(requests))

    def edit(self, job: JobId, decide: Callable[[Snapshot], Change]) -> "Transition":
        """Apply a decision on one job. Everything of the job was read."""
        before = Snapshot(self.jobs[job], self.fire_of(job), tuple(self.executions_of(job)))
        change = decide(before)
        edit = Edit(before, change, {new.id for new in change.executions if new.id in self.executions})
        after = with_fields(self, jobs={**self.jobs, job: edit.job})._after(edit.writes)
        watched = {
            row.id: msgspec.structs.replace(row, watch=row.watch | edit.added_watch) for row in after.open_of(job)
        }
        return Transition(self, with_fields(after, executions={**after.executions, **watched}), edit.writes)

    def requests(self) -> list[FireRequest]:
        """Return a request for each row of the timeline that is due."""
        return [self._request(row) for row in self.timeline.values() if row.due_ms is not None and row.due_ms <= NOW_MS]

    def _request(self, row: TimelineRow) -> FireRequest:
        entry = entry_of(row)
        if not entry.recurring:
            return FireRequest(entry)
        plan = plan_fire(self.jobs[JobId(entry.key)], entry.nominal_ms, NOW_MS, row.runs_left)
        return FireRequest(entry, plan, row.runs_left)

    # -- what they show ------------------------------------------------------------------------------------------------

    def executions_of(self, job: JobId) -> list[Execution]:
        return sorted((row for row in self.executions.values() if row.job_id == job), key=lambda row: row.id)

    def open_of(self, job: JobId) -> list[Execution]:
        return [row for row in self.executions_of(job) if row.state in OPEN]

    def fire_of(self, job: JobId) -> Fire | None:
        row = self.timeline.get(job)
        return Fire(row.nominal_ms, row.due_ms, row.runs_left) if row else None

    @property
    def used_slots(self) -> Counter[SlotKey]:
        """How many open executions occupy each slot, counted one by one."""
        open_ = (row for row in self.executions.values() if row.state in OPEN)
        return Counter(slot_key(row.tenant, name) for row in open_ for name in row.slots)

    def places_of(self, execution: Execution) -> list[str]:
        """Return where an execution waits or is: in exactly one place if it is open, and in none if it has ended."""
        places = {
            "dispatched": execution.fired_ms is not None and execution.state in OPEN,
            "on the timeline": execution.id in self.timeline,
            "buffered": bool(execution.buffered),
        }
        return [place for place, holds in places.items() if holds]

    # -- reading and writing -------------------------------------------------------------------------------------------

    def _inputs_of(self, settlement: Settlement) -> Inputs:
        jobs = [self.jobs[job] for _, job in settlement.revoked_jobs]
        return Inputs(
            open_=self._turns(settlement.open_to_read),
            policies={id_: self._policies_of(id_).policy for id_ in settlement.failed},
            jobs=jobs,
            fires={job.id: fire for job in jobs if (fire := self.fire_of(job.id))},
            paused=[job for _, job in settlement.deciding_jobs if self.jobs[job].state is JobState.PAUSED],
        )

    def _policies_of(self, execution: ExecutionId) -> RetryPolicySources:
        return RetryPolicySources(self.jobs[self.executions[execution].job_id].spec.retry_policy, None, None)

    def _inputs_of_fires(self, requests: Sequence[FireRequest]) -> Inputs:
        constrained = [request.entry for request in requests if is_constrained(request)]
        owners = self._owners(requests)
        fires = {JobId(entry.key) for entry in constrained if entry.kind == Kind.FIRE}
        limits = {job: limit_of(self.jobs[job]) for job in fires.union(job for _, job in owners.values())}
        return Inputs(
            open_=self._turns(open_to_read(limits, fires)),
            used=dict(self.used_slots),
            caps=dict(self.caps),
            limits=limits,
            heads=self.fronts(),
            kept={key: self.executions[ExecutionId(key)].slots for key in owners},
        )

    def fronts(self) -> dict[tuple[str, str], str]:
        """Return the key of the earliest fire of each ordering key, by (tenant, ordering key)."""
        rows = [row for row in self.timeline.values() if row.ordering_key and row.due_ms is not None]
        rows.sort(key=lambda row: (row.due_ms, row.key), reverse=True)
        return {(row.tenant, str(row.ordering_key)): row.key for row in rows}

    def _owners(self, requests: Sequence[FireRequest]) -> dict[str, tuple[str, JobId]]:
        dispatches = [r.entry for r in requests if is_constrained(r) and r.entry.kind == Kind.DISPATCH]
        return {each.key: (each.tenant, self.executions[ExecutionId(each.key)].job_id) for each in dispatches}

    def _turns(self, most: Mapping[JobId, int]) -> list[Execution]:
        """Return the first open executions of some jobs that are watched, up to a limit of each, and the first buffered one."""
        turns: list[Execution] = []
        for job, count in most.items():
            watched = [row for row in self.open_of(job) if row.watch & WATCH_OVERLAP]
            chosen = [row for row in watched if not row.buffered][:count] + [row for row in watched if row.buffered][:1]
            turns += sorted(chosen, key=lambda row: row.id)
        return turns

    def _after(self, writes: WriteSet) -> "MemoryRows":
        executions = dict(self.executions)
        for new in writes.new.values():
            executions.setdefault(new.id, self._new_row(writes, new.id))
        for each in writes.redispatched:
            was = executions[ExecutionId(each.id)]
            executions[was.id] = msgspec.structs.replace(was, fired_ms=writes.now_ms, slots=each.slots or ())
        for now in writes.settled:
            kept = executions[now.id].transitions
            executions[now.id] = msgspec.structs.replace(now, transitions=kept + now.transitions)
        for revoked in writes.revoked:
            executions[revoked.id] = msgspec.structs.replace(executions[revoked.id], revocation=revoked.reason)
        return with_fields(self, executions=executions, timeline=self._timeline_after(writes))

    def _new_row(self, writes: WriteSet, id_: ExecutionId) -> Execution:
        new = writes.new[id_]
        job = self.jobs[new.job_id]
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
            cause=Cause(new.cause),
            pool=job.spec.target.pool,
            handler=job.spec.target.handler,
            lane=LANES.index(job.spec.priority),
            created_ms=writes.now_ms,
            fired_ms=new.fired_ms,
            buffered=new.buffered,
            watch=watch_of(job.spec),
            slots=new.slots or (),
            transitions=f"[0,{writes.now_ms}]",
        )

    def _timeline_after(self, writes: WriteSet) -> dict[str, TimelineRow]:
        timeline = dict(self.timeline)
        for returned in writes.returned_runs:
            row = timeline[returned.job_id]
            timeline[row.key] = msgspec.structs.replace(row, runs_left=(row.runs_left or 0) + returned.count)
        for key in writes.dropped:
            timeline.pop(key, None)
        return timeline | writes.timeline


@dataclass(frozen=True)
class Transition:
    """A transition: the rows before it, the rows after it, and what it wrote."""

    before: MemoryRows
    after: MemoryRows
    writes: WriteSet

    @property
    def changed(self) -> list[tuple[Execution, Execution]]:
        """Return each changed execution before and after."""
        return [(self.before.executions[now.id], self.after.executions[now.id]) for now in self.writes.settled]

    @property
    def slot_changes(self) -> dict[SlotKey, int]:
        """Return the changes of slots that are none of 0, as the write set counts them."""
        return {key: more for key, more in self.writes.slots.items() if more}

    def appended(self, execution: ExecutionId) -> list[State]:
        """Return the states that the transition appended to those of an execution."""
        (text,) = (now.transitions for now in self.writes.settled if now.id == execution)
        return [State(each[0]) for each in json.loads(f"[{text.removeprefix(',')}]")]


@dataclass(frozen=True)
class Settling(Transition):
    settled: SettleResult


@dataclass(frozen=True)
class Firing(Transition):
    batch: FireBatch
    requests: tuple[FireRequest, ...]


def _first_fire(job: Job, *, has_fired: bool) -> Fire | None:
    """Return the fire row of a job: its first time after its anchor. None for a one-shot that has fired."""
    if job.spec.one_shot and has_fired:
        return None
    rule = rule_of(job.spec, job.anchor_ms)
    nominal_ms = rule.next_after(job.anchor_ms - job.spec.one_shot)
    assert nominal_ms is not None
    due_ms = None if job.state is JobState.PAUSED else nominal_ms + spread_ms(job.spec, job.id)
    return Fire(nominal_ms, due_ms, job.spec.max_runs)


def limit_of(job: Job) -> Limit:
    """Return the overlap rule and the key of a job, as a store reads them from its definition."""
    concurrency = job.spec.concurrency
    if concurrency is None:
        return Limit(job.spec.overlap)
    return Limit(job.spec.overlap, concurrency.key, concurrency.limit, concurrency.ordered)


def entry_of(row: TimelineRow) -> Entry:
    """Return the entry of a timeline row that has a due time."""
    return Entry(**{name: getattr(row, name) for name in Entry.__struct_fields__})


def caps_on(rows: Iterable[Job]) -> list[SlotKey]:
    """Return the slots that may cap these jobs."""
    return sorted({key for job in rows for key in capped_by(job.tenant, job.spec.target.pool)})


def keeps_transitions(execution: Execution) -> bool:
    """Whether all transitions of an execution are stored, not only those of its end."""
    return execution.dispatch <= KEPT_DISPATCHES


def is_nothing(writes: WriteSet) -> bool:
    """Whether a write set writes no row. Reports that are only counted are none."""
    return not any(
        (
            *(writes.new, writes.settled, writes.timeline, writes.dropped, writes.decisions, writes.dead_letters),
            *(writes.incidents, writes.revoked, writes.redispatched, writes.returned_runs, writes.touched),
            any(writes.slots.values()),
        )
    )
