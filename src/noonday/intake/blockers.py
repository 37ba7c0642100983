"""The reason why a due entry has not started: the limit or pause that blocks it, its position, and its expected start.

Everything is read from the store and from the rate counters, so any process can answer, not only the owner of the partition.
Positions and expected starts are estimates: priorities and weights differ, and other entries come and go.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import StrEnum

import msgspec

from noonday.model.batch import Mark
from noonday.model.errors import TokensUnavailable
from noonday.model.ids import JobId, TenantId
from noonday.model.job import Concurrency, instant_of
from noonday.model.pause import Pause
from noonday.model.rate import TokenRequest
from noonday.model.recent import rate_per_sec
from noonday.model.rows import EntriesAhead, PoolRow
from noonday.model.slots import Slots, capped_by, of_key, of_ordering_key
from noonday.model.tenancy import rate_of
from noonday.model.usage import DAY_MS
from noonday.ports.clock import Clock
from noonday.ports.queries import QueryStore
from noonday.ports.settings import SettingsStore
from noonday.ports.tokens import Tokens
from noonday.ports.workload import Workload

MOST = 10_000
"""Maximum number of rows counted to find a position. If there are more, the position is "at least"."""
RUNS = 20
"""Number of a job's latest executions from which its mean run time is computed."""
OVERDUE_MS = 30_000
"""Lateness from which on an entry that is first in its pool, and that no limit blocks, indicates a scheduler problem."""
UNCOUNTED_MS = 0
"""Instant for which pools are read, so that their due entries are not counted: that costs more the more are due."""


class BlockedBy(StrEnum):
    """The kind of limit or pause that blocks an entry."""

    PAUSE = "PAUSE"
    NO_WORKERS = "NO_WORKERS"
    KEY = "KEY"
    TENANT_CAP = "TENANT_CAP"
    TENANT_POOL_CAP = "TENANT_POOL_CAP"
    POOL_CAP = "POOL_CAP"
    TENANT_RATE = "TENANT_RATE"
    POOL_FULL = "POOL_FULL"
    TURN = "TURN"


class Blocker(msgspec.Struct, frozen=True):
    """The limit or pause that blocks a due entry."""

    by: BlockedBy
    reason: str
    """A sentence with figures."""
    position: int | None = None
    """Number of entries before it that wait for the same limit."""
    position_is_least: bool = False
    """True if more entries than `position` may be before it."""
    expected_ms: int | None = None
    """Estimated start, or None if unknown. If `position_is_least`, it starts no earlier."""


@dataclass(frozen=True)
class DueEntry:
    """A due entry of the timeline."""

    tenant: TenantId
    pool: str
    job_id: JobId
    mark: Mark
    concurrency: Concurrency | None = None


