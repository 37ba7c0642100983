"""Check a history and the store that a run left behind, and report every broken promise.

The same checker serves the simulation and the history of a real process that was killed. The numbers are those of the
invariants in docs/invariants.md.
"""

import sqlite3
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, pairwise
from typing import Any

import msgspec
from msgspec import UNSET

from noonday.model.execution import TRANSITIONS, Cause, State
from noonday.model.slots import is_of_ordering_key, of_key, of_ordering_key, slot_key
from tests.simulation.excuses import excuse_for, forgotten, unharmed
from tests.simulation.history import Answer, Effect, History
from tests.simulation.kernel import World
from tests.simulation.pauses import sure_pauses
from tests.simulation.plans import check_plans, note_updates_by_key
from tests.simulation.rows import SqliteRows, with_pruned
from tests.support.crank import is_path

NOTHING: Mapping[str, int] = {}


def check_commit(conn: sqlite3.Connection, forced: Mapping[str, int] = NOTHING) -> Iterator[str]:
    """Check the invariants of every commit: I3, I5, I6, I12, I13, I21.

    `forced`: the number of triggers of each job that were to pass its overlap rule.
    """
    yield from _one_place_each(conn)
    yield from _alerted(conn)
    yield from _slots(conn)
    yield from _overlap(conn, forced)
    yield from _lanes(conn)
    for row in conn.execute("SELECT id, attempt, dispatch FROM executions WHERE attempt > dispatch"):
        yield f"I5: execution {row[0]} has attempt {row[1]} > dispatch {row[2]}"


def _one_place_each(conn: sqlite3.Connection) -> Iterator[str]:
    """I3: an open execution is on the timeline, dispatched, or buffered, and only one of these."""
    rows = conn.execute(
        """SELECT x.id, x.state, x.fired_ms, x.buffered, x.dispatch, t.number, t.key
           FROM executions x LEFT JOIN timeline t ON t.key = x.id WHERE x.state < 2"""
    )
    for id_, state, fired, buffered, dispatch, number, key in rows:
        places = (key is not None) + (fired is not None) + bool(buffered)
        if places != 1:
            where = f"timeline {key}, fired {fired}, buffered {buffered}"
            yield f"I3: open execution {id_} ({State(state).name}) is in {places} places ({where})"
        if key is not None and number != dispatch:
            yield f"I3: the timeline has dispatch {number} of execution {id_}, which is at {dispatch}"
        if state == State.RUNNING and fired is None:
            yield f"I3: execution {id_} is RUNNING and not dispatched"
    for (key,) in conn.execute(
        """SELECT t.key FROM timeline t LEFT JOIN executions x ON x.id = t.key
           WHERE t.kind = 1 AND (x.id IS NULL OR x.state >= 2)"""
    ):
        yield f"I3: the timeline has a dispatch of {key}, which is not open"
    for (key,) in conn.execute(
        """SELECT t.key FROM timeline t JOIN executions x ON x.id = t.key JOIN jobs j ON j.tenant = x.tenant AND j.id = x.job_id
           WHERE t.kind = 1 AND t.due_ms IS NULL AND j.state <> 1"""
    ):
        yield f"I4: the dispatch of {key} is held, and its job is not paused"


def _alerted(conn: sqlite3.Connection) -> Iterator[str]:
    """I21: each dead letter is an incident, or counted by an alert."""
    dead, incidents, counted = conn.execute(
        f"""SELECT (SELECT count(*) FROM {with_pruned(conn, "dead")}), (SELECT count(*) FROM incidents WHERE kind = 'EXHAUSTED'),
                  (SELECT coalesce(sum(count), 0) FROM alerts WHERE kind = 'EXHAUSTED')"""
    ).fetchone()
    if dead != incidents + counted:
        yield f"I21: of {dead} dead letters {incidents} are incidents, and {counted} are counted by alerts"


