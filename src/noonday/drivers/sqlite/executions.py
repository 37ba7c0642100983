"""Settle reports, judge workers and prune in SQLite."""

import sqlite3
from collections.abc import Callable, Sequence

import msgspec

from noonday.drivers.sql.named_sql import load
from noonday.drivers.sqlite.connection import SqliteDatabase
from noonday.drivers.sqlite.write_sets import (
    executions_of,
    insert_many,
    release_slots,
    rows_by_name,
    settle,
    structs_of,
)
from noonday.model.attempt import AttemptRecord
from noonday.model.errors import StaleEpoch
from noonday.model.execution import Execution, Outcome, State
from noonday.model.ids import ExecutionId, TenantId, WorkerId, first_id_at
from noonday.model.incident import Incident
from noonday.model.limits import LOGGED_DISPATCHES
from noonday.model.message import Beat, Bye, Hello, Report
from noonday.model.recording import Checkpoint, SettleResult
from noonday.model.retention import Retention
from noonday.model.usage import DAY_MS, KEPT_DAYS, together, usage_of, usage_rows
from noonday.ports.executions import Executions
from noonday.transitions.pruning import SCAN_FACTOR, PruneWalk
from noonday.transitions.settling import Settlement, match_reports, split_successes, unreported
from noonday.transitions.write_set import as_json, transition

SQL = load("noonday.drivers.sqlite", "executions")
LOG_COLUMNS = ("execution_id", "dispatch", "started_ms", "ended_ms", "attempt", "outcome", "logs")


