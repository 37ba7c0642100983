"""Settle reports, judge workers and prune in PostgreSQL."""

import contextlib
from collections.abc import Sequence

import asyncpg
import msgspec

from noonday.drivers.postgres.connection import PostgresDatabase, Session
from noonday.drivers.postgres.write_sets import (
    NOT_SIMPLE,
    STALE_CHECKPOINT,
    Versioned,
    checks_of,
    columns_of,
    ids_in,
    inputs_for,
    payload_of,
    settle_found,
    structs_of,
    until_unchanged,
    versioned,
)
from noonday.drivers.sql.named_sql import load
from noonday.model.attempt import AttemptRecord
from noonday.model.errors import StaleEpoch, StoreUnavailable
from noonday.model.execution import Execution, Outcome, State
from noonday.model.ids import FIRST_ID, ExecutionId, TenantId, WorkerId, first_id_at
from noonday.model.incident import Incident
from noonday.model.limits import LOGGED_DISPATCHES
from noonday.model.message import Beat, Bye, Hello, Report
from noonday.model.recording import Checkpoint, SettleResult
from noonday.model.retention import Retention
from noonday.model.usage import DAY_MS, KEPT_DAYS, Usage, together, usage_of, usage_rows
from noonday.ports.executions import Executions
from noonday.transitions.pruning import SCAN_FACTOR, PruneWalk
from noonday.transitions.settling import Settlement, match_reports, split_successes, unreported
from noonday.transitions.write_set import as_json

SQL = load("noonday.drivers.postgres", "executions")
DAYS_AHEAD = 3
PARTITIONS_EVERY_MS = 3_600_000