def _slots(conn: sqlite3.Connection) -> Iterator[str]:
    """I13: the counter of a key or a cap equals the number of executions that hold a slot of it, and stays within the
    limit."""
    rows = conn.execute(
        """SELECT x.id, x.tenant, x.fired_ms, s.value FROM executions x, json_each(x.slots) s
           WHERE x.state < 2 AND x.slots IS NOT NULL"""
    ).fetchall()
    for execution, _, fired_ms, name in rows:
        if fired_ms is None and not is_of_ordering_key(name):
            yield f"I13: execution {execution} is not dispatched, and holds {name}"
    held = Counter(slot_key(tenant, name) for _, tenant, _, name in rows)
    used = {(tenant, key): n for tenant, key, n in conn.execute("SELECT tenant, key, used FROM slots")}
    for name in {*held, *used}:
        if held.get(name, 0) != used.get(name, 0):
            yield f"I13: {held.get(name, 0)} executions hold {name}, the counter says {used.get(name, 0)}"
    limits = conn.execute(
        """SELECT j.tenant, j.spec ->> '$.concurrency.key', coalesce(j.spec ->> '$.concurrency.ordered', 0),
                  min(j.spec ->> '$.concurrency.limit')
           FROM jobs j WHERE j.watch & 2 GROUP BY 1, 2, 3"""
    )
    for tenant, key, ordered, limit in limits:
        name = of_ordering_key(key) if ordered else of_key(key)
        if held.get((tenant, name), 0) > limit:
            yield f"I13: {held[tenant, name]} executions hold {name}, more than {limit}"
    for tenant, name, cap in conn.execute("SELECT tenant, key, cap FROM slots WHERE cap IS NOT NULL"):
        # No cap is lowered in the runs that are checked here.
        if held.get((tenant, name), 0) > cap:
            yield f"I13: {held[tenant, name]} executions hold {name} of {tenant!r}, more than {cap}"


def _overlap(conn: sqlite3.Connection, forced: Mapping[str, int]) -> Iterator[str]:
    """I12: how many executions of a job may be open."""
    rows = conn.execute(
        """SELECT j.id, j.spec ->> '$.overlap', sum(x.buffered), sum(x.buffered AND x.cause < 2), count(*), j.revision
           FROM executions x JOIN jobs j ON j.tenant = x.tenant AND j.id = x.job_id
           WHERE x.state < 2 AND x.watch & 1 GROUP BY j.id"""
    )
    for job, overlap, buffered, skippable, open_, revision in rows:
        # A job that allowed overlap before it was replaced may still have several open.
        if open_ - buffered > 1 + forced.get(job, 0) and revision == 1:
            yield f"I12: job {job} ({overlap}) has {open_ - buffered} executions open besides {buffered} buffered"
        # Backfills and retries of dead letters wait for each other, and are never skipped.
        if overlap in ("BUFFER_ONE", "CANCEL_OTHER") and skippable > 1 and revision == 1:
            yield f"I12: job {job} ({overlap}) has {skippable} buffered"
        if buffered and buffered == open_:
            yield f"I12: job {job} has only buffered executions: nothing will let them start"


def _lanes(conn: sqlite3.Connection) -> Iterator[str]:
    """Priority: the fire of a job waits in the lane that its definition names."""
    rows = conn.execute(
        """SELECT t.key, t.lane, coalesce(j.spec ->> '$.priority', 'NORMAL') FROM timeline t JOIN jobs j ON j.id = t.key
           WHERE t.kind = 0 AND t.lane <> CASE coalesce(j.spec ->> '$.priority', 'NORMAL')
                                          WHEN 'HIGH' THEN 0 WHEN 'NORMAL' THEN 1 ELSE 2 END"""
    )
    for key, lane, priority in rows:
        yield f"priority: the fire of job {key} ({priority}) waits in lane {lane}"


def check_end(conn: sqlite3.Connection, history: History, now_ms: int, *, calm: bool) -> list[str]:
    """Check the invariants of a quiet store: faults have stopped, and everything due has run.

    `calm`: a commit takes no time.
    """
    note_updates_by_key(SqliteRows(conn), history)
    problems = list(history.problems)
    problems += check_commit(conn, _forced(history))
    problems += _durable(conn, history)
    problems += check_plans(SqliteRows(conn), history, now_ms, calm=calm)
    problems += _legal(conn)
    problems += _usage(conn)
    problems += _one_run(history)
    problems += _in_order(conn, history, [run for run in history.effects if history.abandoned_ms(run) is None])
    problems += _on_disk(conn, history)
    problems += _requests_kept(conn, history)
    problems += _paused(conn, history)
    problems += _own_payloads(conn, history)
    return problems


def check_cluster(conn: sqlite3.Connection, history: History, world: World) -> list[str]:
    """Check the invariants of a quiet cluster. A second run needs a fault that explains it."""
    note_updates_by_key(SqliteRows(conn), history)
    problems = list(history.problems)
    problems += check_commit(conn, _forced(history))
    problems += _durable(conn, history)
    calm = not (history.cuts or history.flushes or world.fault_log)
    problems += check_plans(SqliteRows(conn), history, world.now_ms(), calm=calm)
    problems += _legal(conn)
    problems += _usage(conn)
    problems += _named_runs(history, world)
    problems += _in_order(conn, history, unharmed(history, world))
    problems += _requests_kept(conn, history)
    problems += _paused(conn, history)
    problems += _own_payloads(conn, history)
    return problems


