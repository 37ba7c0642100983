"""What a tenant may have: how many of its jobs wait for their time."""

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from math import ceil
from typing import NamedTuple

from noonday.model.errors import QuotaExceeded
from noonday.model.ids import TenantId
from noonday.model.view import TenantSettings
from noonday.ports.archive import Archive
from noonday.ports.clock import Clock

MAX_JOBS = "max-jobs"
"""The name of the policy, as problems and headers have it."""
MOST_TENANTS = 10_000
SETTINGS_FRESH_SEC = 1.0
FRESH_SEC = 2.0
FRESH_FAR_FROM_FULL_SEC = 10.0
NEARLY_FULL = 0.9
BEYOND = 1_000
"""So many are counted beyond the quota, for whoever has more than it may have is told how many."""
SOONEST_SEC, LATEST_SEC = 1, 3_600


class Standing(NamedTuple):
    """How much of its quota a tenant uses, as far as is known here."""

    limit: int
    used: int

    @property
    def left(self) -> int:
        return max(0, self.limit - self.used)


class Room:
    """Places for the new jobs of one request, kept while they are stored: `with await quotas.room(...) as room`."""

    __slots__ = ("_known", "_taken", "made", "refused", "why")

    def __init__(
        self,
        known: "_Known | None" = None,
        taken: int = 0,
        refused: Sequence[int] = (),
        why: QuotaExceeded | None = None,
    ) -> None:
        self.refused = frozenset(refused)
        """Which of them there is no place for, by their order in the request."""
        self.why = why
        self.made = 0
        """To be told by whoever stores them: how many of them did not exist before."""
        self._known = known
        self._taken = taken

    def __enter__(self) -> "Room":
        return self

    def __exit__(self, *exception: object) -> None:
        if self._known:
            self._known.give_back(self._taken, self.made)


class Quotas:
    """Follows the settings of tenants, and counts the jobs of those that may have only so many.

    A count is believed for a few seconds, with what this process has created since. Nobody is refused by it: before that,
    what is being stored is waited for, and it is counted anew. What other processes create meanwhile is seen by the next
    count, so that together they may admit more than the quota: as much as they create in these seconds.
    """

    def __init__(self, archive: Archive, clock: Clock, most_tenants: int = MOST_TENANTS) -> None:
        """`most_tenants`: how many are remembered."""
        self._archive = archive
        self._clock = clock
        self._most_tenants = most_tenants
        self._known: OrderedDict[TenantId, _Known] = OrderedDict()

    async def settings(self, tenant: TenantId) -> TenantSettings:
        """The tenant's settings, as they were at most a second ago."""
        known = self._known.get(tenant)
        if known is None or self._clock.monotonic() >= known.settings_until:
            known = await self._look(tenant)
        return known.settings

    def forget(self, tenant: TenantId) -> None:
        """Its settings were changed: look at them again."""
        if known := self._known.get(tenant):
            known.settings_until = known.counted_at = _LONG_AGO

    def standing(self, tenant: TenantId) -> Standing | None:
        """None: the tenant has no quota, or nothing of it was asked yet."""
        known = self._known.get(tenant)
        if known is None or known.settings.max_jobs is None:
            return None
        return Standing(known.settings.max_jobs, known.used)

    async def room(self, tenant: TenantId, keys: Sequence[str | None], *, whole: bool = False) -> Room:
        """Places for new jobs, given the unique key of each. `whole`: for all of them; raises QuotaExceeded."""
        limit = (await self.settings(tenant)).max_jobs
        if limit is None:
            return Room()
        known, came_after = self._known[tenant], self._known[tenant].counts_begun
        if not known.deciding.locked() and known.is_fresh(limit, self._clock.monotonic()) and known.fit(keys, limit):
            return known.take(len(keys))
        async with known.deciding:
            if await self._all_fit(tenant, known, limit, keys, came_after):
                return known.take(len(keys))
            return await self._some(tenant, known, Standing(limit, known.used), keys, whole)

    async def _look(self, tenant: TenantId) -> "_Known":
        found = await self._archive.find_tenant(tenant)
        known = self._known.setdefault(tenant, _Known())
        settings = found[0] if found else _NO_LIMITS
        if settings.max_jobs != known.settings.max_jobs:
            known.counted_at = _LONG_AGO
        known.settings, known.settings_until = settings, self._clock.monotonic() + SETTINGS_FRESH_SEC
        self._known.move_to_end(tenant)
        while len(self._known) > self._most_tenants:
            self._known.popitem(last=False)
        return known

    async def _all_fit(
        self, tenant: TenantId, known: "_Known", limit: int, keys: Sequence[str | None], came_after: int
    ) -> bool:
        if not known.is_fresh(limit, self._clock.monotonic()):
            await self._count(tenant, known, limit)
        # Of many that wait for their turn, one counts for all that came before it did.
        if not known.fit(keys, limit) and known.last_count <= came_after:
            await self._count(tenant, known, limit)
        return known.fit(keys, limit)

    async def _some(
        self, tenant: TenantId, known: "_Known", standing: Standing, keys: Sequence[str | None], whole: bool
    ) -> Room:
        new = await self._new_ones(tenant, keys)
        if len(new) <= standing.left:
            return known.take(len(keys))
        why = _exceeded(tenant, standing, len(new), await self._retry_after_sec(tenant))
        if whole:
            raise why
        return known.take(len(keys), new[standing.left :], why)

    async def _count(self, tenant: TenantId, known: "_Known", limit: int) -> None:
        # What is being stored would be counted twice, or not at all.
        await known.all_stored.wait()
        known.counts_begun += 1
        known.counted = await self._archive.jobs_waiting(tenant, limit + BEYOND)
        known.created = 0
        known.counted_at = self._clock.monotonic()
        known.last_count = known.counts_begun

    async def _new_ones(self, tenant: TenantId, keys: Sequence[str | None]) -> list[int]:
        """Which of the jobs are no updates of others, by their order."""
        named = {key for key in keys if key is not None}
        taken = await self._archive.keys_taken(tenant, named) if named else set()
        new = []
        for place, key in enumerate(keys):
            if key not in taken:
                new.append(place)
                if key is not None:
                    taken.add(key)
        return new

    async def _retry_after_sec(self, tenant: TenantId) -> int:
        due_ms = await self._archive.next_one_shot_ms(tenant)
        if due_ms is None:
            return LATEST_SEC
        return min(max(ceil((due_ms - self._clock.now_ms()) / 1000), SOONEST_SEC), LATEST_SEC)