class BlockerFinder:
    """Finds the limit or pause that blocks a due entry."""

    def __init__(
        self, query_store: QueryStore, settings_store: SettingsStore, workload: Workload, tokens: Tokens, clock: Clock
    ) -> None:
        self._query_store = query_store
        self._settings_store = settings_store
        self._workload = workload
        self._tokens = tokens
        self._clock = clock

    async def find(self, entry: DueEntry) -> Blocker:
        """Return what blocks an entry: a pause, missing workers, a limit, a full pool, or the entries before it."""
        paused = await self.find_pause(entry.tenant, entry.pool)
        if paused:
            return Blocker(BlockedBy.PAUSE, paused)
        pool = next(iter(await self._workload.list_pools(UNCOUNTED_MS, entry.pool)), None)
        if pool is None or not pool.workers:
            return Blocker(BlockedBy.NO_WORKERS, f"pool {entry.pool!r} has no workers")
        limits = [limit for limit in await self._limits(entry) if limit.blocks]
        # A limit that is reached blocks for certain. One that the entries before it will reach counts if the pool is not full.
        for limit in sorted(limits, key=lambda limit: not limit.is_reached):
            if limit.is_reached or not _is_full(pool):
                return self._blocker(limit.by, limit.reason, limit.ahead, limit.wait_ms)
        return await self._its_turn(entry, pool)

    async def find_pause(self, tenant: str, pool: str) -> str | None:
        """Return the pause of a tenant or a pool as a sentence, or None."""
        return why_paused(await self._settings_store.pauses(), ("TENANT", tenant), ("POOL", pool))

    async def _limits(self, entry: DueEntry) -> list["_Limit"]:
        """Return the limits that an entry counts against. If several are reached, the first is named."""
        found = [await self._key(entry), *await self._caps(entry), await self._rate(entry)]
        return [limit for limit in found if limit]

    async def _key(self, entry: DueEntry) -> "_Limit | None":
        if entry.concurrency is None:
            return None
        key, limit, ordered = msgspec.structs.astuple(entry.concurrency)
        slot = (entry.tenant, of_ordering_key(key) if ordered else of_key(key))
        used = (await self._settings_store.slots([slot])).get(slot, Slots(0, None)).used
        ahead = await self._workload.due_before_with_key(entry.mark, MOST, entry.tenant, key)
        reason = f"concurrency key {key!r} has {used} of at most {limit} executions dispatched"
        if ordered:
            running = ": another execution runs or waits for a retry" if used else ""
            reason = f"it waits for its turn under ordering key {key!r}{running}"
        return await self._of_slots(entry, BlockedBy.KEY, reason, ahead, Slots(used, limit))

    async def _caps(self, entry: DueEntry) -> list["_Limit | None"]:
        keys = capped_by(entry.tenant, entry.pool)
        slots = await self._settings_store.slots(keys)
        caps = zip((BlockedBy.TENANT_CAP, BlockedBy.TENANT_POOL_CAP, BlockedBy.POOL_CAP), keys, strict=True)
        return [await self._cap(entry, by, slots[key]) for by, key in caps if key in slots]

    async def _cap(self, entry: DueEntry, by: BlockedBy, slots: Slots) -> "_Limit | None":
        pool = None if by is BlockedBy.TENANT_CAP else entry.pool
        ahead = await self._workload.due_before(entry.mark, MOST, tenant=entry.tenant, pool=pool)
        reason = f"{_capped(entry, by)} has {slots.used} of at most {slots.cap} executions dispatched"
        if by is not BlockedBy.POOL_CAP:
            return await self._of_slots(entry, by, reason, ahead, slots)
        turns = await self._turns(entry, ahead)
        return await self._of_slots(entry, by, reason + turns.text, ahead, slots, turns.before)

    async def _of_slots(
        self, entry: DueEntry, by: BlockedBy, reason: str, ahead: EntriesAhead, slots: Slots, before: int | None = None
    ) -> "_Limit | None":
        """Build the limit of slots, assuming that each is freed after the mean run time of the job."""
        if slots.cap is None:
            return None
        before = ahead.entries if before is None else before
        run_ms = await self._mean_run_ms(entry) if slots.cap else None
        wait_ms = None if run_ms is None else (before + 1) * run_ms / slots.cap
        free = slots.cap - slots.used
        return _Limit(by, reason, ahead, wait_ms, is_reached=free <= 0, blocks=free <= before)

    async def _rate(self, entry: DueEntry) -> "_Limit | None":
        found = await self._settings_store.find_tenant(entry.tenant)
        rate = rate_of(found[0]) if found else None
        if rate is None:
            return None
        ahead, now_ms = await self._workload.due_before(entry.mark, MOST, tenant=entry.tenant), self._clock.now_ms()
        try:
            (granted,) = await self._tokens.take([TokenRequest(entry.tenant, rate, 0)], now_ms)
        except TokensUnavailable:
            reason = f"the rate of tenant {entry.tenant!r} is unknown: its counters cannot be reached"
            return _Limit(BlockedBy.TENANT_RATE, reason, ahead, None, is_reached=True, blocks=True)
        is_spent = granted.more_ms > now_ms
        return _Limit(
            BlockedBy.TENANT_RATE,
            f"tenant {entry.tenant!r} has used up its rate of {rate.per_sec:g} a second",
            ahead,
            granted.more_ms - now_ms + ahead.entries * rate.interval_ms,
            is_reached=is_spent,
            blocks=is_spent or ahead.entries >= rate.burst,
        )

    async def _its_turn(self, entry: DueEntry, pool: PoolRow) -> Blocker:
        """Return the blocker of an entry that no limit blocks: a full pool, or the entries before it."""
        ahead = await self._workload.due_before(entry.mark, MOST, tenant=entry.tenant, pool=entry.pool)
        turns = await self._turns(entry, ahead)
        rate = rate_per_sec(await self._workload.figures(), self._clock.now_ms())
        if not _is_full(pool):
            late_ms = self._clock.now_ms() - entry.mark[0]
            if not turns.before and late_ms > OVERDUE_MS:
                reason = f"no limit blocks it and it is {late_ms // 1000} s late: check /readyz of the schedulers"
                return self._blocker(BlockedBy.TURN, reason, ahead, None)
            reason = f"it waits for its turn in pool {entry.pool!r}{turns.text}"
            return self._blocker(BlockedBy.TURN, reason, ahead, turns.before / rate * 1000 if rate else None)
        full = f"{pool.running} of {pool.capacity} running and {pool.queued} dispatched before it"
        before = pool.queued + turns.before + 1
        run_ms = await self._mean_run_ms(entry)
        by_runs = None if run_ms is None else before * run_ms / pool.capacity
        wait_ms = before / rate * 1000 if rate else by_runs
        return self._blocker(
            BlockedBy.POOL_FULL, f"pool {entry.pool!r} is full, with {full}{turns.text}", ahead, wait_ms
        )

    async def _turns(self, entry: DueEntry, ahead: EntriesAhead) -> "_Turns":
        all_tenants = await self._workload.due_before(entry.mark, MOST, pool=entry.pool)
        tenants = all_tenants.tenants + (not ahead.entries)
        before = min((ahead.entries + 1) * tenants - 1, max(all_tenants.entries, ahead.entries))
        return _Turns(before, f"; {tenants} tenants take turns there" if tenants > 1 else "")

    async def _mean_run_ms(self, entry: DueEntry) -> float | None:
        """Return the mean run time of the job's latest executions, or else of its tenant's since yesterday. None if unknown."""
        latest = await self._query_store.list_executions(entry.tenant, entry.job_id, state=None, after=None, limit=RUNS)
        runs = [each.finished_ms - each.started_ms for each in latest if each.finished_ms and each.started_ms]
        if runs:
            return sum(runs) / len(runs)
        today = self._clock.now_ms() // DAY_MS
        used = [used for _, used in await self._workload.usage(entry.tenant, today - 1, today)]
        count = sum(each.runs for each in used)
        return sum(each.run_ms for each in used) / count if count else None

    def _blocker(self, by: BlockedBy, reason: str, ahead: EntriesAhead, wait_ms: float | None) -> Blocker:
        expected_ms = None if wait_ms is None else self._clock.now_ms() + max(0, round(wait_ms))
        return Blocker(by, reason, ahead.entries, ahead.is_least, expected_ms)