def _named_runs(history: History, world: World) -> Iterator[str]:
    """I8: runs of one execution overlap, or one dispatch runs twice, only if the earlier worker was harmed since its start,
    or Redis lost its memory. I9: no run starts early."""
    runs: dict[str, list[Effect]] = {}
    for effect in history.effects:
        yield from _early(history, effect)
        runs.setdefault(effect.execution, []).append(effect)
    for execution, effects in runs.items():
        for before, after in pairwise(effects):
            overlap = before.end_ms is None or before.end_ms > after.start_ms
            again = before.dispatch == after.dispatch and not overlap
            if again or overlap:
                excuse = excuse_for(before, after, history, world, again=again)
                if excuse is None:
                    yield f"I8: {execution} runs twice without a fault that explains it: {before} and {after}"
                else:
                    history.excuses.append(f"I8: {execution} runs twice: {excuse}")
            # A dispatch that was left behind: its first worker died before it could report, so that the dispatch runs again.
            first = next(effect for effect in effects if effect.dispatch == after.dispatch)
            if after.token <= before.token and excuse_for(first, after, history, world) is None:
                yield f"I8: the token of {execution} fell from {before.token} to {after.token}"


def _early(history: History, effect: Effect) -> Iterator[str]:
    """I9: no run starts before it is due, apart from the time by which the clock of its process was ahead."""
    early_ms = effect.due_ms - effect.start_ms
    if early_ms > 0 and early_ms > history.ahead_ms(effect.process, effect.start_ms):
        yield f"I9: execution {effect.execution} started {early_ms} ms early on {effect.process}"


def _durable(conn: sqlite3.Connection, history: History) -> Iterator[str]:
    """I1: every promised execution exists and has ended, or a decision explains its absence."""
    jobs = {id_ for (id_,) in conn.execute(f"SELECT id FROM {with_pruned(conn, 'jobs')}")}
    for answer in history.answered("create"):
        if answer.target not in jobs:
            yield f"I1: job {answer.target} was acknowledged at {answer.at_ms} and does not exist"
    stuck = "SELECT id, state, fired_ms, buffered, revocation FROM executions WHERE state < 2"
    for id_, state, fired, buffered, revocation in conn.execute(stuck):
        yield f"I1: execution {id_} is still {State(state).name} (fired {fired}, buffered {buffered}, revocation {revocation})"


def _legal(conn: sqlite3.Connection) -> Iterator[str]:
    """I7: the transitions of an execution are a path in the table, and end in its present state."""
    for id_, state, dispatch, attempt, transitions in conn.execute(
        f"SELECT id, state, dispatch, attempt, transitions FROM {with_pruned(conn, 'executions')}"
    ):
        states = [State(transition[0]) for transition in msgspec.json.decode(f"[{transitions}]")]
        if not is_path(states) or states[-1] != state:
            yield f"I7: execution {id_} rests in {State(state).name} after {[s.name for s in states]}"
        returns = sum(s is State.PENDING for s in states)
        if returns != dispatch:
            yield f"I5: execution {id_} was dispatched {returns} times and has dispatch {dispatch}"
        failures = sum(b is State.PENDING and a not in (State.PENDING, State.RUNNING) for a, b in pairwise(states))
        if attempt != 1 + failures:
            yield f"I5: execution {id_} failed {failures} times and is at attempt {attempt}"
    assert State.PENDING in TRANSITIONS


def _usage(conn: sqlite3.Connection) -> Iterator[str]:
    """I20: each accepted end of a run is counted once. The runs of a lost worker have no accepted end."""
    ended: Counter[tuple[str, str]] = Counter()
    # Ends that handlers recorded themselves, and that no report has confirmed yet. Only the store of a cluster has them.
    if conn.execute("SELECT 1 FROM sqlite_master WHERE name = 'unreported'").fetchone():
        for (tenant,) in conn.execute(
            "SELECT tenant FROM executions WHERE id IN (SELECT execution_id FROM unreported)"
        ):
            ended.subtract([(tenant, "runs"), (tenant, "succeeded")])
    for tenant, transitions in conn.execute(f"SELECT tenant, transitions FROM {with_pruned(conn, 'executions')}"):
        path = [State(transition[0]) for transition in msgspec.json.decode(f"[{transitions}]")]
        for before, after in pairwise(path):
            if before is State.RUNNING and after is not State.FAILED_WORKER_LOST:
                ended[tenant, "runs"] += 1
                ended[tenant, "succeeded"] += after is State.SUCCEEDED
    counted: Counter[tuple[str, str]] = Counter()
    for tenant, runs, succeeded in conn.execute("SELECT tenant, runs, succeeded FROM usage"):
        counted[tenant, "runs"] += runs
        counted[tenant, "succeeded"] += succeeded
    for name in {*ended, *counted}:
        if ended[name] != counted[name]:
            yield f"I20: {name} is {ended[name]}, and {counted[name]} are counted"


