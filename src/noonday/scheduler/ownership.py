"""Partitions that this instance owns, and their epochs."""

import contextlib
import math
from collections.abc import Callable, Collection, Mapping

import structlog

from noonday.model.batch import Owner
from noonday.model.errors import LeasesUnavailable
from noonday.model.ids import PARTITIONS, InstanceId
from noonday.model.rendezvous import share_of, weight_of
from noonday.ports.bus import Bus
from noonday.ports.clock import Clock
from noonday.ports.firing import Firing
from noonday.ports.hot_index import HotIndex
from noonday.ports.leases import Leases

log = structlog.get_logger("noonday.ownership")
ADOPT_OWN_AFTER_MS = 10_000
"""Age from which this instance publishes its own unsealed batches again. Younger ones may still be in flight."""


class Ownership:
    """Joins the members, takes its share of the partitions, renews the lease, and gives it up while it cannot fire.

    Every member computes the same shares from the same members. Two instances that see different members for a moment both
    try. The store's epoch decides, and the refused instance drops its partitions and reads the members again.
    """

    def __init__(
        self,
        instance: InstanceId,
        leases: Leases,
        firing: Firing,
        index: HotIndex,
        bus: Bus,
        clock: Clock,
        *,
        load: Callable[[], float] = lambda: 0.0,
        on_gained: Callable[[Collection[int]], None] = lambda partitions: None,
    ) -> None:
        """`load` returns how busy this process is, from 0 to 1. `on_gained` is called with partitions that another instance may
        have owned in between."""
        self._instance = instance
        self._leases = leases
        self._firing = firing
        self._index = index
        self._bus = bus
        self._clock = clock
        self._ttl_sec = leases.ttl_sec
        self._load = load
        self._on_gained = on_gained
        self._weight = 1.0
        self._weighed_at = clock.monotonic()
        self._renewed_at = clock.monotonic()
        self._joined = False
        self._members: Mapping[InstanceId, float] = {}
        self._suspended = False
        self._refused_at = -math.inf
        self._to_forget: set[int] = set()
        self._store_seen_at = clock.monotonic()
        self._bus_seen_at = clock.monotonic()
        self.owner = Owner(instance, {})

    @property
    def partitions(self) -> Collection[int]:
        return self.owner.epochs.keys()

    async def join(self) -> None:
        await self._leases.join(self._instance, self._weight)
        self._joined = True
        self._renewed_at = self._clock.monotonic()
        await self._take_share()

    async def run_once(self, now_ms: int) -> int:
        """Renew the lease and take this instance's share of the partitions."""
        if not self._joined:
            await self._join_again()
            return 0
        if self._clock.monotonic() - min(self._store_seen_at, self._bus_seen_at) > 2 * self._ttl_sec:
            await self._give_up("no completed round with the store or the bus")
            return 0
        if not await self._renew():
            return 0
        await self._take_share()
        return 0

    async def next_wait(self) -> float:
        """Return how many seconds to wait: a third of the lease's TTL at most, less if the members change."""
        longest_sec = min(1.0, self._ttl_sec / 3)
        if not self._joined or self._suspended:
            return longest_sec
        with contextlib.suppress(LeasesUnavailable):
            await self._leases.changed(longest_sec)
        return 0.01

    async def check_bus(self) -> None:
        """Complete a round with the bus. Raises BusUnavailable."""
        await self._bus.partitions()
        self._bus_seen_at = self._clock.monotonic()

    def note_store_round(self) -> None:
        """Note a completed round with the store. The loops that do the work call this."""
        self._store_seen_at = self._clock.monotonic()

    def may_adopt(self, owner: InstanceId, age_ms: int) -> bool:
        """Return whether this instance publishes an unsealed batch that `owner` fired `age_ms` ago."""
        if owner == self._instance:
            return age_ms > ADOPT_OWN_AFTER_MS
        return owner not in self._members and self._instance == min(self._members, default=self._instance)

    def lose(self, partitions: tuple[int, ...]) -> None:
        """Drop all partitions: the store refused an epoch, so another instance owns these, and the known members are outdated."""
        log.warning("fire refused by epoch", partitions=len(partitions))
        self._refused_at = self._clock.monotonic()
        self._drop(self.owner.epochs.keys())

    async def leave(self) -> None:
        """Give up the lease and all partitions at once, so that others need not wait for the lease to lapse."""
        self.owner = Owner(self._instance, {})
        self._joined = False
        await self._leases.leave()

    async def _join_again(self) -> None:
        # Only after a round with store and bus: an instance that cannot fire and publish must not take a share.
        await self._firing.take_over(self._instance, [])
        self.note_store_round()
        await self.check_bus()
        log.info("joining", instance=self._instance)
        await self.join()

    async def _renew(self) -> bool:
        since = self._clock.monotonic() - self._weighed_at
        weight = weight_of(self._load(), self._weight, since)
        changed = weight != self._weight
        try:
            alive = await self._leases.renew(weight if changed else None)
        except LeasesUnavailable:
            if self._clock.monotonic() - self._renewed_at > self._ttl_sec:
                self._suspend()
            raise
        if not alive:
            log.warning("lease lapsed")
            self._drop(self.owner.epochs.keys())
            self._joined = False
            return False
        if changed:
            self._weight, self._weighed_at = weight, self._clock.monotonic()
        self._renewed_at = self._clock.monotonic()
        self._suspended = False
        return True

    def _suspend(self) -> None:
        """Own nothing while the lease is in doubt: other instances may own the same partitions."""
        if not self._suspended:
            log.warning("lease in doubt; not firing")
        self._suspended = True
        self.owner = Owner(self._instance, {})

    async def _give_up(self, reason: str) -> None:
        log.warning("giving up the lease", reason=reason)
        self._drop(self.owner.epochs.keys())
        self._joined = False
        await self._leases.leave()

    async def _take_share(self) -> None:
        members = await self._leases.members()
        await self._forget_dropped()
        if self._instance not in members or not self._may_take_from(members):
            return
        self._members = members
        share = share_of(self._instance, self._members, PARTITIONS)
        surplus = [partition for partition in self.owner.epochs if partition not in share]
        if surplus:
            self._drop(surplus)
        missing = [partition for partition in share if partition not in self.owner.epochs]
        if missing:
            await self._take(missing)

    def _may_take_from(self, members: Mapping[InstanceId, float]) -> bool:
        """Return whether partitions may be taken: after a refusal, only once the members changed or one TTL made the new owner
        known."""
        waited = self._clock.monotonic() - self._refused_at
        return members != self._members or waited > self._ttl_sec

    async def _forget_dropped(self) -> None:
        dropped, self._to_forget = self._to_forget, set()
        if dropped:
            await self._index.forget(dropped)

    async def _take(self, partitions: Collection[int]) -> None:
        taken = await self._firing.take_over(self._instance, partitions)
        self.note_store_round()
        self.owner = Owner(self._instance, {**self.owner.epochs, **{p: each.epoch for p, each in taken.items()}})
        gained = [partition for partition, each in taken.items() if each.former != self._instance]
        if gained:
            self._on_gained(gained)

    def _drop(self, partitions: Collection[int]) -> None:
        dropped = set(partitions)
        self.owner = Owner(self._instance, {p: e for p, e in self.owner.epochs.items() if p not in dropped})
        self._to_forget |= dropped