@dataclass(frozen=True)
class _Limit:
    """A limit that an entry counts against."""

    by: BlockedBy
    reason: str
    ahead: EntriesAhead
    wait_ms: float | None
    is_reached: bool
    blocks: bool
    """True if it blocks the entry now, or will when the entries before it have been dispatched."""


@dataclass(frozen=True)
class _Turns:
    """Entries before one in its pool. Tenants take turns, so only some of other tenants' due entries are before it."""

    before: int
    """Estimated number of entries of all tenants."""
    text: str
    """A part of the reason, empty if the pool has one tenant."""


def still_awaited(concurrency: Concurrency | None, slots: Collection[str]) -> Concurrency | None:
    """Return the concurrency key that an execution still waits for. None if it keeps the slot of its ordering key."""
    return None if concurrency and of_ordering_key(concurrency.key) in slots else concurrency


def why_paused(pauses: Iterable[Pause], *targets: tuple[str, str]) -> str | None:
    """Return the pause of one of these (kind, name), or of everything, as a sentence, or None."""
    pause = next((pause for pause in pauses if (pause.kind, pause.name) in (("ALL", ""), *targets)), None)
    if pause is None:
        return None
    what = f"{pause.kind.lower()} {pause.name!r}" if pause.name else "everything"
    return f"{what} is paused since {utc_text(pause.since_ms)} by {pause.subject}"


def utc_text(ms: int) -> str:
    return f"{instant_of(ms):%Y-%m-%dT%H:%M:%SZ}"


def _is_full(pool: PoolRow) -> bool:
    return pool.running + pool.queued >= pool.capacity


def _capped(entry: DueEntry, by: BlockedBy) -> str:
    if by is BlockedBy.POOL_CAP:
        return f"pool {entry.pool!r}"
    return f"tenant {entry.tenant!r}" + (f" in pool {entry.pool!r}" if by is BlockedBy.TENANT_POOL_CAP else "")