def _one_run(history: History) -> Iterator[str]:
    """I8: one live run; a dispatch runs once; tokens grow. I9: no run starts early."""
    died = dict(history.deaths)
    runs: dict[str, list] = {}  # type: ignore[type-arg]
    for effect in history.effects:
        yield from _early(history, effect)
        runs.setdefault(effect.execution, []).append(effect)
    for execution, effects in runs.items():
        dispatches = Counter(effect.dispatch for effect in effects)
        for dispatch, count in dispatches.items():
            if count > 1:
                yield f"I8: dispatch {dispatch} of execution {execution} ran {count} times"
        for before, after in pairwise(effects):
            end = before.end_ms if before.end_ms is not None else died.get(before.process)
            abandoned_ms = history.abandoned_ms(before)
            end = end if abandoned_ms is None else abandoned_ms
            if end is None or end > after.start_ms:
                yield f"I8: two runs of {execution} overlap: {before} and {after}"
            if after.token <= before.token:
                yield f"I8: the token of {execution} fell from {before.token} to {after.token}"


def _in_order(conn: sqlite3.Connection, history: History, effects: Sequence[Effect]) -> Iterator[str]:
    """I22: no execution of an ordering key starts before every earlier one has ended that existed when it became due."""
    runs: dict[str, list[Effect]] = {}
    for effect in effects:
        runs.setdefault(effect.execution, []).append(effect)
    lines: dict[tuple[str, str], list[tuple[int, str, int, list[Effect]]]] = {}
    changed = {a.target for a in history.answers if a.action.rstrip("?") in ("replace", "pause", "resume", "delete")}
    for execution, job, due_ms, tenant, line, created_ms in conn.execute(
        f"""SELECT x.id, j.id, x.due_ms, x.tenant, j.spec ->> '$.concurrency.key', j.created_ms
           FROM {with_pruned(conn, "executions")} x JOIN {with_pruned(conn, "jobs")} j ON j.tenant = x.tenant AND j.id = x.job_id
           WHERE x.cause = 0 AND j.spec ->> '$.concurrency.ordered'"""
    ):
        if job not in changed and execution in runs:
            lines.setdefault((tenant, line), []).append((due_ms, job, created_ms, runs[execution]))
    for waited in lines.values():
        for before, after in combinations(sorted(waited, key=lambda each: each[:2]), 2):
            start_ms = after[3][0].start_ms
            late = [run for run in before[3] if run.start_ms > start_ms or (run.end_ms or 0) > start_ms]
            if late and before[2] + history.skew_ms < after[0]:
                yield f"I22: {after[3][0]} started before {late[0]} had ended, which is earlier under its ordering key"


def _on_disk(conn: sqlite3.Connection, history: History) -> Iterator[str]:
    """I18: no handler was entered under a dispatch that the store never had."""
    stored = dict(conn.execute(f"SELECT id, dispatch FROM {with_pruned(conn, 'executions')}").fetchall())
    for effect in history.effects:
        if effect.dispatch > stored.get(effect.execution, 0):
            yield f"I18: {effect} ran, the store says dispatch {stored.get(effect.execution)}"


