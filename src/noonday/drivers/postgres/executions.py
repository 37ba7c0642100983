"""Executions in PostgreSQL."""

import contextlib
from collections.abc import Sequence

import asyncpg
import msgspec

from noonday.drivers.postgres.connection import Database, Session
from noonday.drivers.postgres.queries import load
from noonday.drivers.postgres.write_sets import (
    NOT_PLAIN,
    STALE_PLACE,
    Versioned,
    ids_in,
    inputs_for,
    payload_of,
    settle_found,
    until_unchanged,
    versioned,
)
from noonday.model.errors import StaleEpoch, StoreUnavailable
from noonday.model.execution import Outcome, State
from noonday.model.ids import ExecutionId, TenantId, WorkerId
from noonday.model.message import Beat, Bye, Hello, Report
from noonday.model.usage import KEPT_DAYS, Usage, together, usage_of, usage_rows
from noonday.ports.executions import AttemptRecord, Checkpoint, Executions, Incident, Retention, Settled, attempt_rows
from noonday.ports.jobs import Execution
from noonday.transitions.pruning import LOOKED_AT, PruneWalk
from noonday.transitions.settling import Settlement, found, sort_out, successes_first
from noonday.transitions.write_set import as_json

SQL = load("executions")
FIRST_ID = "00000000-0000-0000-0000-000000000000"
DAY_MS = 86_400_000
DAYS_AHEAD = 3
PARTITIONS_EVERY_MS = 3_600_000


