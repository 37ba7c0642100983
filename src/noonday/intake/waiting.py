"""Why something whose time has come has not started: what holds it, what is before it, and when it may start.

Everything is read from the store and from the counters of rates, so that any process can tell, whoever owns the timeline.
Positions and expected starts are estimates: HIGH goes before LOW, weights differ, others come and go.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import StrEnum

import msgspec

from noonday.model.errors import TokensUnavailable
from noonday.model.ids import JobId, TenantId
from noonday.model.job import Concurrency, instant_of
from noonday.model.recent import rate_per_sec
from noonday.model.slots import capped_by, of_key, of_ordering_key
from noonday.model.tenancy import rate_of
from noonday.model.usage import DAY_MS
from noonday.ports.archive import Ahead, Archive, Pause, PoolRow, Slots
from noonday.ports.clock import Clock
from noonday.ports.firing import Mark
from noonday.ports.tokens import Ask, Tokens

MOST = 10_000
"""Rows that are looked at to find a position; behind more than that it is 'at least'."""
RUNS = 20
"""How many of a job's latest executions say how long it runs."""
OVERDUE_MS = 30_000
"""An entry that is first in its pool, that no limit blocks and that is this late points at its scheduler."""
UNCOUNTED_MS = 0
"""Pools are asked for as of then, because to count what is due in them costs more the more is due."""


class By(StrEnum):
    """What holds."""

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
    by: By
    reason: str
    """In words, with figures."""
    position: int | None = None
    """How many are before it, of those that wait for the same."""
    position_is_least: bool = False
    expected_ms: int | None = None
    """About when it starts, if that can be told; not before then, if the position is the least."""


@dataclass(frozen=True)
class Waiter:
    """Something on the timeline that is due."""

    tenant: TenantId
    pool: str
    job_id: JobId
    mark: Mark
    concurrency: Concurrency | None = None


