"""Which of what has not begun nobody holds on purpose, and why it has not."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from noonday.intake.waiting import By, Hold, Waiter, Waiting, still_awaited
from noonday.model.alert import AlertKind, Sighting
from noonday.model.ids import ExecutionId, JobId
from noonday.model.job import text_of
from noonday.model.pool import NOTICES_POOL
from noonday.model.slots import SlotKey, capped_by
from noonday.ports.alerts import Late
from noonday.ports.archive import Archive, Pause

EXPLAINED = 10
"""Of so many groups it is found out in a round what holds them; of the others it is only said that they are late."""
MOST_KNOWN = 100_000
ON_PURPOSE = frozenset({By.PAUSE, By.KEY, By.TENANT_CAP, By.TENANT_POOL_CAP, By.POOL_CAP, By.TENANT_RATE})
"""Somebody has said that it shall wait."""

Name = tuple[str, str, str]
"""(tenant, job, occasion)."""
Group = tuple[str, str, str]
"""(tenant, pool, job): what waits for the same. The job is named only where others of it may be in the way."""


@dataclass
class Lateness:
    """What was taken in is not looked at again, as long as this process remembers; the store would not take it in either."""

    archive: Archive
    waiting: Waiting
    _told: set[Name] = field(default_factory=set)

    async def missed(self, late: Iterable[Late], now_ms: int) -> list[Sighting]:
        rows = [
            row for row in oldest_of_each_job(late) if (row.tenant, row.job_id, _occasion_of(row)) not in self._told
        ]
        if not rows:
            return []
        rows = await self._without_held(rows)
        holds = await self._holds(rows)
        found = [(row, holds.get(_group_of(row))) for row in rows]
        return [_missed(row, hold, now_ms) for row, hold in found if hold is None or hold.by not in ON_PURPOSE]

    def remember(self, missed: Iterable[Sighting]) -> None:
        """These were taken in."""
        if len(self._told) > MOST_KNOWN:
            self._told.clear()
        self._told.update((each.tenant, each.about, each.occasion or "") for each in missed)

    async def _without_held(self, rows: list[Late]) -> list[Late]:
        """What a pause or a cap holds is found at once, however much it is."""
        pauses = await self.archive.pauses()
        full = await self._full({(row.tenant, row.pool) for row in rows})
        return [
            row
            for row in rows
            if not is_paused(row, pauses) and (row.handed_out or full.isdisjoint(capped_by(row.tenant, row.pool)))
        ]

    async def _full(self, users: Iterable[tuple[str, str]]) -> set[SlotKey]:
        keys = {key for tenant, pool in users for key in capped_by(tenant, pool)}
        slots = await self.archive.slots(keys)
        return {key for key, each in slots.items() if each.cap is not None and each.used >= each.cap}

    async def _holds(self, rows: list[Late]) -> dict[Group, Hold]:
        first: dict[Group, Late] = {}
        for row in rows:
            if not row.handed_out:
                first.setdefault(_group_of(row), row)
        return {group: await self._hold(row) for group, row in list(first.items())[:EXPLAINED]}

    async def _hold(self, row: Late) -> Hold:
        job = await self.archive.find_job(row.tenant, JobId(row.job_id))
        concurrency = job.job.spec.concurrency if job else None
        if row.execution_id and (
            execution := await self.archive.find_execution(row.tenant, ExecutionId(row.execution_id))
        ):
            concurrency = still_awaited(concurrency, execution.slots)
        mark = (row.due_ms, row.key)
        return await self.waiting.of(Waiter(row.tenant, row.pool, JobId(row.job_id), mark, concurrency))


def oldest_of_each_job(late: Iterable[Late]) -> list[Late]:
    first: dict[tuple[str, str], Late] = {}
    for row in sorted(late, key=lambda row: row.due_ms):
        if row.job_id and row.pool != NOTICES_POOL:
            first.setdefault((row.tenant, row.job_id), row)
    return list(first.values())


def is_paused(row: Late, pauses: Iterable[Pause]) -> bool:
    names = {"TENANT": row.tenant, "POOL": row.pool}
    return any(pause.kind == "ALL" or names.get(pause.kind) == pause.name for pause in pauses)


def _occasion_of(row: Late) -> str:
    return f"{row.due_ms:015d}"


def _group_of(row: Late) -> Group:
    return row.tenant, row.pool, "" if row.staged else row.job_id


def _missed(row: Late, hold: Hold | None, now_ms: int) -> Sighting:
    return Sighting(
        kind=AlertKind.MISSED,
        tenant=row.tenant,
        about=row.job_id,
        message=f"due since {text_of(row.due_ms)} and has not begun{_why(row, hold)}",
        at_ms=now_ms,
        job_id=row.job_id,
        execution_id=row.execution_id,
        occasion=_occasion_of(row),
    )


def _why(row: Late, hold: Hold | None) -> str:
    if row.handed_out:
        return f": no worker of pool {row.pool!r} has taken it up"
    return "" if hold is None else f": {hold.reason}"
