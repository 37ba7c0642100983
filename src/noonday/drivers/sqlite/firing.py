"""The timeline in SQLite."""

import sqlite3
from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from noonday.drivers.sqlite.connection import Database
from noonday.drivers.sqlite.ledger import (
    Ledger,
    Limit,
    SlotKey,
    as_json,
    executions_of,
    limits_of,
    move,
    open_executions,
    rows_of,
    set_slots,
    slots_used,
)
from noonday.drivers.sqlite.queries import load
from noonday.drivers.sqlite.settling import settle_rows
from noonday.model.execution import Outcome, State, is_cancel
from noonday.model.firing import (
    Decided,
    Decision,
    Entry,
    FirePlan,
    Kind,
    Start,
    decide_overlap,
    fire_entry,
)
from noonday.model.ids import ExecutionId, InstanceId, JobId, execution_id, partition_of
from noonday.model.job import Job, Overlap, rule_of
from noonday.model.message import Dispatch
from noonday.ports.firing import Batch, Fired, Firing, Held, Mark, Owner, Planned, Shot
from noonday.ports.jobs import Execution, Fire

SQL = load("firing")
_entries = msgspec.json.Decoder(list[Entry])
_plans = msgspec.json.Decoder(list[tuple[Job, int | None]])
_fires = msgspec.json.Decoder(list[tuple[Job, Fire]])
_dispatches = msgspec.json.Decoder(list[Dispatch])


class SqliteFiring(Firing):
    def __init__(self, database: Database, lead_ms: int) -> None:
        self._database = database
        self._lead_ms = lead_ms

    async def take_over(self, instance: InstanceId, partitions: Sequence[int]) -> Mapping[int, int]:
        def work(conn: sqlite3.Connection) -> Mapping[int, int]:
            conn.execute(SQL.take_over, (instance, as_json(list(partitions))))
            epochs = _epochs(conn)
            return {partition: epochs[partition] for partition in partitions}

        return await self._database.write(work)

    async def walk(self, after: Mark | None, until_ms: int, limit: int) -> list[Entry]:
        due_ms, key = after or (-(2**62), "")

        def work(conn: sqlite3.Connection) -> list[Entry]:
            return _entries.decode(conn.execute(SQL.walk, (due_ms, key, until_ms, limit)).fetchone()[0])

        return await self._database.read(work)

    async def plans(self, entries: Sequence[Entry]) -> dict[tuple[JobId, int], Planned]:
        wanted = as_json([(entry.tenant, entry.key) for entry in entries])
        answer = await self._database.read(lambda conn: conn.execute(SQL.plans, (wanted,)).fetchone()[0])
        return {(job.id, job.revision): Planned(job, runs_left) for job, runs_left in _plans.decode(answer)}

    async def fire(self, owner: Owner, firings: Sequence[Shot], now_ms: int) -> Fired:
        return await self._database.write(lambda conn: _Volley(conn, owner, now_ms, self._lead_ms).fire(firings))

    async def seal(self, batches: Sequence[int]) -> None:
        await self._database.write(lambda conn: conn.execute(SQL.seal, (as_json(list(batches)),)))

    async def unsealed(self, before_ms: int, limit: int) -> list[Batch]:
        rows = await self._database.read(lambda conn: rows_of(conn, SQL.unsealed, before_ms, limit))
        return [Batch(*row) for row in rows]

    async def dispatches_of(self, batch: Batch) -> list[Dispatch]:
        def work(conn: sqlite3.Connection) -> list[Dispatch]:
            row = conn.execute(SQL.batch_members, (batch.id,)).fetchone()
            return list(_with_pool_timeouts(conn, _dispatches_of(conn, row[0], batch.fired_ms))) if row else []

        return await self._database.read(work)

    async def cast_net(self, fired_before_ms: int, limit: int, now_ms: int) -> list[Entry]:
        def work(conn: sqlite3.Connection) -> list[Entry]:
            ledger = Ledger(conn, now_ms)
            for execution in executions_of(conn, SQL.adrift, fired_before_ms, limit):
                settle_rows(ledger, [(execution, Outcome.FORGOTTEN, None)])
            ledger.flush()
            return ledger.entries

        return await self._database.write(work)

    async def count_due(self, now_ms: int) -> dict[str, tuple[int, int]]:
        rows = await self._database.read(lambda conn: rows_of(conn, SQL.count_due, now_ms))
        return {pool: (count, oldest) for pool, count, oldest in rows}

    async def replan(self, version: str, limit: int, now_ms: int) -> int:
        return await self._database.write(lambda conn: _replan(conn, version, limit, now_ms))