def _requests_kept(conn: sqlite3.Connection, history: History) -> Iterator[str]:
    """I10: an execution that was cancelled before its pre-start check does not start.

    I11: one that was edited before it runs the new payload.
    """
    job_of, ended, begun = {}, {}, {}
    # An execution has begun when its first start was reported, even if its process died before the handler was entered.
    rows = conn.execute(f"SELECT id, job_id, finished_ms, transitions FROM {with_pruned(conn, 'executions')}")
    for execution, job, ended_ms, transitions in rows:
        job_of[execution], ended[execution] = job, ended_ms
        starts = (
            transition[1] for transition in msgspec.json.decode(f"[{transitions}]") if transition[0] == State.RUNNING
        )
        begun[execution] = next(starts, sys.maxsize)
    stops: dict[str, int] = {}
    for answer in history.answered("cancel"):
        stops.setdefault(answer.target, answer.at_ms)
    deletes = {a.target: a.at_ms for a in history.answered("delete")}
    for effect in history.effects:
        checked = history.checks.get((effect.execution, effect.dispatch))
        if checked is None:
            yield f"I10: execution {effect.execution} started without a pre-start check"
            continue
        stop = stops.get(effect.execution, deletes.get(job_of.get(effect.execution, "")))
        over = ended.get(effect.execution)
        if (
            stop is not None and stop < checked and (over is None or over - history.skew_ms >= stop)
        ):  # a request does not concern an execution that was over
            problem = f"I10: execution {effect.execution} was ended at {stop} and started after a pre-start check at {checked}"
            yield from _unless_forgotten(history, problem, stop, checked)
        begun_ms = begun.get(effect.execution, sys.maxsize)
        yield from _newest_payload(history, effect, job_of.get(effect.execution, ""), checked, begun_ms)


def _unless_forgotten(history: History, problem: str, acked_ms: int, checked_ms: int) -> Iterator[str]:
    """Report a problem, except where I10 and I11 allow it: an older copy of Redis lacked the revocation."""
    excuse = forgotten(history, acked_ms, checked_ms)
    if excuse is None:
        yield problem
    else:
        history.excuses.append(f"{problem}: {excuse}")


def _paused(conn: sqlite3.Connection, history: History) -> Iterator[str]:
    """I10: no execution of a paused job starts, except those that were requested during the pause."""
    rows = conn.execute(f"SELECT id, job_id, cause, created_ms FROM {with_pruned(conn, 'executions')}").fetchall()
    made = {
        execution: (job, 0 if cause == Cause.SCHEDULE else created_ms) for execution, job, cause, created_ms in rows
    }
    pauses = sure_pauses(history.answers, history.skew_ms)
    for effect in history.effects:
        job, asked_ms = made.get(effect.execution, ("", 0))
        checked = history.checks.get((effect.execution, effect.dispatch), 0)
        for paused_ms, resumed_ms in pauses.get(job, ()):
            if paused_ms < checked and effect.start_ms < resumed_ms and asked_ms + history.skew_ms < paused_ms:
                problem = (
                    f"I10: {effect.execution} started after a check at {checked}; its job was paused at {paused_ms}"
                )
                yield from _unless_forgotten(history, problem, paused_ms, checked)


def _forced(history: History) -> Mapping[str, int]:
    """Return the number of triggers of each job that were to pass its overlap rule."""
    return Counter(answer.target for answer in history.asked("trigger") if answer.value and answer.value.force)


def _own_payloads(conn: sqlite3.Connection, history: History) -> Iterator[str]:
    """I11: a run that was triggered with its own payload has that payload, also as the retry of a dead letter. No other run
    has it."""
    retry_of = dict(conn.execute(f"SELECT id, retry_of FROM {with_pruned(conn, 'executions')}").fetchall())
    wanted: dict[str, Any] = {}
    unknown = False
    for answer in history.asked("trigger"):
        payload = answer.value.payload if answer.value else UNSET
        if payload is not UNSET and not answer.is_certain:
            unknown = True
        elif payload is not UNSET:
            wanted[answer.shown.execution_id] = payload
    for effect in history.effects:
        origin = effect.execution
        while retry_of.get(origin) is not None:
            origin = retry_of[origin]
        has_own = isinstance(effect.payload, dict) and "own" in effect.payload
        if effect.payload != wanted[origin] if origin in wanted else has_own and not unknown:
            yield f"I11: execution {effect.execution} ran payload {effect.payload} instead of {wanted.get(origin)}"


def _newest_payload(history: History, effect: Effect, job: str, checked: int, begun_ms: int) -> Iterator[str]:
    if "own" in effect.payload:
        return  # A trigger gave it this payload.
    edits: list[Answer] = [a for a in history.answered("replace") if a.target == job and a.at_ms < checked]
    first = min((e for e in history.effects if e.execution == effect.execution), key=lambda e: e.start_ms)
    began = min(begun_ms, history.checks.get((first.execution, first.dispatch), first.start_ms))
    before_it_began = [edit for edit in edits if edit.at_ms < began]
    newest = max(before_it_began, key=lambda edit: edit.value, default=None)
    if newest is not None and effect.payload["v"] < newest.value:
        problem = f"I11: execution {effect.execution} ran payload {effect.payload} after {newest}"
        yield from _unless_forgotten(history, problem, newest.at_ms, checked)