_NO_LIMITS = TenantSettings()
_LONG_AGO = float("-inf")


class _Known:
    """What is remembered of a tenant."""

    def __init__(self) -> None:
        self.settings = _NO_LIMITS
        self.settings_until = _LONG_AGO
        self.counted = 0
        self.counted_at = _LONG_AGO
        self.counts_begun = 0
        self.last_count = 0
        """The last one that came to its end, by its number."""
        self.created = 0
        """By this process since it was counted."""
        self.being_stored = 0
        self.all_stored = asyncio.Event()
        self.all_stored.set()
        self.deciding = asyncio.Lock()
        """While somebody has it, nobody else takes a place: what is stored meanwhile might be counted twice."""

    @property
    def used(self) -> int:
        return self.counted + self.created + self.being_stored

    def is_fresh(self, limit: int, now: float) -> bool:
        believed_sec = FRESH_FAR_FROM_FULL_SEC if self.used < NEARLY_FULL * limit else FRESH_SEC
        return now - self.counted_at < believed_sec

    def fit(self, keys: Sequence[str | None], limit: int) -> bool:
        """Even if all of them are new."""
        return self.used + len(keys) <= limit

    def take(self, places: int, refused: Sequence[int] = (), why: QuotaExceeded | None = None) -> Room:
        taken = places - len(refused)
        self.being_stored += taken
        if self.being_stored:
            self.all_stored.clear()
        return Room(self, taken, refused, why)

    def give_back(self, taken: int, made: int) -> None:
        self.being_stored -= taken
        self.created += made
        if not self.being_stored:
            self.all_stored.set()


def _exceeded(tenant: TenantId, standing: Standing, requested: int, retry_sec: int) -> QuotaExceeded:
    more = "one more" if requested == 1 else f"{requested} more"
    return QuotaExceeded(
        f"tenant {tenant!r} has {standing.used} of at most {standing.limit} jobs waiting for their time (maxJobs): "
        f"there is no room for {more}. Come back in {retry_sec} s, or cancel some",
        **{
            "limit": standing.limit,
            "used": standing.used,
            "requested": requested,
            "retryAfterSec": retry_sec,
            "violated-policies": [MAX_JOBS],
        },
    )
