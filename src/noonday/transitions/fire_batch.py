"""Fires: from due entries to executions, decisions and the next time of a schedule, or to the limit that blocks an entry."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from sys import maxsize

import msgspec

from noonday.model.alert import GIVEN_UP
from noonday.model.batch import Blocked, FireRequest
from noonday.model.execution import WATCH_OVERLAP, Cause, Execution, State, is_cancel
from noonday.model.firing import Decision, DecisionOutcome, Entry, FirePlan, Kind, Start, decide_overlap
from noonday.model.ids import ExecutionId, JobId, TenantId, execution_id
from noonday.model.job import Overlap, text_of
from noonday.model.pool import NOTICES_POOL
from noonday.model.slots import SlotKey, capped_by, slot_key
from noonday.transitions.inputs import NO_LIMIT, Inputs, Limit
from noonday.transitions.rows import NewIncident, Redispatch
from noonday.transitions.write_set import WriteSet

ALL = 2**31 - 1
"""Reads every open execution of a job: the largest 32-bit integer, as a limit."""
UNWANTED = frozenset({DecisionOutcome.MISSED, DecisionOutcome.EXPIRED, DecisionOutcome.ERROR})
"""Decisions that no user chose, so each of them is an incident."""


def is_simple(request: FireRequest) -> bool:
    """Return whether an entry is a one-shot without overlap rule or key. (A cap may still block it.)"""
    entry = request.entry
    return bool(entry.early) and not entry.recurring and entry.kind == Kind.FIRE and request.plan is None


def is_constrained(request: FireRequest) -> bool:
    """Return whether the result depends on other executions or on a concurrency key. (A cap may block any entry.)"""
    return not request.entry.early


def open_to_read(limits: Mapping[JobId, Limit], jobs: Iterable[JobId]) -> dict[JobId, int]:
    """Return how many open executions of each job to read, besides the first buffered one.

    One is enough to know that some execution is open. CANCEL_OTHER ends all of them, so it needs all.
    """
    return {job: ALL if limits.get(job, NO_LIMIT).overlap == Overlap.CANCEL_OTHER else 1 for job in jobs}


class FireBatch:
    """Fires entries that the driver has found unchanged on the timeline."""

    def __init__(self, inputs: Inputs, job_of: dict[str, tuple[str, JobId]], now_ms: int) -> None:
        """`job_of`: (tenant, job) of each execution that a constrained dispatch entry names."""
        self.inputs = inputs
        self.writes = WriteSet(inputs, now_ms)
        self.members: dict[ExecutionId, int] = {}
        """The due time of each execution that is dispatched in this batch."""
        self.blocked: list[Blocked] = []
        self.decided: Counter[str] = Counter()
        self.fired: list[FireRequest] = []
        """Requests that changed something. The others are blocked or go back to the hot index."""
        self._job_of = job_of
        self._has_open = {job for job, rows in inputs.open.items() if rows}
        self._has_buffered = {job for job, rows in inputs.open.items() if any(e.buffered for e in rows)}
        self._others = {job: list(rows) for job, rows in inputs.open.items()}
        """Executions that were open before this batch, of jobs whose CANCEL_OTHER has not been applied yet."""
        self._decided_jobs: set[JobId] = set()
        self._slots_of: dict[str, list[SlotKey]] = {}
        """Slots that each entry takes or frees, by the key of the entry."""

    def keys_with(self, slots: Collection[SlotKey]) -> set[str]:
        """Return the keys of entries that take or free one of these slots."""
        return {key for key, own in self._slots_of.items() if not set(slots).isdisjoint(own)}

    def fire(self, requests: Iterable[FireRequest]) -> None:
        if self.inputs.heads:
            # Existing executions go before new ones, so that a resent one does not wait for all fires of its ordering key.
            requests = sorted(requests, key=lambda request: request.entry.kind == Kind.FIRE)
        for request in requests:
            if not is_constrained(request):
                self._fire_one(request, constrained=False)
            elif self._is_first_of_job(request.entry):
                self._fire_one(request, constrained=True)
            else:
                self.writes.entries.append(request.entry)
        self.writes.finish()

    def _is_first_of_job(self, entry: Entry) -> bool:
        """Return whether no entry of the same job came before in this batch.

        The next one is decided in a later batch, from what this one wrote, such as the end of other executions.
        """
        _, job_id = self.owner_of(entry)
        first = job_id not in self._decided_jobs
        self._decided_jobs.add(job_id)
        return first

    def has_read(self, entry: Entry) -> bool:
        """Return whether the job of a constrained entry was read. If not, its execution is deleted and the entry is stale."""
        return entry.kind == Kind.FIRE or entry.key in self._job_of

    def owner_of(self, entry: Entry) -> tuple[str, JobId]:
        return (entry.tenant, JobId(entry.key)) if entry.kind == Kind.FIRE else self._job_of[entry.key]

    def _fire_one(self, request: FireRequest, *, constrained: bool) -> None:
        entry = request.entry
        if entry.kind == Kind.DISPATCH:
            self._redispatch(request, constrained)
            return
        plan = request.plan or FirePlan((entry.nominal_ms,))
        if plan.fires and (constrained or self.inputs.caps):
            limit = self.inputs.limit_of(JobId(entry.key)) if constrained else NO_LIMIT
            if not self._is_in_front(entry, limit) or not self._has_room(entry, limit):
                return
            plan = self._trim(entry, plan, limit)
        decisions = list(plan.decisions)
        started = 0
        for nominal_ms in plan.fires:
            skipped = self._start(entry, nominal_ms, constrained)
            if skipped:
                decisions.append(skipped)
            else:
                started += 1
        self._decide(entry, decisions)
        self._advance(request, plan, None if request.runs_left is None else request.runs_left - started)
        self.fired.append(request)

    def _redispatch(self, request: FireRequest, constrained: bool) -> None:
        entry, limit = request.entry, NO_LIMIT
        if constrained:
            limit = self.inputs.limit_of(self.owner_of(entry)[1])
        kept = freed = self.inputs.kept.get(entry.key, ())
        if limit.slot in kept:
            limit, freed = NO_LIMIT, ()
        else:
            # The job's ordering key changed after the execution was dispatched.
            kept = ()
        if not self._has_room(entry, limit):
            return
        if constrained:
            # A decision that read the execution while it waited would close it and not free its slots: make it stale.
            self.writes.touched.add(self.owner_of(entry))
        if freed:
            self._slots_of.setdefault(entry.key, []).extend(slot_key(entry.tenant, name) for name in freed)
        self.writes.free_slots(entry.tenant, freed)
        self.writes.redispatched.append(Redispatch(entry.key, (*kept, *self._take_slots(entry, limit)) or None))
        self.members[ExecutionId(entry.key)] = entry.due_ms
        self.writes.drop([entry.key])
        self.fired.append(request)

    def _is_in_front(self, entry: Entry, limit: Limit) -> bool:
        """Return whether a fire is the earliest of its ordering key and is not buffered behind an execution of its own job."""
        if limit.ordering_key is None:
            return True
        is_buffered = limit.overlap in (Overlap.BUFFER_ONE, Overlap.BUFFER_ALL) and entry.key in self._has_open
        if self.inputs.heads.get((entry.tenant, limit.ordering_key)) == entry.key and not is_buffered:
            return True
        self._block(entry, limit, f"it waits for its turn under ordering key {limit.key!r}")
        return False

    def _has_room(self, entry: Entry, limit: Limit) -> bool:
        """Return whether every limit that an entry counts against has a free slot.

        If its concurrency key is full, the entry is blocked with a reason, and others behind it may fire. If a cap is reached,
        the entry goes back to the hot index, where all entries that count against the same cap wait.
        """
        if (
            limit.slot
            and limit.limit is not None
            and self.inputs.used.get((entry.tenant, limit.slot), 0) >= limit.limit
        ):
            self._block(entry, limit, f"concurrency key {limit.key!r} is at its limit of {limit.limit}")
            return False
        if self._room(entry) <= 0:
            self.writes.entries.append(entry)
            return False
        return True

    def _block(self, entry: Entry, limit: Limit, reason: str) -> None:
        assert limit.slot is not None
        self.blocked.append(Blocked(entry, reason, (entry.tenant, limit.slot), limit.limit or 1))

    def _room(self, entry: Entry) -> int:
        """Return how many more dispatches the caps allow."""
        caps, used = self.inputs.caps, self.inputs.used
        if not caps:
            return maxsize
        return min(
            caps[key] - used.get(key, 0) if key in caps else maxsize for key in capped_by(entry.tenant, entry.pool)
        )

    def _trim(self, entry: Entry, plan: FirePlan, limit: Limit) -> FirePlan:
        """Limit the catch-up fires of a plan to the free slots, or to one if the job has a concurrency key.

        With an ordering key, a plan that starts at a later time than its entry fires nothing: the entry moves to that time and
        takes its position in the order.
        """
        if limit.ordering_key and plan.fires[0] != entry.nominal_ms:
            return _first_fires(plan, 0)
        room = 1 if limit.key else self._room(entry)
        return plan if len(plan.fires) <= room else _first_fires(plan, room)

    def _take_slots(self, entry: Entry, limit: Limit) -> tuple[str, ...]:
        """Take one slot of each limit that a dispatched execution counts against, and return their names."""
        taken = [(entry.tenant, limit.slot)] if limit.slot else []
        if self.inputs.caps:
            taken += [key for key in capped_by(entry.tenant, entry.pool) if key in self.inputs.caps]
        if taken:
            self._slots_of.setdefault(entry.key, []).extend(taken)
        for key in taken:
            self.inputs.used[key] = self.inputs.used.get(key, 0) + 1
            self.writes.slots[key] += 1
        return tuple(name for _, name in taken)

    def _start(self, entry: Entry, nominal_ms: int, constrained: bool) -> Decision | None:
        """Create the execution of one occurrence. Returns a SKIPPED decision instead if the overlap rule forbids it."""
        job_id = JobId(entry.key)
        due_ms = nominal_ms + entry.due_ms - entry.nominal_ms
        execution = execution_id(job_id, nominal_ms)
        if not constrained:
            self.writes.add_execution(
                execution,
                entry.tenant,
                job_id,
                nominal_ms,
                due_ms,
                fired_ms=self.writes.now_ms,
                slots=self._take_slots(entry, NO_LIMIT),
            )
            self.members[execution] = due_ms
            return None
        start = self._overlap(job_id)
        if start is Start.SKIP:
            reason = f"overlap {self.inputs.limit_of(job_id).overlap}: an earlier execution is open"
            return Decision(job_id, nominal_ms, nominal_ms, 1, DecisionOutcome.SKIPPED, reason)
        now = start is Start.NOW
        self.writes.add_execution(
            execution,
            entry.tenant,
            job_id,
            nominal_ms,
            due_ms,
            fired_ms=self.writes.now_ms if now else None,
            buffered=int(not now),
            slots=self._take_slots(entry, self.inputs.limit_of(job_id)) if now else (),
        )
        self.writes.touched.add((entry.tenant, job_id))
        self.writes.note_open(_as_row(entry, execution, nominal_ms, due_ms, buffered=not now))
        self._has_open.add(job_id)
        if now:
            self.members[execution] = due_ms
        else:
            self._has_buffered.add(job_id)
        return None

    def _overlap(self, job_id: JobId) -> Start:
        limit = self.inputs.limit_of(job_id)
        start, cancel = decide_overlap(
            msgspec.convert(limit.overlap or Overlap.ALLOW, Overlap),
            job_id in self._has_open,
            job_id in self._has_buffered,
        )
        if cancel:
            for other in self._others.pop(job_id, ()):
                if not other.buffered and not is_cancel(other.revocation):
                    self._cancel(other)
        return start

    def _cancel(self, execution: Execution) -> None:
        reason = f"overlap {Overlap.CANCEL_OTHER}"
        if execution.fired_ms is None:
            self.writes.close(execution, State.CANCELLED, reason)
        else:
            self.writes.revoke(execution, reason)
            self.inputs.note(msgspec.structs.replace(execution, revocation=reason), is_open=True)

    def _decide(self, entry: Entry, decisions: Sequence[Decision]) -> None:
        for decision in decisions:
            self.decided[decision.outcome] += decision.count
            if decision.outcome in UNWANTED and entry.pool != NOTICES_POOL:
                self.writes.incidents.append(_incident(entry, decision))
        self.writes.decide(decisions)

    def _advance(self, request: FireRequest, plan: FirePlan, runs_left: int | None) -> None:
        """Advance the schedule to its next time, or remove its due time or its row."""
        entry = request.entry
        ordering_key = self.inputs.limit_of(JobId(entry.key)).ordering_key
        if plan.next_ms is not None and runs_left != 0:
            spread = entry.due_ms - entry.nominal_ms
            following = msgspec.structs.replace(entry, nominal_ms=plan.next_ms, due_ms=plan.next_ms + spread)
            self.writes.put(following, following.due_ms, runs_left, ordering_key)
        elif request.plan is None or not entry.recurring:
            self.writes.drop([entry.key])
        else:
            decided_ms = max((*plan.fires, *(d.to_ms for d in plan.decisions), entry.nominal_ms))
            self.writes.put(msgspec.structs.replace(entry, nominal_ms=decided_ms + 1), None, runs_left, ordering_key)


def _first_fires(plan: FirePlan, count: int) -> FirePlan:
    """Return the beginning of a plan. What it decides from the next fire on is decided with that fire."""
    next_ms = plan.fires[count]
    return FirePlan(plan.fires[:count], tuple(each for each in plan.decisions if each.to_ms < next_ms), next_ms)


def _incident(entry: Entry, decision: Decision) -> NewIncident:
    """Build the incident of a decision. It names the execution that the last occurrence would have had."""
    missing = execution_id(decision.job_id, decision.to_ms)
    return NewIncident(GIVEN_UP, entry.tenant, missing, decision.job_id, _incident_text(decision))


def _incident_text(decision: Decision) -> str:
    when = text_of(decision.from_ms)
    if decision.count > 1:
        when = f"{decision.count} times from {when} to {text_of(decision.to_ms)}"
    return f"{decision.outcome}: {when}: {decision.reason}"


def _as_row(entry: Entry, execution: ExecutionId, nominal_ms: int, due_ms: int, *, buffered: bool) -> Execution:
    """Build the row of a new execution, with the fields that the overlap rule reads."""
    return Execution(
        id=execution,
        job_id=JobId(entry.key),
        tenant=TenantId(entry.tenant),
        nominal_ms=nominal_ms,
        due_ms=due_ms,
        state=State.PENDING,
        attempt=1,
        dispatch=1,
        revision=entry.number,
        cause=Cause.SCHEDULE,
        pool=entry.pool,
        handler="",
        lane=entry.lane,
        created_ms=due_ms,
        buffered=int(buffered),
        watch=WATCH_OVERLAP,
    )
