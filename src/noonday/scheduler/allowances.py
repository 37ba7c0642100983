"""What tenants may take of what is ready: their weights and rates as they are set at present, and what is held."""

import sys
from collections.abc import Mapping

from noonday.model.errors import TokensUnavailable
from noonday.model.ids import TenantId
from noonday.model.rate import Rate
from noonday.model.shares import Shares
from noonday.model.view import TenantSettings
from noonday.ports.archive import Archive
from noonday.ports.clock import Clock
from noonday.ports.hot_index import HotIndex
from noonday.ports.tokens import Ask, Tokens

OVERLAP_MS = 60_000
"""Settings are read again from so long before the newest that was seen: what was written later may say an earlier time."""
TRY_AGAIN_MS = 500


class Allowances:
    """Follows the tenants' settings, and takes their tokens before the entries are claimed that use them."""

    def __init__(self, archive: Archive, tokens: Tokens, index: HotIndex, clock: Clock) -> None:
        self._archive = archive
        self._tokens = tokens
        self._index = index
        self._clock = clock
        self._pauses: frozenset[tuple[str, str]] = frozenset()
        self._weights: dict[str, int] = {}
        self._rates: dict[str, Rate] = {}
        self._seen_ms: int | None = None
        """The newest that was seen; None before the first look."""
        self.blocked: dict[str, int] = {}
        """Tenants that have something ready and no token, and when there is one."""

    async def run_once(self, now_ms: int) -> int:
        """Learn what was set since the last time, and what is held. There is never more to do at once."""
        self._pauses = frozenset((pause.kind, pause.name) for pause in await self._archive.pauses())
        rows = await self._archive.tenants_since((self._seen_ms or 0) - OVERLAP_MS)
        for tenant, settings, _ in rows:
            self._set(tenant, settings)
        self._seen_ms = max([self._seen_ms or 0, *(updated_ms for _, _, updated_ms in rows)])
        return 0

    def _set(self, tenant: TenantId, settings: TenantSettings) -> None:
        self._weights.pop(tenant, None)
        self._rates.pop(tenant, None)
        if settings.weight != 1:
            self._weights[tenant] = settings.weight
        rate = rate_of(settings)
        if rate is not None:
            self._rates[tenant] = rate

    def credit(self, credit: Mapping[str, int]) -> Mapping[str, int]:
        """What is left of the credit of pools: those that are held have none."""
        if not self._pauses:
            return credit
        if ("ALL", "") in self._pauses:
            return {}
        return {pool: room for pool, room in credit.items() if ("POOL", pool) not in self._pauses}

    async def shares(self, credit: Mapping[str, int], limit: int) -> Shares:
        """For a claim of at most so many."""
        if self._seen_ms is None:
            await self.run_once(self._clock.now_ms())
        paused = {name for kind, name in self._pauses if kind == "TENANT"}
        self.blocked = dict.fromkeys(paused, sys.maxsize)
        if not self._rates:
            return Shares(self._weights, paused)
        now_ms = self._clock.now_ms()
        waiting = self._index.waiting(now_ms, credit, self._rates)
        wanted = {tenant: min(count, limit) for tenant, count in waiting.items() if tenant not in paused}
        rooms = await self._take(wanted, now_ms)
        return Shares(self._weights, self._rates.keys() | paused, rooms)

    async def _take(self, wanted: Mapping[str, int], now_ms: int) -> dict[str, int]:
        if not wanted:
            return {}
        asks = [Ask(TenantId(tenant), self._rates[tenant], count) for tenant, count in wanted.items()]
        try:
            answers = await self._tokens.take(asks, now_ms)
        except TokensUnavailable:
            self.blocked |= dict.fromkeys(wanted, now_ms + TRY_AGAIN_MS)
            return {}
        rooms = {}
        for tenant, granted in zip(wanted, answers, strict=True):
            if granted.count:
                rooms[tenant] = granted.count
            if granted.count < wanted[tenant]:
                self.blocked[tenant] = granted.more_ms
        return rooms

    async def give_back(self, shares: Shares) -> None:
        """Tokens that were taken and not used. If they cannot be given back, they are lost: a little less is started."""
        unused = [
            Ask(TenantId(tenant), self._rates[tenant], -count)
            for tenant, count in shares.rooms.items()
            if count > 0 and tenant in self._rates
        ]
        if unused:
            try:
                await self._tokens.take(unused, self._clock.now_ms())
            except TokensUnavailable:
                return


def rate_of(settings: TenantSettings) -> Rate | None:
    """Without a burst, a second's worth at once."""
    if settings.rate_per_sec is None:
        return None
    return Rate(settings.rate_per_sec, settings.burst or max(1, round(settings.rate_per_sec)))
