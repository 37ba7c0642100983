"""What tenants may take of what is ready: their weights, rates and caps as they are set at present, and what is blocked."""

import contextlib
import sys
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence

import msgspec

from noonday.model.errors import TokensUnavailable
from noonday.model.ids import TenantId
from noonday.model.message import Dispatch
from noonday.model.rate import Rate
from noonday.model.shares import Shares, Within
from noonday.model.slots import NOBODY, OF_TENANT, SlotKey, capped_by, caps_of_tenant, of_pool, of_tenant_in, pool_in
from noonday.model.tenancy import rate_of
from noonday.model.view import TenantSettings
from noonday.ports.archive import Archive
from noonday.ports.clock import Clock
from noonday.ports.firing import Blocked
from noonday.ports.hot_index import HotIndex
from noonday.ports.tokens import Ask, Tokens
from noonday.scheduler.in_flight import InFlight

TRY_AGAIN_MS = 500
LOOK_AGAIN_MS = 20
"""How soon it is looked whether a cap that was reached has room again."""


class Allowances:
    """Follows the settings of tenants and pools; before a claim, sees how much each of them may take of it."""

    def __init__(self, archive: Archive, tokens: Tokens, index: HotIndex, clock: Clock, in_flight: InFlight) -> None:
        self._archive = archive
        self._tokens = tokens
        self._index = index
        self._clock = clock
        self._in_flight = in_flight
        """What the store has not counted yet."""
        self._pauses: frozenset[tuple[str, str]] = frozenset()
        self._weights: dict[str, int] = {}
        self._rates: dict[str, Rate] = {}
        self._capped: dict[str, list[SlotKey]] = {}
        """Of tenants that have caps: which."""
        self._tenants: set[str] = set()
        """Those that have any limit."""
        self._limited: set[Within] = set()
        """Who may take no more than a claim has room for: by rate or by cap, everywhere or in a pool."""
        self._capped_pools: frozenset[str] = frozenset()
        self._seen: int | None = None
        """Sequence number of the newest settings that were seen; None before the first look."""
        self._full: dict[str, int] = {}
        """Pools that have reached their cap, and when to look again."""
        self.blocked: dict[Within, int] = {}
        """Tenants that have something ready and may not take it, everywhere or in a pool; and when that may be over."""

    async def run_once(self, now_ms: int) -> int:
        """Learn what was set since the last time, and what is blocked. There is never more to do at once."""
        self._pauses = frozenset((pause.kind, pause.name) for pause in await self._archive.pauses())
        self._capped_pools = frozenset(await self._archive.capped_pools())
        seen = self._seen or 0
        for tenant, settings, seq in await self._archive.tenants_after(seen):
            self._set(tenant, settings)
            seen = seq
        self._seen = seen
        return 0

    def _set(self, tenant: TenantId, settings: TenantSettings) -> None:
        self._limited.difference_update(self._limits_of(tenant))
        for known in (self._weights, self._rates, self._capped):
            known.pop(tenant, None)
        if settings.weight != 1:
            self._weights[tenant] = settings.weight
        rate = rate_of(settings)
        if rate is not None:
            self._rates[tenant] = rate
        capped = [key for key, cap in caps_of_tenant(tenant, settings).items() if cap is not None]
        if capped:
            self._capped[tenant] = capped
        self._limited.update(self._limits_of(tenant))
        self._tenants.discard(tenant)
        if tenant in self._rates or capped:
            self._tenants.add(tenant)

    def _limits_of(self, tenant: str) -> Iterator[Within]:
        if tenant in self._rates:
            yield tenant
        for _, name in self._capped.get(tenant, ()):
            pool = pool_in(name)
            yield tenant if pool is None else (pool, tenant)

    def credit(self, credit: Mapping[str, int]) -> Mapping[str, int]:
        """What is left of the credit of pools: those that are blocked, or were found full, have none."""
        if not (self._pauses or self._full):
            return credit
        if ("ALL", "") in self._pauses:
            return {}
        return {
            pool: room for pool, room in credit.items() if ("POOL", pool) not in self._pauses and pool not in self._full
        }

    @property
    def look_again_ms(self) -> int | None:
        """When something that is blocked back now may go."""
        return min((*self.blocked.values(), *self._full.values()), default=None)

    async def for_claim(self, credit: Mapping[str, int], limit: int) -> tuple[Mapping[str, int], Shares]:
        """What pools may be given and what tenants may take, in a claim of at most so many."""
        if self._seen is None:
            await self.run_once(self._clock.now_ms())
        now_ms, self._full = self._clock.now_ms(), {}
        credit = self.credit(credit)
        paused = {name for kind, name in self._pauses if kind == "TENANT"}
        self.blocked = dict.fromkeys(paused, sys.maxsize)
        if not (self._limited or self._capped_pools):
            return credit, Shares(self._weights, paused=paused)
        waiting = self._waiting(now_ms, credit, limit, paused)
        free = await self._free(credit, waiting)
        rooms = self._rooms(waiting, free, now_ms)
        granted = await self._take(self._wanted(waiting, rooms, limit), now_ms)
        # Whoever has a rate may take what it has tokens for, and has no more than that to give back.
        rooms |= {tenant: granted.get(tenant, 0) for _, tenant in waiting if tenant in self._rates}
        return self._within_caps(credit, free, now_ms), Shares(self._weights, self._limited, rooms, paused=paused)

    def _waiting(
        self, now_ms: int, credit: Mapping[str, int], limit: int, paused: Container[str]
    ) -> dict[tuple[str, str], int]:
        """How much those who have a limit could take, by (pool, tenant)."""
        found = self._index.waiting(now_ms, credit, self._tenants)
        return {key: min(count, limit) for key, count in found.items() if key[1] not in paused}

    async def _free(self, credit: Mapping[str, int], waiting: Iterable[tuple[str, str]]) -> dict[SlotKey, int]:
        """How many slots of what has a cap are free, as far as it matters, apart from what is on its way."""
        keys = {key for _, tenant in waiting for key in self._capped.get(tenant, ())}
        pools = {(NOBODY, of_pool(pool)): pool for pool in credit if pool in self._capped_pools}
        if not (keys or pools):
            return {}
        found = await self._archive.slots([*keys, *pools])
        on_its_way: Counter[SlotKey] = Counter()
        for (pool, tenant), count in self._in_flight.by_pool_and_tenant().items():
            for key in capped_by(tenant, pool):
                on_its_way[key] += count
        return {key: slots.cap - slots.used - on_its_way[key] for key, slots in found.items() if slots.cap is not None}

    def _within_caps(self, credit: Mapping[str, int], free: Mapping[SlotKey, int], now_ms: int) -> Mapping[str, int]:
        left = {}
        for pool, room in credit.items():
            left[pool] = min(room, free.get((NOBODY, of_pool(pool)), room))
            if left[pool] <= 0 < room:
                self._full[pool] = now_ms + LOOK_AGAIN_MS
        return left

    def _rooms(self, waiting: Iterable[tuple[str, str]], free: Mapping[SlotKey, int], now_ms: int) -> dict[Within, int]:
        """As far as caps go, of those that wait."""
        rooms: dict[Within, int] = {}
        for pool, tenant in waiting:
            within: tuple[tuple[Within, str], ...] = ((tenant, OF_TENANT), ((pool, tenant), of_tenant_in(pool)))
            for each, name in within:
                if each in self._limited:
                    rooms[each] = free.get((tenant, name), sys.maxsize)
                    if rooms[each] <= 0:
                        self.blocked[each] = now_ms + LOOK_AGAIN_MS
        return rooms

    def _wanted(
        self, waiting: Mapping[tuple[str, str], int], rooms: Mapping[Within, int], limit: int
    ) -> dict[str, int]:
        """How many tokens those that have a rate could use."""
        wanted: dict[str, int] = {}
        for (pool, tenant), count in waiting.items():
            if tenant in self._rates:
                wanted[tenant] = wanted.get(tenant, 0) + min(count, rooms.get((pool, tenant), count))
        return {
            tenant: most
            for tenant, count in wanted.items()
            if (most := min(count, limit, rooms.get(tenant, limit))) > 0
        }

    def weighed(self, dispatches: Sequence[Dispatch]) -> Sequence[Dispatch]:
        """With the weights of their tenants, for workers to go by."""
        if not self._weights:
            return dispatches
        return [
            dispatch if weight is None else msgspec.structs.replace(dispatch, weight=weight)
            for dispatch in dispatches
            for weight in (self._weights.get(dispatch.tenant),)
        ]

    async def _take(self, wanted: Mapping[str, int], now_ms: int) -> dict[Within, int]:
        if not wanted:
            return {}
        asks = [Ask(TenantId(tenant), self._rates[tenant], count) for tenant, count in wanted.items()]
        try:
            answers = await self._tokens.take(asks, now_ms)
        except TokensUnavailable:
            self.blocked |= dict.fromkeys(wanted, now_ms + TRY_AGAIN_MS)
            return dict.fromkeys(wanted, 0)
        rooms: dict[Within, int] = {}
        for tenant, granted in zip(wanted, answers, strict=True):
            rooms[tenant] = granted.count
            if granted.count < wanted[tenant]:
                self.blocked[tenant] = granted.more_ms
        return rooms

    async def give_back(self, shares: Shares) -> None:
        """Tokens that were taken and not used. If they cannot be given back, they are lost: a little less is started."""
        await self._give_back({tenant: count for tenant, count in shares.rooms.items() if isinstance(tenant, str)})

    async def give_back_of(self, blocked: Iterable[Blocked]) -> None:
        """The tokens of what was claimed, and is blocked: nothing of it was started, and it will be claimed again."""
        if self._rates:
            await self._give_back(Counter(each.entry.tenant for each in blocked))

    async def _give_back(self, counts: Mapping[str, int]) -> None:
        unused = [
            Ask(TenantId(tenant), self._rates[tenant], -count)
            for tenant, count in counts.items()
            if count > 0 and tenant in self._rates
        ]
        if unused:
            with contextlib.suppress(TokensUnavailable):
                await self._tokens.take(unused, self._clock.now_ms())
