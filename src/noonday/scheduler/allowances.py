"""Limits of tenants and pools, applied to each claim: weights, rates, caps and pauses."""

import contextlib
import sys
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence

import msgspec

from noonday.model.errors import TokensUnavailable
from noonday.model.firing import Entry
from noonday.model.ids import TenantId
from noonday.model.message import Dispatch
from noonday.model.rate import Rate, TokenRequest
from noonday.model.shares import Shares, Within
from noonday.model.slots import NOBODY, OF_TENANT, SlotKey, capped_by, caps_of_tenant, of_pool, of_tenant_in, pool_in
from noonday.model.tenancy import rate_of
from noonday.model.view import TenantSettings
from noonday.ports.clock import Clock
from noonday.ports.hot_index import HotIndex
from noonday.ports.settings import SettingsStore
from noonday.ports.tokens import Tokens
from noonday.scheduler.in_flight import InFlight

TOKENS_RETRY_MS = 500
"""Wait before rate tokens are requested again after they were unavailable."""
CAP_RETRY_MS = 20
"""Wait before a cap that was reached is checked again."""


class Allowances:
    """Follows the settings of tenants and pools, and computes how much each of them may take in a claim."""

    def __init__(
        self, settings_store: SettingsStore, tokens: Tokens, index: HotIndex, clock: Clock, in_flight: InFlight
    ) -> None:
        self._settings_store = settings_store
        self._tokens = tokens
        self._index = index
        self._clock = clock
        self._in_flight = in_flight
        """Entries that the store has not counted yet."""
        self._pauses: frozenset[tuple[str, str]] = frozenset()
        self._weights: dict[str, int] = {}
        self._rates: dict[str, Rate] = {}
        self._capped: dict[str, list[SlotKey]] = {}
        """Slot keys of each tenant's caps. Tenants without a cap are missing."""
        self._limited_tenants: set[str] = set()
        """Tenants that have a rate or a cap."""
        self._limited: set[Within] = set()
        """Tenants and (pool, tenant) pairs that have a rate or a cap, and so may take no more than a claim has room for."""
        self._capped_pools: frozenset[str] = frozenset()
        self._settings_seq: int | None = None
        """Sequence number of the newest settings read; None before the first read."""
        self._full_pools: dict[str, int] = {}
        """Pools that have reached their cap, and when to check each of them again."""
        self.blocked: dict[Within, int] = {}
        """Tenants and (pool, tenant) pairs whose ready entries may not be claimed, and when that may end."""

    async def run_once(self, now_ms: int) -> int:
        """Read pauses, and settings that changed since the last round. Returns 0: one round reads all of them."""
        self._pauses = frozenset((pause.kind, pause.name) for pause in await self._settings_store.pauses())
        self._capped_pools = frozenset(await self._settings_store.capped_pools())
        newest = self._settings_seq or 0
        for tenant, settings, seq in await self._settings_store.tenants_after(newest):
            self._set(tenant, settings)
            newest = seq
        self._settings_seq = newest
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
        self._limited_tenants.discard(tenant)
        if tenant in self._rates or capped:
            self._limited_tenants.add(tenant)

    def _limits_of(self, tenant: str) -> Iterator[Within]:
        if tenant in self._rates:
            yield tenant
        for _, name in self._capped.get(tenant, ()):
            pool = pool_in(name)
            yield tenant if pool is None else (pool, tenant)

    def credit(self, credit: Mapping[str, int]) -> Mapping[str, int]:
        """Return the credit of the pools that are neither paused nor full."""
        if not (self._pauses or self._full_pools):
            return credit
        if ("ALL", "") in self._pauses:
            return {}
        return {
            pool: room
            for pool, room in credit.items()
            if ("POOL", pool) not in self._pauses and pool not in self._full_pools
        }

    @property
    def retry_at_ms(self) -> int | None:
        """Time when the next blocked entry may be claimed; None if nothing is blocked."""
        return min((*self.blocked.values(), *self._full_pools.values()), default=None)

    async def for_claim(self, credit: Mapping[str, int], limit: int) -> tuple[Mapping[str, int], Shares]:
        """Return what pools may be given and what tenants may take, in a claim of at most `limit` entries."""
        if self._settings_seq is None:
            await self.run_once(self._clock.now_ms())
        now_ms, self._full_pools = self._clock.now_ms(), {}
        credit = self.credit(credit)
        paused = {name for kind, name in self._pauses if kind == "TENANT"}
        self.blocked = dict.fromkeys(paused, sys.maxsize)
        if not (self._limited or self._capped_pools):
            return credit, Shares(self._weights, paused=paused)
        waiting = self._waiting(now_ms, credit, limit, paused)
        free = await self._free(credit, waiting)
        rooms = self._rooms(waiting, free, now_ms)
        granted = await self._take_tokens(self._token_demand(waiting, rooms, limit), now_ms)
        # A tenant with a rate may take as many entries as it has tokens, and gives back no more than those.
        rooms |= {tenant: granted.get(tenant, 0) for _, tenant in waiting if tenant in self._rates}
        return self._within_caps(credit, free, now_ms), Shares(self._weights, self._limited, rooms, paused=paused)

    def _waiting(
        self, now_ms: int, credit: Mapping[str, int], limit: int, paused: Container[str]
    ) -> dict[tuple[str, str], int]:
        """Return how many entries tenants with a limit could take, by (pool, tenant)."""
        found = self._index.waiting(now_ms, credit, self._limited_tenants)
        return {key: min(count, limit) for key, count in found.items() if key[1] not in paused}

    async def _free(self, credit: Mapping[str, int], waiting: Iterable[tuple[str, str]]) -> dict[SlotKey, int]:
        """Return the free slots of the caps that matter to this claim, less those that entries in flight will take."""
        keys = {key for _, tenant in waiting for key in self._capped.get(tenant, ())}
        pools = {(NOBODY, of_pool(pool)): pool for pool in credit if pool in self._capped_pools}
        if not (keys or pools):
            return {}
        found = await self._settings_store.slots([*keys, *pools])
        in_flight: Counter[SlotKey] = Counter()
        for (pool, tenant), count in self._in_flight.by_pool_and_tenant().items():
            for key in capped_by(tenant, pool):
                in_flight[key] += count
        return {key: slots.cap - slots.used - in_flight[key] for key, slots in found.items() if slots.cap is not None}

    def _within_caps(self, credit: Mapping[str, int], free: Mapping[SlotKey, int], now_ms: int) -> Mapping[str, int]:
        left = {}
        for pool, room in credit.items():
            left[pool] = min(room, free.get((NOBODY, of_pool(pool)), room))
            if left[pool] <= 0 < room:
                self._full_pools[pool] = now_ms + CAP_RETRY_MS
        return left

    def _rooms(self, waiting: Iterable[tuple[str, str]], free: Mapping[SlotKey, int], now_ms: int) -> dict[Within, int]:
        """Return the room that caps leave to tenants with ready entries."""
        rooms: dict[Within, int] = {}
        for pool, tenant in waiting:
            within: tuple[tuple[Within, str], ...] = ((tenant, OF_TENANT), ((pool, tenant), of_tenant_in(pool)))
            for each, name in within:
                if each in self._limited:
                    rooms[each] = free.get((tenant, name), sys.maxsize)
                    if rooms[each] <= 0:
                        self.blocked[each] = now_ms + CAP_RETRY_MS
        return rooms

    def _token_demand(
        self, waiting: Mapping[tuple[str, str], int], rooms: Mapping[Within, int], limit: int
    ) -> dict[str, int]:
        """Return how many tokens each tenant with a rate could use."""
        demand: dict[str, int] = {}
        for (pool, tenant), count in waiting.items():
            if tenant in self._rates:
                demand[tenant] = demand.get(tenant, 0) + min(count, rooms.get((pool, tenant), count))
        return {
            tenant: most
            for tenant, count in demand.items()
            if (most := min(count, limit, rooms.get(tenant, limit))) > 0
        }

    def with_weights(self, dispatches: Sequence[Dispatch]) -> Sequence[Dispatch]:
        """Return the dispatches with the weights of their tenants, which workers go by."""
        if not self._weights:
            return dispatches
        return [
            dispatch if weight is None else msgspec.structs.replace(dispatch, weight=weight)
            for dispatch in dispatches
            for weight in (self._weights.get(dispatch.tenant),)
        ]

    async def _take_tokens(self, demand: Mapping[str, int], now_ms: int) -> dict[Within, int]:
        if not demand:
            return {}
        requests = [TokenRequest(TenantId(tenant), self._rates[tenant], count) for tenant, count in demand.items()]
        try:
            answers = await self._tokens.take(requests, now_ms)
        except TokensUnavailable:
            self.blocked |= dict.fromkeys(demand, now_ms + TOKENS_RETRY_MS)
            return dict.fromkeys(demand, 0)
        rooms: dict[Within, int] = {}
        for tenant, granted in zip(demand, answers, strict=True):
            rooms[tenant] = granted.count
            if granted.count < demand[tenant]:
                self.blocked[tenant] = granted.more_ms
        return rooms

    async def give_back(self, shares: Shares) -> None:
        """Give back tokens that a claim took and did not use. If they cannot be given back they are lost: a little less is
        started."""
        await self._return_tokens({tenant: count for tenant, count in shares.rooms.items() if isinstance(tenant, str)})

    async def give_back_unused(self, claimed: Iterable[Entry], dispatches: Iterable[Dispatch]) -> None:
        """Give back the tokens of claimed entries that became no dispatch: blocked, skipped, buffered, stale or not fired."""
        if self._rates:
            unused = Counter(entry.tenant for entry in claimed)
            unused.subtract(Counter(dispatch.tenant for dispatch in dispatches))
            await self._return_tokens(unused)

    async def _return_tokens(self, counts: Mapping[str, int]) -> None:
        unused = [
            TokenRequest(TenantId(tenant), self._rates[tenant], -count)
            for tenant, count in counts.items()
            if count > 0 and tenant in self._rates
        ]
        if unused:
            with contextlib.suppress(TokensUnavailable):
                await self._tokens.take(unused, self._clock.now_ms())