class _Volley:
    """One fire: sorts the entries into those that may go, those that are stale, and those that are held."""

    def __init__(self, conn: sqlite3.Connection, owner: Owner, now_ms: int, lead_ms: int) -> None:
        self.conn = conn
        self.owner = owner
        self.now_ms = now_ms
        self.latest_due_ms = now_ms + lead_ms
        self.ledger = Ledger(conn, now_ms)
        self.members: list[tuple[ExecutionId, int]] = []
        """(execution, due) of what is handed out."""
        self.held: list[Held] = []
        self.decided: Counter[str] = Counter()
        self.handed_out_again: list[tuple[str, str | None]] = []
        self.refused = 0
        self.dispatches: list[Dispatch] = []
        self.plain_members: list[tuple[ExecutionId, int]] = []

    def fire(self, shots: Sequence[Shot]) -> Fired:
        epochs = _epochs(self.conn)
        lost = {p for p in {shot.entry.partition for shot in shots} if epochs[p] != self.owner.epochs.get(p)}
        owned = shots if not lost else [shot for shot in shots if shot.entry.partition not in lost]
        sound = self._drop_stale(self._fire_plain(owned))
        careful = [shot for shot, _ in sound if not shot.entry.staged]
        limits = _Limits(self.conn, careful) if careful else None
        for shot, runs_left in sound:
            if limits is None or shot.entry.staged:
                self._fire_one(shot, runs_left, None)
            elif limits.has_its_turn(shot.entry):
                self._fire_one(shot, runs_left, limits)
            else:
                self.ledger.entries.append(shot.entry)
        if limits:
            limits.write()
        return self._finish(tuple(sorted(lost)))

    def _fire_plain(self, shots: Sequence[Shot]) -> Sequence[Shot]:
        """One-shots that nothing can stand in the way of are fired at once, if not one of them is stale. Answers the rest."""
        plain = [shot.entry for shot in shots if _is_plain(shot)]
        if not plain:
            return shots
        rows = [(execution_id(JobId(e.key), e.nominal_ms), e.key, e.number, e.nominal_ms) for e in plain]
        named = as_json(rows)
        self.conn.execute("SAVEPOINT plain")
        moves = move(State.PENDING, self.now_ms)
        fired = self.conn.execute(SQL.fire_plain, (named, self.now_ms, moves, self.latest_due_ms)).rowcount
        if fired < len(rows):
            self.conn.execute("ROLLBACK TO plain")
            self.conn.execute("RELEASE plain")
            return shots
        self.conn.execute("RELEASE plain")
        answer = self.conn.execute(SQL.plain_dispatches, (named, self.now_ms)).fetchone()[0]
        self.dispatches += _dispatches.decode(answer)
        self.plain_members = [(row[0], entry.due_ms) for row, entry in zip(rows, plain, strict=True)]
        self.ledger.drop([entry.key for entry in plain])
        return [shot for shot in shots if not _is_plain(shot)]

    def _drop_stale(self, shots: Sequence[Shot]) -> list[tuple[Shot, int | None]]:
        """Compare each entry with the row that is on the timeline now."""
        rows = rows_of(self.conn, SQL.present, as_json([shot.entry.key for shot in shots]))
        present = {row[1]: row for row in rows}
        sound = []
        for shot in shots:
            entry, row = shot.entry, present.get(shot.entry.key)
            if row is None or row[0] is None:
                self.refused += 1
            elif row[3] != entry.number or row[4] != entry.nominal_ms or (entry.planned and shot.plan is None):
                self.refused += 1
                self.ledger.entries.append(Entry(*row[:11]))
            elif row[0] > self.latest_due_ms:
                self.ledger.entries.append(Entry(*row[:11]))
            else:
                sound.append((shot, row[11]))
                del present[entry.key]
        return sound

    def _fire_one(self, shot: Shot, runs_left: int | None, limits: "_Limits | None") -> None:
        entry = shot.entry
        if entry.kind == Kind.DISPATCH:
            self._hand_out_again(entry, limits)
            return
        plan = shot.plan or FirePlan((entry.nominal_ms,))
        if limits:
            plan, reason = limits.trim(entry, plan)
            if reason:
                self.held.append(Held(entry, reason))
                return
        decisions = list(plan.decisions)
        started = 0
        for nominal_ms in plan.fires:
            skipped = self._start(entry, nominal_ms, limits)
            if skipped:
                decisions.append(skipped)
            else:
                started += 1
        self._decide(decisions)
        self._advance(shot, plan, None if runs_left is None else runs_left - started)

    def _hand_out_again(self, entry: Entry, limits: "_Limits | None") -> None:
        slot = None
        if limits:
            slot, reason = limits.take_for_execution(entry)
            if reason:
                self.held.append(Held(entry, reason))
                return
        self.handed_out_again.append((entry.key, slot))
        self.members.append((ExecutionId(entry.key), entry.due_ms))
        self.ledger.drop([entry.key])

    def _start(self, entry: Entry, nominal_ms: int, limits: "_Limits | None") -> Decision | None:
        """Make the execution of one occurrence. Answers the decision instead, if an open one stands in its way."""
        job_id = JobId(entry.key)
        due_ms = nominal_ms + entry.due_ms - entry.nominal_ms
        execution = execution_id(job_id, nominal_ms)
        if limits is None:
            self.ledger.add_execution(execution, entry.tenant, job_id, nominal_ms, due_ms, fired_ms=self.now_ms)
            self.members.append((execution, due_ms))
            return None
        start, cancelled = limits.overlap(job_id)
        for other in cancelled:
            self._ask_to_end(other)
        if start is Start.SKIP:
            reason = f"overlap {limits.of(job_id).overlap}: an earlier execution is open"
            return Decision(job_id, nominal_ms, nominal_ms, 1, Decided.SKIPPED, reason)
        now = start is Start.NOW
        slot = limits.take(entry.tenant, job_id) if now else None
        self.ledger.add_execution(
            execution,
            entry.tenant,
            job_id,
            nominal_ms,
            due_ms,
            fired_ms=self.now_ms if now else None,
            buffered=int(not now),
            slot=slot,
        )
        limits.opened(job_id, buffered=not now)
        if now:
            self.members.append((execution, due_ms))
        return None

    def _ask_to_end(self, execution: Execution) -> None:
        reason = f"overlap {Overlap.CANCEL_OTHER}"
        if execution.fired_ms is None:
            self.ledger.close(execution, State.CANCELLED, reason)
        else:
            self.conn.execute(SQL.wish, (reason, execution.id))
            self.ledger.flags.append((execution.pool, execution.id, execution.dispatch, reason))

    def _decide(self, decisions: Sequence[Decision]) -> None:
        for decision in decisions:
            self.decided[decision.outcome] += decision.count
        self.ledger.decide(decisions)

    def _advance(self, shot: Shot, plan: FirePlan, runs_left: int | None) -> None:
        """Move the schedule to its next time, or take it off the timeline."""
        entry = shot.entry
        if plan.next_ms is not None and runs_left != 0:
            spread = entry.due_ms - entry.nominal_ms
            following = msgspec.structs.replace(entry, nominal_ms=plan.next_ms, due_ms=plan.next_ms + spread)
            self.ledger.put(following, following.due_ms, runs_left)
        elif shot.plan is None or not entry.planned:
            self.ledger.drop([entry.key])
        else:
            decided_ms = max((*plan.fires, *(d.to_ms for d in plan.decisions), entry.nominal_ms))
            self.ledger.put(msgspec.structs.replace(entry, nominal_ms=decided_ms + 1), None, runs_left)

    def _finish(self, lost: tuple[int, ...]) -> Fired:
        if self.handed_out_again:
            self.conn.execute(SQL.hand_out, (as_json(self.handed_out_again), self.now_ms))
        self.ledger.flush()
        batch = None
        if self.members:
            self.dispatches += _dispatches_of(self.conn, as_json(self.members), self.now_ms)
        if self.dispatches:
            members = as_json([*self.members, *self.plain_members])
            batch = self.conn.execute(SQL.add_batch, (self.owner.instance, self.now_ms, members)).lastrowid
        return Fired(
            batch=batch,
            dispatches=tuple(_with_pool_timeouts(self.conn, self.dispatches)),
            entries=tuple(self.ledger.entries),
            flags=tuple(self.ledger.flags),
            refused=self.refused,
            lost=lost,
            held=tuple(self.held),
            decided=dict(self.decided),
        )