class PostgresExecutions(Executions):
    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database
        self._prune_jobs_after = ("", FIRST_ID)
        self._walk = PruneWalk(FIRST_ID)
        self._partitions_at_ms = 0

    async def find_checkpoint(self, partition: int) -> Checkpoint | None:
        row = await self._database.row(SQL.checkpoint, partition)
        return Checkpoint(**row) if row else None

    async def oldest_tick_ms(self) -> int | None:
        return await self._database.value(SQL.oldest_tick) or None

    async def settle(
        self,
        reports: Sequence[Report],
        signs: Sequence[Hello | Beat | Bye],
        *,
        was: Checkpoint | None,
        now: Checkpoint,
        now_ms: int,
    ) -> SettleResult:
        settlement = _Settle(self._database, was, now, now_ms, reports, signs)
        return await until_unchanged(settlement.attempt)

    async def workers_to_judge(self, partition: int) -> list[WorkerId]:
        return [WorkerId(row["id"]) for row in await self._database.fetch(SQL.workers_to_judge, partition)]

    async def lose_workers(self, workers: Sequence[WorkerId], now_ms: int) -> SettleResult:
        async def read() -> Sequence[Versioned]:
            return versioned(await self._database.value(SQL.running_of_workers, list(workers)))

        for worker in workers:
            await self._database.value(SQL.set_worker_state, worker, "LOST", 0)
        return await settle_found(self._database, read, lambda rows: unreported(rows, Outcome.LOST), now_ms)

    async def recover_log(self, partition: int, generation: str, now_ms: int) -> SettleResult:
        # All partitions of a log lose their memory together, so dispatched executions return once.
        first = await self._database.value(SQL.note_generation, generation) is not None

        async def read() -> Sequence[Versioned]:
            running = versioned(await self._database.value(SQL.running_of_partition, partition))
            return [*running, *versioned(await self._database.value(SQL.dispatched))] if first else running

        await self._database.value(SQL.lose_all_workers, partition)
        if first:
            await self._database.value(SQL.forget_batches)
        return await settle_found(
            self._database, read, lambda rows: Settlement([(row, _outcome_of(row), None) for row in rows]), now_ms
        )

    async def keep_attempts(self, reports: Sequence[Report]) -> None:
        rows = [SQL.values(SQL.keep_attempts, report) for report in reports if report.details is not None]
        await self._database.fetch(SQL.keep_attempts, *columns_of(rows, SQL.fields(SQL.keep_attempts)))

    async def keep_logs(self, reports: Sequence[Report]) -> None:
        columns = columns_of([SQL.values(SQL.keep_logs, report) for report in reports], SQL.fields(SQL.keep_logs))
        await self._database.fetch(SQL.keep_logs, *columns, LOGGED_DISPATCHES)

    async def attempt_records(self, execution: ExecutionId) -> list[AttemptRecord]:
        rows = structs_of(AttemptRecord, await self._database.fetch(SQL.attempt_records, execution))
        return [msgspec.structs.replace(row, outcome=Outcome(row.outcome)) for row in rows]

    async def incidents(self, limit: int) -> list[Incident]:
        return structs_of(Incident, await self._database.fetch(SQL.incidents, limit))

    async def revocations(self, pool: str, ended_since_ms: int) -> list[tuple[ExecutionId, int, str]]:
        rows = await self._database.fetch(SQL.revocations, pool, ended_since_ms)
        return [(ExecutionId(row["execution_id"]), row["dispatch"], row["reason"]) for row in rows]

    async def prune(self, policy: Retention, now_ms: int, limit: int) -> int:
        await self._keep_partitions(now_ms)
        deleted: int = 0
        for age_ms, states in _by_age(policy).items():
            if exempt := policy.keep_longer_than(age_ms):
                deleted += await self._prune_except(exempt, states, now_ms, age_ms, limit)
            else:
                deleted += await self._prune_executions(states, now_ms - age_ms, limit)
        deleted += await self._prune_of_tenants(policy, now_ms, limit)
        value = self._database.value
        deleted += await value(SQL.drop_decisions, now_ms - policy.decisions_ms, limit)
        deleted += await value(SQL.drop_audit, now_ms - policy.audit_ms, limit)
        deleted += await value(SQL.drop_receipts, now_ms - policy.receipts_ms, limit)
        deleted += await value(SQL.drop_usage, now_ms // DAY_MS - KEPT_DAYS, limit)
        deleted += await value(SQL.drop_unused_revisions, limit)
        await value(SQL.drop_workers, now_ms - policy.succeeded_ms)
        deleted += await self._prune_jobs(policy, now_ms, limit)
        return deleted

    async def _keep_partitions(self, now_ms: int) -> None:
        """Create partitions for the coming days and drop empty old ones, once an hour. A failure waits for the next time."""
        if now_ms < self._partitions_at_ms:
            return
        with contextlib.suppress(StoreUnavailable):
            async with self._database.transaction() as session:
                if await session.fetchval(SQL.lock_partitions):
                    await session.fetchval(SQL.make_partitions, now_ms, DAYS_AHEAD)
                    await session.fetchval(SQL.drop_partitions, now_ms - DAY_MS)
        self._partitions_at_ms = now_ms + PARTITIONS_EVERY_MS

    async def _prune_executions(self, states: Sequence[State], before_ms: int, limit: int) -> int:
        if before_ms <= 0:
            return 0
        newest = first_id_at(before_ms)
        count: int = await self._database.value(SQL.drop_executions, newest, list(states), before_ms, limit)
        return count

    async def _prune_except(
        self, exempt: Sequence[TenantId], states: Sequence[State], now_ms: int, age_ms: int, limit: int
    ) -> int:
        before_ms, name = now_ms - age_ms, ",".join(state.name for state in states)
        bounds = (first_id_at(before_ms), list(states), before_ms, limit)
        row = await self._database.row(
            SQL.old_executions_except, *bounds, self._walk.mark_of(name), SCAN_FACTOR * limit, list(exempt)
        )
        self._walk.move(name, row["mark"], now_ms)
        return await self._drop(row["ids"])

    async def _prune_of_tenants(self, policy: Retention, now_ms: int, limit: int) -> int:
        """Prune executions of tenants with their own retention. Each step examines one page of their jobs, and wraps around."""
        deleted, examined = 0, 0
        for tenant in self._walk.tenants_from_mark(policy.tenants):
            page = [row["id"] for row in await self._database.fetch(SQL.jobs_of, tenant, self._walk.job, limit)]
            before_ms = now_ms - policy.tenants[tenant]
            bounds = (first_id_at(before_ms), before_ms, limit - deleted)
            old = await self._database.fetch(SQL.old_executions_of, page, *bounds)
            dropped = await self._drop([row["id"] for row in old])
            deleted, examined = deleted + dropped, examined + len(page)
            if deleted >= limit:
                break  # The same jobs may have more.
            self._walk.page_done(page, limit)
            if examined >= limit:
                break
        return deleted

    async def _drop(self, ids: Sequence[str]) -> int:
        return int(await self._database.value(SQL.drop_executions_by_id, list(ids))) if ids else 0

    async def _prune_jobs(self, policy: Retention, now_ms: int, limit: int) -> int:
        """Prune jobs. Each step examines one page and wraps around."""
        before_ms = policy.any_jobs_before_ms(now_ms)
        page = await self._database.fetch(SQL.jobs_page, *self._prune_jobs_after, before_ms, limit)
        ended = [row for row in page if row["is_over"]]
        tenants = [row["tenant"] for row in ended]
        before = [policy.jobs_before_ms(tenant, now_ms) for tenant in tenants]
        ids = [row["id"] for row in ended]
        deleted: int = await self._database.value(SQL.drop_jobs, tenants, ids, before) if ended else 0
        self._prune_jobs_after = (page[-1]["tenant"], page[-1]["id"]) if len(page) == limit else ("", FIRST_ID)
        return deleted


class _Settle:
    """Settles one batch of the log. The decision is repeated as long as its inputs change."""

    def __init__(
        self,
        database: PostgresDatabase,
        was: Checkpoint | None,
        now: Checkpoint,
        now_ms: int,
        reports: Sequence[Report],
        signs: Sequence[Hello | Beat | Bye],
    ) -> None:
        self._database = database
        self._was = was
        self._now = now
        self._now_ms = now_ms
        self._order = {id(report): at for at, report in enumerate(reports)}
        simple, self._others = split_successes(reports)
        # A success that is reported twice counts once.
        first: dict[str, Report] = {}
        for report in simple:
            first.setdefault(report.execution_id, report)
        self._simple = list(first.values())
        self._others += [report for report in simple if first[report.execution_id] is not report]
        self._signs = signs

    async def attempt(self) -> SettleResult:
        writes_text, settled, repeated = await self._decide()
        usage = together(usage_of(self._simple), settled.usage)
        async with self._database.session() as session:
            try:
                if self._signs:
                    async with session.transaction():
                        await _note_signs(session, self._signs, self._now.partition)
                        first_reported = await self._write(session, writes_text, usage, repeated)
                        await _keep_progress(session, self._signs)
                else:
                    first_reported = await self._write(session, writes_text, usage, repeated)
            except asyncpg.PostgresError as error:
                if error.sqlstate == STALE_CHECKPOINT:
                    raise StaleEpoch(
                        f"log partition {self._now.partition}: checkpoint moved by another recorder"
                    ) from error
                if error.sqlstate != NOT_SIMPLE:
                    raise
                not_simple = ids_in(error)
            else:
                if self._simple:
                    settled.by_state["SUCCEEDED"] = settled.by_state.get("SUCCEEDED", 0) + len(self._simple)
                late_usage = usage_of(report for report in repeated if report.execution_id in first_reported)
                return msgspec.structs.replace(settled, usage=together(usage, late_usage))
        self._others += [report for report in self._simple if report.execution_id in not_simple]
        self._others.sort(key=lambda report: self._order[id(report)])
        self._simple = [report for report in self._simple if report.execution_id not in not_simple]
        return await self.attempt()

    async def _decide(self) -> tuple[str | None, SettleResult, list[Report]]:
        """Return the encoded write set, its result, and the successes that were settled before."""
        if not self._others:
            return None, SettleResult((), (), {}), []
        rows = versioned(await self._database.value(SQL.find, [report.execution_id for report in self._others]))
        settlement = match_reports((row.execution for row in rows), self._others)
        inputs, jobs = await inputs_for(self._database, settlement)
        writes, settled = settlement.settle(inputs, self._now_ms)
        concerned = {execution.id for execution, _, _ in settlement.cases}
        checks = checks_of((row for row in rows if row.execution.id in concerned), jobs)
        return as_json(payload_of(writes) | checks) if concerned else None, settled, writes.repeated_successes

    async def _write(
        self, session: Session, writes_text: str | None, usage: Usage, repeated: Sequence[Report]
    ) -> list[str]:
        """Write a batch. Returns which executions that were settled before are reported for the first time."""
        was, now, simple = self._was, self._now, self._simple
        first_reported: list[str] | None = await session.fetchval(
            SQL.settle,
            now.partition,
            was.generation if was else None,
            was.offset if was else None,
            now.generation,
            now.offset,
            now.tick_ms,
            now.recent,
            [report.execution_id for report in simple],
            [report.dispatch for report in simple],
            [report.worker_id for report in simple],
            [report.started_ms or report.ended_ms for report in simple],
            [report.ended_ms for report in simple],
            _some([report.result for report in simple]),
            _some([report.progress for report in simple]),
            writes_text,
            self._now_ms,
            as_json(usage_rows(usage)) if usage or repeated else None,
            as_json(
                [
                    {"execution_id": report.execution_id, **row}
                    for report in repeated
                    for row in usage_rows(usage_of([report]))
                ]
            ),
        )
        return first_reported or []


def _some(values: list[bytes | None]) -> list[bytes | None] | None:
    """Return the values, or None if all are None: the client examines each element of an array."""
    return values if any(value is not None for value in values) else None


def _by_age(policy: Retention) -> dict[int, list[State]]:
    """Group states by retention. One scan serves a group, because a scan for a rare state passes all others."""
    ages: dict[int, list[State]] = {}
    for state, age_ms in (
        (State.SUCCEEDED, policy.succeeded_ms),
        (State.CANCELLED, policy.cancelled_ms),
        (State.EXPIRED, policy.expired_ms),
        (State.DEAD, policy.dead_ms),
    ):
        ages.setdefault(age_ms, []).append(state)
    return ages


def _outcome_of(execution: Execution) -> Outcome:
    return Outcome.LOST if execution.state is State.RUNNING else Outcome.ORPHANED


async def _note_signs(session: Session, signs: Sequence[Hello | Beat | Bye], partition: int) -> None:
    for sign in signs:
        if isinstance(sign, Hello):
            await _register_worker(session, sign, partition)
        elif isinstance(sign, Bye):
            await session.execute(SQL.set_worker_state, sign.worker_id, "GONE", sign.at_ms)
        else:
            await session.execute(SQL.note_heartbeat, sign.worker_id, sign.at_ms, as_json(sign.stuck))
    await _register_handlers(session, [sign for sign in signs if isinstance(sign, Hello)])


async def _register_worker(session: Session, hello: Hello, partition: int) -> None:
    names = as_json([(handler.pool, handler.name) for handler in hello.handlers])
    concurrency = as_json(hello.concurrency)
    await session.execute(
        SQL.register_worker, hello.worker_id, partition, hello.host, hello.pid, concurrency, names, hello.at_ms
    )


async def _register_handlers(session: Session, greetings: Sequence[Hello]) -> None:
    """Register the pools and handlers of workers, in the order of their names, because many recorders write the same ones."""
    for pool in sorted({pool for hello in greetings for pool in hello.concurrency}):
        await session.execute(SQL.register_pool, pool)
    handlers = {(each.pool, each.name): each for hello in greetings for each in hello.handlers}
    for (pool, name), handler in sorted(handlers.items(), key=lambda item: item[0]):
        await session.execute(SQL.register_handler, pool, name, as_json(handler))


async def _keep_progress(session: Session, signs: Sequence[Hello | Beat | Bye]) -> None:
    """Save progress. This follows settling, because a run may report progress in the batch in which it started."""
    beats = [sign for sign in signs if isinstance(sign, Beat)]
    rows = [
        (each.execution_id, each.dispatch, beat.worker_id, each.progress) for beat in beats for each in beat.progress
    ]
    if rows:
        await session.execute(SQL.keep_progress, *columns_of(rows, ("id", "dispatch", "worker", "progress")))