class PostgresExecutions(Executions):
    def __init__(self, database: Database) -> None:
        self._database = database
        self._prune_jobs_after = ("", FIRST_ID)
        self._walk = PruneWalk(FIRST_ID)
        self._partitions_at_ms = 0

    async def place(self, partition: int) -> Checkpoint | None:
        row = await self._database.row(SQL.place, partition)
        return Checkpoint(*row) if row else None

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
    ) -> Settled:
        settlement = _Settle(self._database, was, now, now_ms, reports, signs)
        return await until_unchanged(settlement.attempt)

    async def workers_to_judge(self, partition: int) -> list[WorkerId]:
        return [WorkerId(row[0]) for row in await self._database.fetch(SQL.workers_to_judge, partition)]

    async def lose_workers(self, workers: Sequence[WorkerId], now_ms: int) -> Settled:
        async def read() -> Sequence[Versioned]:
            return versioned(await self._database.value(SQL.running_of_workers, list(workers)))

        for worker in workers:
            await self._database.value(SQL.part_worker, worker, "LOST", 0)
        return await settle_found(self._database, read, lambda rows: found(rows, Outcome.LOST), now_ms)

    async def recover_log(self, partition: int, generation: str, now_ms: int) -> Settled:
        # All partitions of a log lose their memory together: what was on its way comes back once.
        first = await self._database.value(SQL.note_era, generation) is not None

        async def read() -> Sequence[Versioned]:
            running = versioned(await self._database.value(SQL.running_of_partition, partition))
            return [*running, *versioned(await self._database.value(SQL.handed_out))] if first else running

        await self._database.value(SQL.part_all_workers, partition)
        if first:
            await self._database.value(SQL.forget_batches)
        return await settle_found(
            self._database, read, lambda rows: Settlement([(row, _fate(row), None) for row in rows]), now_ms
        )

    async def keep_attempts(self, reports: Sequence[Report]) -> None:
        columns = zip(*attempt_rows(reports), strict=True)
        await self._database.fetch(SQL.keep_attempts, *map(list, columns))

    async def accounts(self, execution: ExecutionId) -> list[AttemptRecord]:
        rows = await self._database.fetch(SQL.accounts, execution)
        return [AttemptRecord(dispatch, attempt, Outcome(outcome), *rest) for dispatch, attempt, outcome, *rest in rows]

    async def incidents(self, limit: int) -> list[Incident]:
        return [Incident(*row) for row in await self._database.fetch(SQL.incidents, limit)]

    async def revocations(self, pool: str, ended_since_ms: int) -> list[tuple[ExecutionId, int, str]]:
        rows = await self._database.fetch(SQL.revocations, pool, ended_since_ms)
        return [(ExecutionId(x), n, reason) for x, n, reason in rows]

    async def prune(self, policy: Retention, now_ms: int, limit: int) -> int:
        await self._keep_partitions(now_ms)
        went: int = 0
        for age_ms, states in _by_age(policy).items():
            if exempt := policy.keep_longer_than(age_ms):
                went += await self._prune_but(exempt, states, now_ms, age_ms, limit)
            else:
                went += await self._prune_executions(states, now_ms - age_ms, limit)
        went += await self._prune_of_tenants(policy, now_ms, limit)
        value = self._database.value
        went += await value(SQL.drop_decisions, now_ms - policy.decisions_ms, limit)
        went += await value(SQL.drop_audit, now_ms - policy.audit_ms, limit)
        went += await value(SQL.drop_receipts, now_ms - policy.receipts_ms, limit)
        went += await value(SQL.drop_usage, now_ms // DAY_MS - KEPT_DAYS, limit)
        went += await value(SQL.drop_unused_revisions, limit)
        await value(SQL.drop_workers, now_ms - policy.succeeded_ms)
        went += await self._prune_jobs(policy, now_ms, limit)
        return went

    async def _keep_partitions(self, now_ms: int) -> None:
        """Now and then: room for the days to come; days of which nothing is left go. Not to be had now: later."""
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
        newest = _first_id_at(before_ms)
        count: int = await self._database.value(SQL.drop_executions, newest, list(states), before_ms, limit)
        return count

    async def _prune_but(
        self, exempt: Sequence[TenantId], states: Sequence[State], now_ms: int, age_ms: int, limit: int
    ) -> int:
        before_ms, name = now_ms - age_ms, ",".join(state.name for state in states)
        bounds = (_first_id_at(before_ms), list(states), before_ms, limit)
        row = await self._database.row(
            SQL.old_executions_but, *bounds, self._walk.mark_of(name), LOOKED_AT * limit, list(exempt)
        )
        self._walk.move(name, row[1], now_ms)
        return await self._drop(row[0])

    async def _prune_of_tenants(self, policy: Retention, now_ms: int, limit: int) -> int:
        """Of tenants that have a time of their own: one page of their jobs a step, round and round."""
        went, looked_at = 0, 0
        for tenant in self._walk.tenants_from_mark(policy.tenants):
            page = [job for (job,) in await self._database.fetch(SQL.jobs_of, tenant, self._walk.job, limit)]
            before_ms = now_ms - policy.tenants[tenant]
            bounds = (_first_id_at(before_ms), before_ms, limit - went)
            old = await self._database.fetch(SQL.old_executions_of, page, *bounds)
            dropped = await self._drop([execution for (execution,) in old])
            went, looked_at = went + dropped, looked_at + len(page)
            if went >= limit:
                break  # There may be more of the same jobs.
            self._walk.looked_at(page, limit)
            if looked_at >= limit:
                break
        return went

    async def _drop(self, ids: Sequence[str]) -> int:
        return int(await self._database.value(SQL.drop_these, list(ids))) if ids else 0

    async def _prune_jobs(self, policy: Retention, now_ms: int, limit: int) -> int:
        """One page of all jobs a step, round and round."""
        before_ms = policy.any_jobs_before_ms(now_ms)
        page = await self._database.fetch(SQL.jobs_page, *self._prune_jobs_after, before_ms, limit)
        ended = [(tenant, job, policy.jobs_before_ms(tenant, now_ms)) for tenant, job, _, is_over in page if is_over]
        columns = list(zip(*ended, strict=True))
        gone: int = await self._database.value(SQL.drop_jobs, *map(list, columns)) if ended else 0
        self._prune_jobs_after = (page[-1][0], page[-1][1]) if len(page) == limit else ("", FIRST_ID)
        return gone


class _Settle:
    """One batch of the log, decided as often as what it is decided by changes under it."""

    def __init__(
        self,
        database: Database,
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
        plain, self._others = successes_first(reports)
        # A success that was said twice is one.
        first: dict[str, Report] = {}
        for report in plain:
            first.setdefault(report.execution_id, report)
        self._plain = list(first.values())
        self._others += [report for report in plain if first[report.execution_id] is not report]
        self._signs = signs

    async def attempt(self) -> Settled:
        ledger_text, settled, said_again = await self._decide()
        usage = together(usage_of(self._plain), settled.usage)
        async with self._database.session() as session:
            try:
                if self._signs:
                    async with session.transaction():
                        await _note_signs(session, self._signs, self._now.partition)
                        told = await self._write(session, ledger_text, usage, said_again)
                        await _keep_progress(session, self._signs)
                else:
                    told = await self._write(session, ledger_text, usage, said_again)
            except asyncpg.PostgresError as error:
                if error.sqlstate == STALE_PLACE:
                    raise StaleEpoch(
                        f"partition {self._now.partition} of the log is recorded by somebody else"
                    ) from error
                if error.sqlstate != NOT_PLAIN:
                    raise
                unfit = ids_in(error)
            else:
                if self._plain:
                    settled.by_state["SUCCEEDED"] = settled.by_state.get("SUCCEEDED", 0) + len(self._plain)
                of_told = usage_of(report for report in said_again if report.execution_id in told)
                return msgspec.structs.replace(settled, usage=together(usage, of_told))
        self._others += [report for report in self._plain if report.execution_id in unfit]
        self._others.sort(key=lambda report: self._order[id(report)])
        self._plain = [report for report in self._plain if report.execution_id not in unfit]
        return await self.attempt()

    async def _decide(self) -> tuple[str | None, Settled, list[Report]]:
        """What to write, what it does, and which successes were settled before."""
        if not self._others:
            return None, Settled((), (), {}), []
        rows = versioned(await self._database.value(SQL.find, [report.execution_id for report in self._others]))
        settlement = sort_out((row for row, _ in rows), self._others)
        inputs, touched = await inputs_for(self._database, settlement)
        writes, settled = settlement.settle(inputs, self._now_ms)
        concerned = {execution.id for execution, _, _ in settlement.cases}
        checks = {"rows": [(row.id, version) for row, version in rows if row.id in concerned], "jobs": touched}
        return as_json(payload_of(writes) | checks) if concerned else None, settled, writes.said_again

    async def _write(
        self, session: Session, ledger_text: str | None, usage: Usage, said_again: Sequence[Report]
    ) -> list[str]:
        """Answers which executions, of those that were settled before, are reported for the first time."""
        was, now, plain = self._was, self._now, self._plain
        told: list[str] | None = await session.fetchval(
            SQL.settle,
            now.partition,
            was.generation if was else None,
            was.offset if was else None,
            now.generation,
            now.offset,
            now.tick_ms,
            now.recent,
            [report.execution_id for report in plain],
            [report.dispatch for report in plain],
            [report.worker_id for report in plain],
            [report.started_ms or report.ended_ms for report in plain],
            [report.ended_ms for report in plain],
            [report.result for report in plain],
            [report.progress for report in plain],
            ledger_text,
            self._now_ms,
            as_json(usage_rows(usage)) if usage or said_again else None,
            as_json([(report.execution_id, *row) for report in said_again for row in usage_rows(usage_of([report]))]),
        )
        return told or []


def _first_id_at(ms: int) -> str:
    time = f"{max(0, ms):012x}"
    return f"{time[:8]}-{time[8:]}-0000-0000-000000000000"


def _by_age(policy: Retention) -> dict[int, list[State]]:
    """States that are kept equally long are looked for together: whoever looks for a rare one passes all the others."""
    ages: dict[int, list[State]] = {}
    for state, age_ms in (
        (State.SUCCEEDED, policy.succeeded_ms),
        (State.CANCELLED, policy.cancelled_ms),
        (State.EXPIRED, policy.expired_ms),
        (State.DEAD, policy.dead_ms),
    ):
        ages.setdefault(age_ms, []).append(state)
    return ages


def _fate(execution: Execution) -> Outcome:
    return Outcome.LOST if execution.state is State.RUNNING else Outcome.ORPHANED


async def _note_signs(session: Session, signs: Sequence[Hello | Beat | Bye], partition: int) -> None:
    for sign in signs:
        if isinstance(sign, Hello):
            await _greet(session, sign, partition)
        elif isinstance(sign, Bye):
            await session.execute(SQL.part_worker, sign.worker_id, "GONE", sign.at_ms)
        else:
            await session.execute(SQL.see_worker, sign.worker_id, sign.at_ms, as_json(sign.stuck))
    await _register(session, [sign for sign in signs if isinstance(sign, Hello)])


async def _greet(session: Session, hello: Hello, partition: int) -> None:
    names = as_json([(handler.pool, handler.name) for handler in hello.handlers])
    concurrency = as_json(hello.concurrency)
    await session.execute(
        SQL.greet_worker, hello.worker_id, partition, hello.host, hello.pid, concurrency, names, hello.at_ms
    )


async def _register(session: Session, greetings: Sequence[Hello]) -> None:
    """The pools and handlers of some workers, in the order of their names: many recorders write the same ones."""
    for pool in sorted({pool for hello in greetings for pool in hello.concurrency}):
        await session.execute(SQL.greet_pool, pool)
    handlers = {(each.pool, each.name): each for hello in greetings for each in hello.handlers}
    for (pool, name), handler in sorted(handlers.items(), key=lambda item: item[0]):
        await session.execute(SQL.greet_handler, pool, name, as_json(handler))


async def _keep_progress(session: Session, signs: Sequence[Hello | Beat | Bye]) -> None:
    """After the settling: a run may have said so in the same batch in which it began."""
    said = [(*each, sign.worker_id) for sign in signs if isinstance(sign, Beat) for each in sign.progress]
    if said:
        await session.execute(
            SQL.keep_progress,
            [execution for execution, _, _, _ in said],
            [dispatch for _, dispatch, _, _ in said],
            [worker for _, _, _, worker in said],
            [text for _, _, text, _ in said],
        )