class _Limits:
    """What overlap and concurrency keys allow the careful entries of one volley."""

    def __init__(self, conn: sqlite3.Connection, shots: Sequence[Shot]) -> None:
        self.conn = conn
        fires = {(s.entry.tenant, JobId(s.entry.key)) for s in shots if s.entry.kind == Kind.FIRE}
        again = [s.entry.key for s in shots if s.entry.kind == Kind.DISPATCH]
        self.job_of = {
            x: (tenant, JobId(job)) for x, tenant, job in rows_of(conn, SQL.jobs_of_executions, as_json(again))
        }
        self.limits = limits_of(conn, fires | set(self.job_of.values()))
        self.open = open_executions(conn, [job for _, job in fires])
        self.open_count = {job: len(executions) for job, executions in self.open.items()}
        self.buffered = {job: sum(e.buffered for e in executions) for job, executions in self.open.items()}
        tenants = dict({job: tenant for tenant, job in fires} | {job: tenant for tenant, job in self.job_of.values()})
        keys = {(tenants[JobId(job)], limit.key) for job, limit in self.limits.items() if limit.key}
        self.used: dict[SlotKey, int] = slots_used(conn, keys) if keys else {}
        self.changed: set[SlotKey] = set()
        self.decided: set[JobId] = set()

    def has_its_turn(self, entry: Entry) -> bool:
        """One entry of a job at a time: what it decides (to cancel the others, say) is what the next one goes by."""
        job_id = JobId(entry.key) if entry.kind == Kind.FIRE else self.job_of[entry.key][1]
        first = job_id not in self.decided
        self.decided.add(job_id)
        return first

    def of(self, job_id: JobId) -> Limit:
        return self.limits.get(job_id) or Limit(Overlap.ALLOW, None, None)

    def trim(self, entry: Entry, plan: FirePlan) -> tuple[FirePlan, str | None]:
        """With a concurrency key one occurrence fires a turn, and none while the key is full: then the reason."""
        limit = self.of(JobId(entry.key))
        if not limit.key or not plan.fires:
            return plan, None
        reason = self._full(entry.tenant, limit)
        if len(plan.fires) > 1:
            plan = FirePlan(plan.fires[:1], plan.decisions, plan.fires[1])
        return plan, reason

    def take(self, tenant: str, job_id: JobId) -> str | None:
        limit = self.of(job_id)
        if limit.key:
            slot = (tenant, limit.key)
            self.used[slot] = self.used.get(slot, 0) + 1
            self.changed.add(slot)
        return limit.key

    def take_for_execution(self, entry: Entry) -> tuple[str | None, str | None]:
        tenant, job_id = self.job_of[entry.key]
        reason = self._full(tenant, self.of(job_id))
        return (None, reason) if reason else (self.take(tenant, job_id), None)

    def overlap(self, job_id: JobId) -> tuple[Start, list[Execution]]:
        start, cancel = decide_overlap(
            self.of(job_id).overlap, self.open_count.get(job_id, 0), self.buffered.get(job_id, 0)
        )
        others = self.open.pop(job_id, []) if cancel else []
        return start, [e for e in others if not e.buffered and not is_cancel(e.cancel)]

    def opened(self, job_id: JobId, *, buffered: bool) -> None:
        self.open_count[job_id] = self.open_count.get(job_id, 0) + 1
        self.buffered[job_id] = self.buffered.get(job_id, 0) + buffered

    def write(self) -> None:
        set_slots(self.conn, {slot: self.used[slot] for slot in self.changed})

    def _full(self, tenant: str, limit: Limit) -> str | None:
        if limit.key and limit.limit is not None and self.used.get((tenant, limit.key), 0) >= limit.limit:
            return f"concurrency key {limit.key!r} is at its limit of {limit.limit}"
        return None