class SqliteExecutions(Executions):
    def __init__(self, database: SqliteDatabase) -> None:
        self._database = database
        self._prune_jobs_after = ("", "")
        self._walk = PruneWalk("")

    async def find_checkpoint(self, partition: int) -> Checkpoint | None:
        rows = await self._database.read(
            lambda conn: structs_of(Checkpoint, conn.execute(SQL.checkpoint, (partition,)))
        )
        return rows[0] if rows else None

    async def oldest_tick_ms(self) -> int | None:
        row = await self._database.read(lambda conn: conn.execute(SQL.oldest_tick).fetchone())
        return row[0] or None

    async def settle(
        self,
        reports: Sequence[Report],
        signs: Sequence[Hello | Beat | Bye],
        *,
        was: Checkpoint | None,
        now: Checkpoint,
        now_ms: int,
    ) -> SettleResult:
        def work(conn: sqlite3.Connection, settle: Callable[..., SettleResult]) -> SettleResult:
            _move_checkpoint(conn, was, now)
            _note_signs(conn, signs, now.partition)
            settled = settle(conn, reports, now_ms)
            # After settling: a run may report progress in the batch in which it started.
            _keep_progress(conn, signs)
            if settled.usage:
                conn.execute(SQL.add_usage, (as_json(usage_rows(settled.usage)),))
            return settled

        try:
            return await self._database.write(lambda conn: work(conn, _settle))
        except _SettledBefore:
            return await self._database.write(lambda conn: work(conn, _settle_one_by_one))

    async def workers_to_judge(self, partition: int) -> list[WorkerId]:
        rows = await self._database.read(lambda conn: rows_by_name(conn, SQL.workers_to_judge, partition))
        return [WorkerId(row["id"]) for row in rows]

    async def lose_workers(self, workers: Sequence[WorkerId], now_ms: int) -> SettleResult:
        def work(conn: sqlite3.Connection) -> SettleResult:
            for worker in workers:
                conn.execute(SQL.set_worker_state, (worker, "LOST", 0))
            rows = executions_of(conn, SQL.running_of_workers, as_json(list(workers)))
            return settle(conn, unreported(rows, Outcome.LOST), now_ms)

        return await self._database.write(work)

    async def recover_log(self, partition: int, generation: str, now_ms: int) -> SettleResult:
        def work(conn: sqlite3.Connection) -> SettleResult:
            conn.execute(SQL.lose_all_workers, (partition,))
            conn.execute(SQL.forget_batches)
            rows = executions_of(conn, SQL.dispatched)
            return settle(conn, Settlement([(row, _outcome_of(row), None) for row in rows]), now_ms)

        return await self._database.write(work)

    async def keep_attempts(self, reports: Sequence[Report]) -> None:
        rows = [SQL.values(SQL.keep_attempts, report) for report in reports if report.details is not None]
        await self._database.write(lambda conn: insert_many(conn, SQL.keep_attempts, rows))

    async def keep_logs(self, reports: Sequence[Report]) -> None:
        rows = as_json([{name: getattr(report, name) for name in LOG_COLUMNS} for report in reports])

        def work(conn: sqlite3.Connection) -> None:
            conn.execute(SQL.keep_logs, (rows,))
            conn.execute(SQL.drop_older_logs, (rows, LOGGED_DISPATCHES))

        await self._database.write(work)

    async def attempt_records(self, execution: ExecutionId) -> list[AttemptRecord]:
        rows = await self._database.read(
            lambda conn: structs_of(AttemptRecord, conn.execute(SQL.attempt_records, (execution,)))
        )
        return [msgspec.structs.replace(row, outcome=Outcome(row.outcome)) for row in rows]

    async def incidents(self, limit: int) -> list[Incident]:
        return await self._database.read(lambda conn: structs_of(Incident, conn.execute(SQL.incidents, (limit,))))

    async def revocations(self, pool: str, ended_since_ms: int) -> list[tuple[ExecutionId, int, str]]:
        rows = await self._database.read(lambda conn: rows_by_name(conn, SQL.revocations, pool, ended_since_ms))
        return [(ExecutionId(row["execution_id"]), row["dispatch"], row["reason"]) for row in rows]

    async def prune(self, policy: Retention, now_ms: int, limit: int) -> int:
        return await self._database.write(lambda conn: self._prune(conn, policy, now_ms, limit))

    def _prune(self, conn: sqlite3.Connection, policy: Retention, now_ms: int, limit: int) -> int:
        deleted = 0
        for state, age_ms in (
            (State.SUCCEEDED, policy.succeeded_ms),
            (State.CANCELLED, policy.cancelled_ms),
            (State.EXPIRED, policy.expired_ms),
            (State.DEAD, policy.dead_ms),
        ):
            if exempt := policy.keep_longer_than(age_ms):
                deleted += self._prune_except(conn, exempt, state, now_ms, age_ms, limit)
            else:
                deleted += _prune_executions(conn, state, now_ms - age_ms, limit)
        deleted += self._prune_of_tenants(conn, policy, now_ms, limit)
        deleted += conn.execute(SQL.drop_decisions, (now_ms - policy.decisions_ms, limit)).rowcount
        deleted += conn.execute(SQL.drop_audit, (now_ms - policy.audit_ms, limit)).rowcount
        deleted += conn.execute(SQL.drop_receipts, (now_ms - policy.receipts_ms, limit)).rowcount
        deleted += conn.execute(SQL.drop_usage, (now_ms // DAY_MS - KEPT_DAYS, limit)).rowcount
        deleted += conn.execute(SQL.drop_unused_revisions, (limit,)).rowcount
        conn.execute(SQL.drop_workers, (now_ms - policy.succeeded_ms,))
        return deleted + self._prune_jobs(conn, policy, now_ms, limit)

    def _prune_except(
        self,
        conn: sqlite3.Connection,
        exempt: Sequence[TenantId],
        state: State,
        now_ms: int,
        age_ms: int,
        limit: int,
    ) -> int:
        before_ms = now_ms - age_ms
        mark = self._walk.mark_of(state.name)
        parameters = (first_id_at(before_ms), int(state), before_ms, SCAN_FACTOR * limit, mark, as_json(list(exempt)))
        (row,) = rows_by_name(conn, SQL.old_executions_except, *parameters)
        ids = msgspec.json.decode(row["ids"], type=list[str])
        self._walk.move(state.name, ids[limit - 1] if len(ids) > limit else row["mark"], now_ms)
        return _drop_executions(conn, as_json(ids[:limit]))

    def _prune_of_tenants(self, conn: sqlite3.Connection, policy: Retention, now_ms: int, limit: int) -> int:
        """Prune executions of tenants with their own retention. Each step examines one page of their jobs, and wraps around."""
        deleted, examined = 0, 0
        for tenant in self._walk.tenants_from_mark(policy.tenants):
            page = msgspec.json.decode(
                conn.execute(SQL.jobs_of, (tenant, self._walk.job, limit)).fetchone()[0], type=list[str]
            )
            before_ms = now_ms - policy.tenants[tenant]
            parameters = (as_json(page), first_id_at(before_ms), before_ms, limit - deleted)
            dropped = _drop_executions(conn, conn.execute(SQL.old_executions_of, parameters).fetchone()[0])
            deleted, examined = deleted + dropped, examined + len(page)
            if deleted >= limit:
                break  # The same jobs may have more.
            self._walk.page_done(page, limit)
            if examined >= limit:
                break
        return deleted

    def _prune_jobs(self, conn: sqlite3.Connection, policy: Retention, now_ms: int, limit: int) -> int:
        """Prune jobs. Each step examines one page and wraps around, because examining all jobs would block the writer."""
        page = rows_by_name(conn, SQL.jobs_page, *self._prune_jobs_after, policy.any_jobs_before_ms(now_ms), limit)
        ended = [
            {"tenant": row["tenant"], "id": row["id"]}
            for row in page
            if row["is_over"] and row["updated_ms"] < policy.jobs_before_ms(row["tenant"], now_ms)
        ]
        for query in (SQL.drop_jobs, SQL.drop_revisions, SQL.drop_fires):
            conn.execute(query, (as_json(ended),))
        self._prune_jobs_after = (page[-1]["tenant"], page[-1]["id"]) if len(page) == limit else ("", "")
        return len(ended)


def _outcome_of(execution: Execution) -> Outcome:
    return Outcome.LOST if execution.state is State.RUNNING else Outcome.ORPHANED


def _move_checkpoint(conn: sqlite3.Connection, was: Checkpoint | None, now: Checkpoint) -> None:
    if was is None:
        moved = conn.execute(
            SQL.add_checkpoint, (now.partition, now.generation, now.offset, now.tick_ms, now.recent)
        ).rowcount
    else:
        target = (now.generation, now.offset, now.tick_ms, now.recent)
        moved = conn.execute(SQL.move_checkpoint, (was.partition, was.generation, was.offset, *target)).rowcount
    if moved != 1:
        raise StaleEpoch(f"log partition {now.partition}: checkpoint moved by another recorder")


def _note_signs(conn: sqlite3.Connection, signs: Sequence[Hello | Beat | Bye], partition: int) -> None:
    for sign in signs:
        if isinstance(sign, Hello):
            _register(conn, sign, partition)
        elif isinstance(sign, Bye):
            conn.execute(SQL.set_worker_state, (sign.worker_id, "GONE", sign.at_ms))
        else:
            conn.execute(SQL.note_heartbeat, (sign.worker_id, sign.at_ms, as_json(sign.stuck)))


def _keep_progress(conn: sqlite3.Connection, signs: Sequence[Hello | Beat | Bye]) -> None:
    for sign in signs:
        if isinstance(sign, Beat) and sign.progress:
            progress = as_json([msgspec.structs.asdict(each) for each in sign.progress])
            conn.execute(SQL.keep_progress, (progress, sign.worker_id))


def _register(conn: sqlite3.Connection, hello: Hello, partition: int) -> None:
    names = as_json([(handler.pool, handler.name) for handler in hello.handlers])
    conn.execute(
        SQL.register_worker,
        (hello.worker_id, partition, hello.host, hello.pid, as_json(hello.concurrency), names, hello.at_ms),
    )
    for pool in hello.concurrency:
        conn.execute(SQL.register_pool, (pool,))
    for handler in hello.handlers:
        conn.execute(SQL.register_handler, (handler.pool, handler.name, as_json(handler)))


class _SettledBefore(Exception):
    """Raised for a success that an earlier batch settled. Which successes are new is known only before they are settled."""


def _settle_one_by_one(conn: sqlite3.Connection, reports: Sequence[Report], now_ms: int) -> SettleResult:
    simple, others = split_successes(reports)
    return _settle_each(conn, simple + others, now_ms)


def _settle(conn: sqlite3.Connection, reports: Sequence[Report], now_ms: int) -> SettleResult:
    simple, others = split_successes(reports)
    succeeded = _succeed(conn, simple) if simple else 0
    applied = simple
    if succeeded < len(simple):
        applied, not_applied = _split_settled(conn, simple)
        if len(applied) > succeeded:
            raise _SettledBefore
        others += not_applied
    freed = release_slots(conn, [report.execution_id for report in applied]) if _any_slots(conn) else ()
    answer = _settle_each(conn, others, now_ms)
    if succeeded:
        answer.by_state["SUCCEEDED"] = answer.by_state.get("SUCCEEDED", 0) + succeeded
    return msgspec.structs.replace(
        answer, freed=(*answer.freed, *freed), usage=together(usage_of(applied), answer.usage)
    )


def _any_slots(conn: sqlite3.Connection) -> bool:
    return conn.execute(SQL.any_slots).fetchone() is not None


def _succeed(conn: sqlite3.Connection, reports: Sequence[Report]) -> int:
    """Settle simple successes, those without result and progress by a cheaper statement. Returns how many were settled."""
    bare: dict[str, list[_BareSuccess]] = {}
    full = []
    for report in reports:
        if report.result is None and report.progress is None and report.started_ms:
            row = _BareSuccess(report.job_id, report.execution_id, report.dispatch, report.started_ms, report.ended_ms)
            bare.setdefault(report.worker_id, []).append(row)
        else:
            full.append(_success(report))
    succeeded = conn.execute(SQL.succeed, (as_json(full),)).rowcount if full else 0
    for worker, rows in bare.items():
        succeeded += conn.execute(SQL.succeed_without_result, (as_json(rows), worker)).rowcount
    return succeeded


class _BareSuccess(msgspec.Struct, frozen=True, gc=False):
    """A success without result and progress, as `succeed_without_result` takes it."""

    job_id: str
    id: str
    dispatch: int
    started_ms: int
    ended_ms: int


def _success(report: Report) -> dict[str, object]:
    """Return a success as `succeed` takes it."""
    started_ms = report.started_ms or report.ended_ms
    return {
        "id": report.execution_id,
        "dispatch": report.dispatch,
        "worker_id": report.worker_id,
        "started_ms": started_ms,
        "ended_ms": report.ended_ms,
        "result": report.result,
        "progress": report.progress,
        "start": "," + transition(State.RUNNING, started_ms, report.worker_id),
        "end": "," + transition(State.SUCCEEDED, report.ended_ms),
    }


def _split_settled(conn: sqlite3.Connection, reports: Sequence[Report]) -> tuple[list[Report], list[Report]]:
    """Split simple successes into those that are settled now, each execution once, and those that `_succeed` did not settle."""
    rows = {row.id: row for row in executions_of(conn, SQL.find, as_json([r.execution_id for r in reports]))}
    applied: dict[ExecutionId, Report] = {}
    others = []
    for report in reports:
        if _is_settled_by(rows.get(report.execution_id), report):
            applied.setdefault(report.execution_id, report)
        else:
            others.append(report)
    return list(applied.values()), others


def _is_settled_by(row: Execution | None, report: Report) -> bool:
    return (
        row is not None
        and row.state is State.SUCCEEDED
        and row.dispatch == report.dispatch
        and row.worker_id == report.worker_id
        and row.finished_ms == report.ended_ms
    )


def _settle_each(conn: sqlite3.Connection, reports: Sequence[Report], now_ms: int) -> SettleResult:
    if not reports:
        return SettleResult((), (), {})
    rows = executions_of(conn, SQL.find, as_json([r.execution_id for r in reports]))
    return settle(conn, match_reports(rows, reports), now_ms)


def _prune_executions(conn: sqlite3.Connection, state: State, before_ms: int, limit: int) -> int:
    if before_ms <= 0:
        return 0
    parameters = (first_id_at(before_ms), int(state), before_ms, limit)
    return _drop_executions(conn, conn.execute(SQL.old_executions, parameters).fetchone()[0])


def _drop_executions(conn: sqlite3.Connection, ids: str) -> int:
    deleted = conn.execute(SQL.drop_executions, (ids,)).rowcount
    conn.execute(SQL.drop_dead, (ids,))
    conn.execute(SQL.drop_attempt_records, (ids,))
    conn.execute(SQL.drop_attempt_logs, (ids,))
    return deleted
