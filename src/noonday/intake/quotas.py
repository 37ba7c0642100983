"""Job quotas: the maximum number of a tenant's jobs that wait for their time."""

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from math import ceil
from typing import NamedTuple

from noonday.model.errors import QuotaExceeded
from noonday.model.ids import TenantId
from noonday.model.view import TenantSettings
from noonday.ports.clock import Clock
from noonday.ports.queries import QueryStore
from noonday.ports.settings import SettingsStore

MAX_JOBS = "max-jobs"
"""Name of the policy in problems and headers."""
MAX_TENANTS = 10_000
SETTINGS_FRESH_SEC = 1.0
FRESH_SEC = 2.0
"""Time for which a count is used if the quota is nearly full."""
FRESH_FAR_FROM_FULL_SEC = 10.0
"""Time for which a count is used otherwise."""
NEARLY_FULL = 0.9
"""Fraction of the quota from which on it is nearly full."""
BEYOND = 1_000
"""Number of jobs counted beyond the quota, so that the error of a tenant above its quota names how many it has."""
SOONEST_SEC, LATEST_SEC = 1, 3_600
"""Bounds of the retry time in the error."""


class QuotaStanding(NamedTuple):
    """Use of a tenant's quota, by the last count of this process."""

    limit: int
    used: int

    @property
    def left(self) -> int:
        return max(0, self.limit - self.used)


class QuotaReservation:
    """Quota reserved for the new jobs of one request while they are stored: `with await quotas.room(...) as room`."""

    __slots__ = ("_reserved", "_usage", "made", "refused", "why")

    def __init__(
        self,
        usage: "_Usage | None" = None,
        reserved: int = 0,
        refused: Sequence[int] = (),
        why: QuotaExceeded | None = None,
    ) -> None:
        self.refused = frozenset(refused)
        """Jobs that exceed the quota, by their index in the request."""
        self.why = why
        """The error of the refused jobs."""
        self.made = 0
        """Number of jobs that were created rather than updated. The caller sets it after storing them."""
        self._usage = usage
        self._reserved = reserved

    def __enter__(self) -> "QuotaReservation":
        return self

    def __exit__(self, *exception: object) -> None:
        if self._usage:
            self._usage.release(self._reserved, self.made)


class Quotas:
    """Caches the settings of tenants, and counts the jobs of tenants with a quota.

    A count is used for a few seconds, plus the jobs that this process has created since. No request is refused because of such a
    count: before that, the jobs that are being stored are awaited, and the store counts again. Jobs of other processes are seen
    by the next count only. So several processes together may exceed the quota, by as many jobs as they create in these seconds.
    """

    def __init__(
        self, query_store: QueryStore, settings_store: SettingsStore, clock: Clock, most_tenants: int = MAX_TENANTS
    ) -> None:
        """`most_tenants`: maximum number of tenants in the cache."""
        self._query_store = query_store
        self._settings_store = settings_store
        self._clock = clock
        self._most_tenants = most_tenants
        self._tenants: OrderedDict[TenantId, _Usage] = OrderedDict()

    async def settings(self, tenant: TenantId) -> TenantSettings:
        """Return the tenant's settings, at most a second old."""
        usage = self._tenants.get(tenant)
        if usage is None or self._clock.monotonic() >= usage.settings_until:
            usage = await self._read_settings(tenant)
        return usage.settings

    def forget(self, tenant: TenantId) -> None:
        """Drop the settings and the count of a tenant, because its settings were changed."""
        if usage := self._tenants.get(tenant):
            usage.settings_until = usage.counted_at = _LONG_AGO

    def standing(self, tenant: TenantId) -> QuotaStanding | None:
        """Return how much of its quota a tenant uses. None if it has no quota, or was not seen by this process yet."""
        usage = self._tenants.get(tenant)
        if usage is None or usage.settings.max_jobs is None:
            return None
        return QuotaStanding(usage.settings.max_jobs, usage.used)

    async def room(self, tenant: TenantId, keys: Sequence[str | None], *, whole: bool = False) -> QuotaReservation:
        """Reserve quota for new jobs, given the unique key of each.

        If not all fit, the room names those to refuse. With `whole`, raises QuotaExceeded instead.
        """
        limit = (await self.settings(tenant)).max_jobs
        if limit is None:
            return QuotaReservation()
        usage, arrived_at = self._tenants[tenant], self._tenants[tenant].counts_begun
        if not usage.deciding.locked() and usage.is_fresh(limit, self._clock.monotonic()) and usage.fit(keys, limit):
            return usage.reserve(len(keys))
        async with usage.deciding:
            if await self._all_fit(tenant, usage, limit, keys, arrived_at):
                return usage.reserve(len(keys))
            return await self._some(tenant, usage, QuotaStanding(limit, usage.used), keys, whole)

    async def _read_settings(self, tenant: TenantId) -> "_Usage":
        found = await self._settings_store.find_tenant(tenant)
        usage = self._tenants.setdefault(tenant, _Usage())
        settings = found[0] if found else _NO_LIMITS
        if settings.max_jobs != usage.settings.max_jobs:
            usage.counted_at = _LONG_AGO
        usage.settings, usage.settings_until = settings, self._clock.monotonic() + SETTINGS_FRESH_SEC
        self._tenants.move_to_end(tenant)
        while len(self._tenants) > self._most_tenants:
            self._tenants.popitem(last=False)
        return usage

    async def _all_fit(
        self, tenant: TenantId, usage: "_Usage", limit: int, keys: Sequence[str | None], arrived_at: int
    ) -> bool:
        """Return whether all jobs fit, by a fresh count if necessary.

        `arrived_at` is the number of counts that had begun when the request arrived.
        """
        if not usage.is_fresh(limit, self._clock.monotonic()):
            await self._count(tenant, usage, limit)
        # If many requests wait here, one count serves all that arrived before it began.
        if not usage.fit(keys, limit) and usage.last_count <= arrived_at:
            await self._count(tenant, usage, limit)
        return usage.fit(keys, limit)

    async def _some(
        self, tenant: TenantId, usage: "_Usage", standing: QuotaStanding, keys: Sequence[str | None], whole: bool
    ) -> QuotaReservation:
        """Reserve quota for as many new jobs as fit. Jobs that update others need none."""
        new = await self._new_ones(tenant, keys)
        if len(new) <= standing.left:
            return usage.reserve(len(keys))
        why = _exceeded(tenant, standing, len(new), await self._retry_after_sec(tenant))
        if whole:
            raise why
        return usage.reserve(len(keys), new[standing.left :], why)

    async def _count(self, tenant: TenantId, usage: "_Usage", limit: int) -> None:
        # A job that is being stored now would be counted twice, or not at all.
        await usage.all_stored.wait()
        usage.counts_begun += 1
        usage.counted = await self._query_store.jobs_waiting(tenant, limit + BEYOND)
        usage.created = 0
        usage.counted_at = self._clock.monotonic()
        usage.last_count = usage.counts_begun

    async def _new_ones(self, tenant: TenantId, keys: Sequence[str | None]) -> list[int]:
        """Return the indexes of jobs that do not update others."""
        named = {key for key in keys if key is not None}
        taken = await self._query_store.keys_taken(tenant, named) if named else set()
        new = []
        for index, key in enumerate(keys):
            if key not in taken:
                new.append(index)
                if key is not None:
                    taken.add(key)
        return new

    async def _retry_after_sec(self, tenant: TenantId) -> int:
        due_ms = await self._query_store.next_one_shot_ms(tenant)
        if due_ms is None:
            return LATEST_SEC
        return min(max(ceil((due_ms - self._clock.now_ms()) / 1000), SOONEST_SEC), LATEST_SEC)


