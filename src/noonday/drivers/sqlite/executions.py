"""Executions in SQLite."""

import sqlite3
from collections.abc import Sequence

import msgspec

from noonday.drivers.sqlite.connection import Database
from noonday.drivers.sqlite.ledger import executions_of, let_go_of_slots, rows_of, settle
from noonday.drivers.sqlite.queries import load
from noonday.ledger.ledger import as_json, move
from noonday.ledger.settling import Settlement, found, sort_out, successes_first
from noonday.model.errors import StaleEpoch
from noonday.model.execution import Outcome, State
from noonday.model.ids import ExecutionId, WorkerId
from noonday.model.message import Beat, Bye, Hello, Report
from noonday.ports.executions import Executions, Place, Retention, Settled
from noonday.ports.jobs import Execution

SQL = load("executions")


class SqliteExecutions(Executions):
    def __init__(self, database: Database) -> None:
        self._database = database
        self._prune_jobs_after = ("", "")

    async def place(self, partition: int) -> Place | None:
        row = await self._database.read(lambda conn: conn.execute(SQL.place, (partition,)).fetchone())
        return Place(*row) if row else None

    async def oldest_tick_ms(self) -> int | None:
        row = await self._database.read(lambda conn: conn.execute(SQL.oldest_tick).fetchone())
        return row[0] or None

    async def settle(
        self,
        reports: Sequence[Report],
        signs: Sequence[Hello | Beat | Bye],
        *,
        was: Place | None,
        now: Place,
        now_ms: int,
    ) -> Settled:
        def work(conn: sqlite3.Connection) -> Settled:
            _move_place(conn, was, now)
            _note_signs(conn, signs, now.partition)
            settled = _settle(conn, reports, now_ms)
            # A run may have said so in the same batch in which it began.
            _keep_progress(conn, signs)
            return settled

        return await self._database.write(work)

    async def workers_to_judge(self, partition: int) -> list[WorkerId]:
        rows = await self._database.read(lambda conn: rows_of(conn, SQL.workers_to_judge, partition))
        return [WorkerId(row[0]) for row in rows]

    async def lose_workers(self, workers: Sequence[WorkerId], now_ms: int) -> Settled:
        def work(conn: sqlite3.Connection) -> Settled:
            for worker in workers:
                conn.execute(SQL.part_worker, (worker, "LOST", 0))
            rows = executions_of(conn, SQL.running_of_workers, as_json(list(workers)))
            return settle(conn, found(rows, Outcome.LOST), now_ms)

        return await self._database.write(work)

    async def recover_log(self, partition: int, era: str, now_ms: int) -> Settled:
        def work(conn: sqlite3.Connection) -> Settled:
            conn.execute(SQL.part_all_workers, (partition,))
            conn.execute(SQL.forget_batches)
            rows = executions_of(conn, SQL.handed_out)
            return settle(conn, Settlement([(row, _fate(row), None) for row in rows]), now_ms)

        return await self._database.write(work)

    async def wishes(self, pool: str, ended_since_ms: int) -> list[tuple[ExecutionId, int, str]]:
        rows = await self._database.read(lambda conn: rows_of(conn, SQL.wishes, pool, ended_since_ms))
        return [(ExecutionId(execution), dispatch, reason) for execution, dispatch, reason in rows]

    async def prune(self, policy: Retention, now_ms: int, limit: int) -> int:
        return await self._database.write(lambda conn: self._prune(conn, policy, now_ms, limit))

    def _prune(self, conn: sqlite3.Connection, policy: Retention, now_ms: int, limit: int) -> int:
        went = 0
        for state, age_ms in (
            (State.SUCCEEDED, policy.succeeded_ms),
            (State.CANCELLED, policy.cancelled_ms),
            (State.EXPIRED, policy.expired_ms),
            (State.DEAD, policy.dead_ms),
        ):
            went += _prune_executions(conn, state, now_ms - age_ms, limit)
        went += conn.execute(SQL.drop_decisions, (now_ms - policy.decisions_ms, limit)).rowcount
        went += conn.execute(SQL.drop_audit, (now_ms - policy.audit_ms, limit)).rowcount
        went += conn.execute(SQL.drop_receipts, (now_ms - policy.receipts_ms, limit)).rowcount
        went += conn.execute(SQL.drop_unused_revisions, (limit,)).rowcount
        conn.execute(SQL.drop_workers, (now_ms - policy.succeeded_ms,))
        return went + self._prune_jobs(conn, now_ms - policy.jobs_ms, limit)

    def _prune_jobs(self, conn: sqlite3.Connection, before_ms: int, limit: int) -> int:
        """One page of all jobs a step, round and round: a look at each would hold up the writer when there are many."""
        page = rows_of(conn, SQL.jobs_page, *self._prune_jobs_after, before_ms, limit)
        gone = as_json([(tenant, job) for tenant, job, ended in page if ended])
        for query in (SQL.drop_jobs, SQL.drop_revisions, SQL.drop_fires):
            conn.execute(query, (gone,))
        self._prune_jobs_after = (page[-1][0], page[-1][1]) if len(page) == limit else ("", "")
        return sum(ended for _, _, ended in page)


def _fate(execution: Execution) -> Outcome:
    return Outcome.LOST if execution.state is State.RUNNING else Outcome.FORGOTTEN


