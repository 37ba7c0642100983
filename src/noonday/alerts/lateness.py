"""Overdue work that nothing blocks on purpose, and the reason why it has not started."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from noonday.intake.blockers import BlockedBy, Blocker, BlockerFinder, DueEntry, still_awaited
from noonday.model.alert import AlertKind, LateWork, Observation
from noonday.model.ids import ExecutionId, JobId
from noonday.model.job import text_of
from noonday.model.pause import is_paused
from noonday.model.pool import NOTICES_POOL
from noonday.model.slots import SlotKey, capped_by
from noonday.ports.queries import QueryStore
from noonday.ports.settings import SettingsStore

EXPLAINED = 10
"""Groups whose reason is looked up in one round. Alerts of further groups have no reason."""
MAX_REMEMBERED = 100_000
ON_PURPOSE = frozenset(
    {
        BlockedBy.PAUSE,
        BlockedBy.KEY,
        BlockedBy.TENANT_CAP,
        BlockedBy.TENANT_POOL_CAP,
        BlockedBy.POOL_CAP,
        BlockedBy.TENANT_RATE,
    }
)
"""Limits and pauses that a user or operator has set."""

DedupKey = tuple[str, str, str]
"""(tenant, job, dedup key)."""
Group = tuple[str, str, str]
"""(tenant, pool, job): entries that wait for the same reason. The job is empty unless other runs of it may block it."""


@dataclass
class Lateness:
    """Turns overdue entries into MISSED observations.

    It remembers the observations that were stored and skips them. This only saves work: the store drops duplicates too.
    """

    query_store: QueryStore
    settings_store: SettingsStore
    blockers: BlockerFinder
    _remembered: set[DedupKey] = field(default_factory=set)

    async def missed(self, late: Iterable[LateWork], now_ms: int) -> list[Observation]:
        """Return an observation for the oldest overdue entry of each job, unless a pause or limit blocks it on purpose."""
        rows = [
            row
            for row in oldest_of_each_job(late)
            if (row.tenant, row.job_id, _dedup_key_of(row)) not in self._remembered
        ]
        if not rows:
            return []
        rows = await self._without_blocked(rows)
        reasons = await self._reasons(rows)
        found = [(row, reasons.get(_group_of(row))) for row in rows]
        return [_missed(row, reason, now_ms) for row, reason in found if reason is None or reason.by not in ON_PURPOSE]

    def remember(self, missed: Iterable[Observation]) -> None:
        """Skip these observations from now on: they are stored."""
        if len(self._remembered) > MAX_REMEMBERED:
            self._remembered.clear()
        self._remembered.update((each.tenant, each.about, each.dedup_key or "") for each in missed)

    async def _without_blocked(self, rows: list[LateWork]) -> list[LateWork]:
        """Drop the rows that a pause or a full cap blocks, with two queries for any number of rows."""
        pauses = {(pause.kind, pause.name) for pause in await self.settings_store.pauses()}
        full = await self._full({(row.tenant, row.pool) for row in rows})
        return [
            row
            for row in rows
            if not is_paused(pauses, row.tenant, row.pool)
            and (row.handed_out or full.isdisjoint(capped_by(row.tenant, row.pool)))
        ]

    async def _full(self, users: Iterable[tuple[str, str]]) -> set[SlotKey]:
        keys = {key for tenant, pool in users for key in capped_by(tenant, pool)}
        slots = await self.settings_store.slots(keys)
        return {key for key, each in slots.items() if each.cap is not None and each.used >= each.cap}

    async def _reasons(self, rows: list[LateWork]) -> dict[Group, Blocker]:
        first: dict[Group, LateWork] = {}
        for row in rows:
            if not row.handed_out:
                first.setdefault(_group_of(row), row)
        return {group: await self._reason(row) for group, row in list(first.items())[:EXPLAINED]}

    async def _reason(self, row: LateWork) -> Blocker:
        job = await self.query_store.find_job(row.tenant, JobId(row.job_id))
        concurrency = job.job.spec.concurrency if job else None
        if row.execution_id and (
            execution := await self.query_store.find_execution(row.tenant, ExecutionId(row.execution_id))
        ):
            concurrency = still_awaited(concurrency, execution.slots)
        mark = (row.due_ms, row.key)
        return await self.blockers.find(DueEntry(row.tenant, row.pool, JobId(row.job_id), mark, concurrency))


def oldest_of_each_job(late: Iterable[LateWork]) -> list[LateWork]:
    first: dict[tuple[str, str], LateWork] = {}
    for row in sorted(late, key=lambda row: row.due_ms):
        if row.job_id and row.pool != NOTICES_POOL:
            first.setdefault((row.tenant, row.job_id), row)
    return list(first.values())


def _dedup_key_of(row: LateWork) -> str:
    return f"{row.due_ms:015d}"


def _group_of(row: LateWork) -> Group:
    return row.tenant, row.pool, "" if row.early else row.job_id


def _missed(row: LateWork, reason: Blocker | None, now_ms: int) -> Observation:
    return Observation(
        kind=AlertKind.MISSED,
        tenant=row.tenant,
        about=row.job_id,
        message=f"due since {text_of(row.due_ms)} and not started{_explanation(row, reason)}",
        at_ms=now_ms,
        job_id=row.job_id,
        execution_id=row.execution_id,
        dedup_key=_dedup_key_of(row),
    )


def _explanation(row: LateWork, reason: Blocker | None) -> str:
    if row.handed_out:
        return f": no worker of pool {row.pool!r} has started it"
    return "" if reason is None else f": {reason.reason}"