class Waiting:
    """Finds out what holds something that is due."""

    def __init__(self, archive: Archive, tokens: Tokens, clock: Clock) -> None:
        self._archive = archive
        self._tokens = tokens
        self._clock = clock

    async def of(self, waiter: Waiter) -> Blocker:
        paused = await self.find_pause(waiter.tenant, waiter.pool)
        if paused:
            return Blocker(By.PAUSE, paused)
        pool = next(iter(await self._archive.list_pools(UNCOUNTED_MS, waiter.pool)), None)
        if pool is None or not pool.workers:
            return Blocker(By.NO_WORKERS, f"pool {waiter.pool!r} has no workers")
        limits = [limit for limit in await self._limits(waiter) if limit.holds]
        # What is reached now holds it for certain; what those before it will use up only if nothing else does.
        for limit in sorted(limits, key=lambda limit: not limit.is_reached):
            if limit.is_reached or not _is_full(pool):
                return self._blocker(limit.by, limit.reason, limit.ahead, limit.wait_ms)
        return await self._its_turn(waiter, pool)

    async def find_pause(self, tenant: str, pool: str) -> str | None:
        """What holds everything of a tenant in a pool, in words."""
        return why_paused(await self._archive.pauses(), ("TENANT", tenant), ("POOL", pool))

    async def _limits(self, waiter: Waiter) -> list["_Limit"]:
        """Those that it counts against, in the order in which they are named if several are reached."""
        found = [await self._key(waiter), *await self._caps(waiter), await self._rate(waiter)]
        return [limit for limit in found if limit]

    async def _key(self, waiter: Waiter) -> "_Limit | None":
        if waiter.concurrency is None:
            return None
        key, limit, ordered = msgspec.structs.astuple(waiter.concurrency)
        slot = (waiter.tenant, of_ordering_key(key) if ordered else of_key(key))
        used = (await self._archive.slots([slot])).get(slot, Slots(0, None)).used
        ahead = await self._archive.due_before_with_key(waiter.mark, MOST, waiter.tenant, key)
        reason = f"concurrency key {key!r} has {used} of at most {limit} executions handed out"
        if ordered:
            running = ": one runs, or waits for a retry" if used else ""
            reason = f"it waits for its turn in the order of key {key!r}{running}"
        return await self._of_slots(waiter, By.KEY, reason, ahead, Slots(used, limit))

    async def _caps(self, waiter: Waiter) -> list["_Limit | None"]:
        keys = capped_by(waiter.tenant, waiter.pool)
        slots = await self._archive.slots(keys)
        caps = zip((By.TENANT_CAP, By.TENANT_POOL_CAP, By.POOL_CAP), keys, strict=True)
        return [await self._cap(waiter, by, slots[key]) for by, key in caps if key in slots]

    async def _cap(self, waiter: Waiter, by: By, slots: Slots) -> "_Limit | None":
        pool = None if by is By.TENANT_CAP else waiter.pool
        ahead = await self._archive.due_before(waiter.mark, MOST, tenant=waiter.tenant, pool=pool)
        reason = f"{_whose(waiter, by)} has {slots.used} of at most {slots.cap} executions handed out"
        if by is not By.POOL_CAP:
            return await self._of_slots(waiter, by, reason, ahead, slots)
        turns = await self._turns(waiter, ahead)
        return await self._of_slots(waiter, by, reason + turns.told, ahead, slots, turns.before)

    async def _of_slots(
        self, waiter: Waiter, by: By, reason: str, ahead: Ahead, slots: Slots, before: int | None = None
    ) -> "_Limit | None":
        """Each slot is free again after about as long as the job runs."""
        if slots.cap is None:
            return None
        before = ahead.entries if before is None else before
        run_ms = await self._mean_run_ms(waiter) if slots.cap else None
        wait_ms = None if run_ms is None else (before + 1) * run_ms / slots.cap
        free = slots.cap - slots.used
        return _Limit(by, reason, ahead, wait_ms, is_reached=free <= 0, holds=free <= before)

    async def _rate(self, waiter: Waiter) -> "_Limit | None":
        found = await self._archive.find_tenant(waiter.tenant)
        rate = rate_of(found[0]) if found else None
        if rate is None:
            return None
        ahead, now_ms = await self._archive.due_before(waiter.mark, MOST, tenant=waiter.tenant), self._clock.now_ms()
        try:
            (granted,) = await self._tokens.take([Ask(waiter.tenant, rate, 0)], now_ms)
        except TokensUnavailable:
            reason = f"the rate of tenant {waiter.tenant!r} cannot be counted at present"
            return _Limit(By.TENANT_RATE, reason, ahead, None, is_reached=True, holds=True)
        is_spent = granted.more_ms > now_ms
        return _Limit(
            By.TENANT_RATE,
            f"tenant {waiter.tenant!r} has used up its rate of {rate.per_sec:g} a second",
            ahead,
            granted.more_ms - now_ms + ahead.entries * rate.interval_ms,
            is_reached=is_spent,
            holds=is_spent or ahead.entries >= rate.burst,
        )

    async def _its_turn(self, waiter: Waiter, pool: PoolRow) -> Blocker:
        """Nothing but others is in its way."""
        ahead = await self._archive.due_before(waiter.mark, MOST, tenant=waiter.tenant, pool=waiter.pool)
        turns = await self._turns(waiter, ahead)
        rate = rate_per_sec(await self._archive.figures(), self._clock.now_ms())
        if not _is_full(pool):
            late_ms = self._clock.now_ms() - waiter.mark[0]
            if not turns.before and late_ms > OVERDUE_MS:
                reason = f"no limit blocks it and it is {late_ms // 1000} s late: check /readyz of the schedulers"
                return self._blocker(By.TURN, reason, ahead, None)
            reason = f"it has to wait for its turn in pool {waiter.pool!r}{turns.told}"
            return self._blocker(By.TURN, reason, ahead, turns.before / rate * 1000 if rate else None)
        full = f"{pool.running} of {pool.capacity} running and {pool.queued} handed out before it"
        before = pool.queued + turns.before + 1
        run_ms = await self._mean_run_ms(waiter)
        by_runs = None if run_ms is None else before * run_ms / pool.capacity
        wait_ms = before / rate * 1000 if rate else by_runs
        return self._blocker(By.POOL_FULL, f"pool {waiter.pool!r} is full, with {full}{turns.told}", ahead, wait_ms)

    async def _turns(self, waiter: Waiter, ahead: Ahead) -> "_Turns":
        everyone = await self._archive.due_before(waiter.mark, MOST, pool=waiter.pool)
        tenants = everyone.tenants + (not ahead.entries)
        before = min((ahead.entries + 1) * tenants - 1, max(everyone.entries, ahead.entries))
        return _Turns(before, f"; {tenants} tenants take turns there" if tenants > 1 else "")

    async def _mean_run_ms(self, waiter: Waiter) -> float | None:
        """Of the job lately, or else of its tenant."""
        latest = await self._archive.list_executions(waiter.tenant, waiter.job_id, state=None, after=None, limit=RUNS)
        runs = [each.finished_ms - each.started_ms for each in latest if each.finished_ms and each.started_ms]
        if runs:
            return sum(runs) / len(runs)
        today = self._clock.now_ms() // DAY_MS
        used = [used for _, used in await self._archive.usage(waiter.tenant, today - 1, today)]
        count = sum(each.runs for each in used)
        return sum(each.run_ms for each in used) / count if count else None

    def _blocker(self, by: By, reason: str, ahead: Ahead, wait_ms: float | None) -> Blocker:
        expected_ms = None if wait_ms is None else self._clock.now_ms() + max(0, round(wait_ms))
        return Blocker(by, reason, ahead.entries, ahead.is_least, expected_ms)


@dataclass(frozen=True)
class _Limit:
    """Something that it counts against."""

    by: By
    reason: str
    ahead: Ahead
    wait_ms: float | None
    is_reached: bool
    holds: bool
    """Now, or when those before it have had their share."""


@dataclass(frozen=True)
class _Turns:
    """Tenants take turns in a pool, so that of what others have due only some is before it."""

    before: int
    """About how many, of whomever."""
    told: str


def still_awaited(concurrency: Concurrency | None, slots: Collection[str]) -> Concurrency | None:
    """What an execution with these slots has yet to wait for: not for a line of which it has the slot."""
    return None if concurrency and of_ordering_key(concurrency.key) in slots else concurrency


def why_paused(pauses: Iterable[Pause], *of: tuple[str, str]) -> str | None:
    """In words, if something is held that is named, or everything is."""
    pause = next((pause for pause in pauses if (pause.kind, pause.name) in (("ALL", ""), *of)), None)
    if pause is None:
        return None
    what = f"{pause.kind.lower()} {pause.name!r}" if pause.name else "everything"
    return f"{what} is paused since {in_words(pause.since_ms)} by {pause.subject}"


def in_words(ms: int) -> str:
    return f"{instant_of(ms):%Y-%m-%dT%H:%M:%SZ}"


def _is_full(pool: PoolRow) -> bool:
    return pool.running + pool.queued >= pool.capacity


def _whose(waiter: Waiter, by: By) -> str:
    if by is By.POOL_CAP:
        return f"pool {waiter.pool!r}"
    return f"tenant {waiter.tenant!r}" + (f" in pool {waiter.pool!r}" if by is By.TENANT_POOL_CAP else "")