def _move_place(conn: sqlite3.Connection, was: Place | None, now: Place) -> None:
    if was is None:
        moved = conn.execute(SQL.add_place, (now.partition, now.era, now.offset, now.tick_ms, now.recent)).rowcount
    else:
        target = (now.era, now.offset, now.tick_ms, now.recent)
        moved = conn.execute(SQL.move_place, (was.partition, was.era, was.offset, *target)).rowcount
    if moved != 1:
        raise StaleEpoch(f"partition {now.partition} of the log is recorded by somebody else")


def _note_signs(conn: sqlite3.Connection, signs: Sequence[Hello | Beat | Bye], partition: int) -> None:
    for sign in signs:
        if isinstance(sign, Hello):
            _greet(conn, sign, partition)
        elif isinstance(sign, Bye):
            conn.execute(SQL.part_worker, (sign.worker_id, "GONE", sign.at_ms))
        else:
            conn.execute(SQL.see_worker, (sign.worker_id, sign.at_ms, as_json(sign.stuck)))


def _keep_progress(conn: sqlite3.Connection, signs: Sequence[Hello | Beat | Bye]) -> None:
    for sign in signs:
        if isinstance(sign, Beat) and sign.progress:
            conn.execute(SQL.keep_progress, (as_json(sign.progress), sign.worker_id))


def _greet(conn: sqlite3.Connection, hello: Hello, partition: int) -> None:
    names = as_json([(handler.pool, handler.name) for handler in hello.handlers])
    conn.execute(
        SQL.greet_worker,
        (hello.worker_id, partition, hello.host, hello.pid, as_json(hello.concurrency), names, hello.at_ms),
    )
    for pool in hello.concurrency:
        conn.execute(SQL.greet_pool, (pool,))
    for handler in hello.handlers:
        conn.execute(SQL.greet_handler, (handler.pool, handler.name, as_json(handler)))


def _settle(conn: sqlite3.Connection, reports: Sequence[Report], now_ms: int) -> Settled:
    plain, others = successes_first(reports)
    succeeded = _succeed(conn, plain) if plain else 0
    if succeeded < len(plain):
        others += _not_applied(conn, plain)
    freed = let_go_of_slots(conn, [report.execution_id for report in plain]) if _any_slots(conn) else ()
    answer = _settle_each(conn, others, now_ms)
    if succeeded:
        answer.by_state["SUCCEEDED"] = answer.by_state.get("SUCCEEDED", 0) + succeeded
    return msgspec.structs.replace(answer, freed=(*answer.freed, *freed)) if freed else answer


def _any_slots(conn: sqlite3.Connection) -> bool:
    return conn.execute(SQL.any_slots).fetchone() is not None


def _succeed(conn: sqlite3.Connection, reports: Sequence[Report]) -> int:
    """Settle successes, those of one worker that returned nothing in the cheapest way. Answers how many there were."""
    bare: dict[str, list[tuple[object, ...]]] = {}
    full = []
    for report in reports:
        if report.result is None and report.progress is None and report.started_ms:
            row = (report.job_id, report.execution_id, report.dispatch, report.started_ms, report.ended_ms)
            bare.setdefault(report.worker_id, []).append(row)
        else:
            full.append(_success(report))
    succeeded = conn.execute(SQL.succeed, (as_json(full),)).rowcount if full else 0
    for worker, rows in bare.items():
        succeeded += conn.execute(SQL.succeed_without_result, (as_json(rows), worker)).rowcount
    return succeeded


def _success(report: Report) -> tuple[object, ...]:
    return (
        report.execution_id,
        report.dispatch,
        report.worker_id,
        report.started_ms or report.ended_ms,
        report.ended_ms,
        report.result,
        report.progress,
        "," + move(State.RUNNING, report.started_ms or report.ended_ms, report.worker_id),
        "," + move(State.SUCCEEDED, report.ended_ms),
    )


def _not_applied(conn: sqlite3.Connection, reports: Sequence[Report]) -> list[Report]:
    """Which of the plain reports the plain statement did not take."""
    rows = {row.id: row for row in executions_of(conn, SQL.find, as_json([r.execution_id for r in reports]))}
    return [report for report in reports if not _is_settled_by(rows.get(report.execution_id), report)]


def _is_settled_by(row: Execution | None, report: Report) -> bool:
    return (
        row is not None
        and row.state is State.SUCCEEDED
        and row.dispatch == report.dispatch
        and row.worker_id == report.worker_id
        and row.finished_ms == report.ended_ms
    )


def _settle_each(conn: sqlite3.Connection, reports: Sequence[Report], now_ms: int) -> Settled:
    if not reports:
        return Settled((), (), {})
    rows = executions_of(conn, SQL.find, as_json([r.execution_id for r in reports]))
    return settle(conn, sort_out(rows, reports), now_ms)


def _prune_executions(conn: sqlite3.Connection, state: State, before_ms: int, limit: int) -> int:
    if before_ms <= 0:
        return 0
    newest = f"{before_ms:012x}"
    ids = conn.execute(SQL.old_executions, (f"{newest[:8]}-{newest[8:]}", int(state), before_ms, limit)).fetchone()[0]
    went = conn.execute(SQL.drop_executions, (ids,)).rowcount
    conn.execute(SQL.drop_dead, (ids,))
    return went