def _is_plain(shot: Shot) -> bool:
    entry = shot.entry
    return bool(entry.staged) and not entry.planned and entry.kind == Kind.FIRE and shot.plan is None


def _with_pool_timeouts(conn: sqlite3.Connection, dispatches: Sequence[Dispatch]) -> Sequence[Dispatch]:
    timeouts = dict(rows_of(conn, SQL.pool_timeouts))
    if not timeouts:
        return dispatches
    return [msgspec.structs.replace(d, pool_timeout_sec=timeouts.get(d.pool)) for d in dispatches]


def _epochs(conn: sqlite3.Connection) -> dict[int, int]:
    return dict(rows_of(conn, SQL.epochs))


def _dispatches_of(conn: sqlite3.Connection, members: str, fired_ms: int) -> list[Dispatch]:
    return _dispatches.decode(conn.execute(SQL.dispatches, (members, fired_ms)).fetchone()[0])


def _replan(conn: sqlite3.Connection, version: str, limit: int, now_ms: int) -> int:
    """One page of a recomputation of all cron schedules, by key; the mark survives a restart."""
    done = conn.execute(SQL.zone_data).fetchone()
    if done is not None and done[0] == version:
        return 0
    mark = conn.execute(SQL.replan_mark).fetchone()
    seen_version, _, after = mark[0].partition("\n") if mark else ("", "", "")
    page = conn.execute(SQL.zoned_fires, (after if seen_version == version else "", limit)).fetchone()[0]
    rows = _fires.decode(page)
    ledger = Ledger(conn, now_ms)
    for job, fire in rows:
        _replan_one(ledger, job, fire, now_ms)
    ledger.flush()
    if len(rows) < limit:
        conn.execute(SQL.set_zone_data, (version,))
    else:
        conn.execute(SQL.set_replan_mark, (f"{version}\n{rows[-1][0].id}",))
    return len(rows)


def _replan_one(ledger: Ledger, job: Job, fire: Fire, now_ms: int) -> None:
    if fire.due_ms is None or job.spec.one_shot or fire.nominal_ms <= now_ms:
        return
    rule = rule_of(job.spec, job.anchor_ms)
    following = rule.next_after(now_ms)
    while following is not None and following < fire.nominal_ms and _was_fired(ledger.conn, job.id, following):
        following = rule.next_after(following)
    if following is not None and following != fire.nominal_ms:
        entry = fire_entry(job, following, partition_of(job.id))
        ledger.put(entry, entry.due_ms, fire.runs_left)


def _was_fired(conn: sqlite3.Connection, job_id: JobId, nominal_ms: int) -> bool:
    """A staged occurrence is fired a moment before its time."""
    return bool(rows_of(conn, SQL.jobs_of_executions, as_json([execution_id(job_id, nominal_ms)])))