_NO_LIMITS = TenantSettings()
_LONG_AGO = float("-inf")


class _Usage:
    """Cached settings and job count of a tenant."""

    def __init__(self) -> None:
        self.settings = _NO_LIMITS
        self.settings_until = _LONG_AGO
        self.counted = 0
        self.counted_at = _LONG_AGO
        self.counts_begun = 0
        self.last_count = 0
        """Number of the last count that was finished."""
        self.created = 0
        """Number of jobs that this process created since the last count."""
        self.being_stored = 0
        self.all_stored = asyncio.Event()
        self.all_stored.set()
        self.deciding = asyncio.Lock()
        """Lock of a request that counts, so that no other reserves quota: a job stored meanwhile might be counted twice."""

    @property
    def used(self) -> int:
        return self.counted + self.created + self.being_stored

    def is_fresh(self, limit: int, now: float) -> bool:
        fresh_sec = FRESH_FAR_FROM_FULL_SEC if self.used < NEARLY_FULL * limit else FRESH_SEC
        return now - self.counted_at < fresh_sec

    def fit(self, keys: Sequence[str | None], limit: int) -> bool:
        """Return whether the jobs fit even if all of them are new."""
        return self.used + len(keys) <= limit

    def reserve(self, jobs: int, refused: Sequence[int] = (), why: QuotaExceeded | None = None) -> QuotaReservation:
        reserved = jobs - len(refused)
        self.being_stored += reserved
        if self.being_stored:
            self.all_stored.clear()
        return QuotaReservation(self, reserved, refused, why)

    def release(self, reserved: int, made: int) -> None:
        self.being_stored -= reserved
        self.created += made
        if not self.being_stored:
            self.all_stored.set()


def _exceeded(tenant: TenantId, standing: QuotaStanding, requested: int, retry_sec: int) -> QuotaExceeded:
    more = "one more" if requested == 1 else f"{requested} more"
    return QuotaExceeded(
        f"tenant {tenant!r} has {standing.used} of at most {standing.limit} jobs waiting for their time (maxJobs): "
        f"there is no room for {more}. Retry after {retry_sec} s, or cancel some jobs",
        **{
            "limit": standing.limit,
            "used": standing.used,
            "requested": requested,
            "retryAfterSec": retry_sec,
            "violated-policies": [MAX_JOBS],
        },
    )
