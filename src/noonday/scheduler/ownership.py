"""Which partitions this instance owns, and under which epochs."""

import contextlib
import math
from collections.abc import Callable, Collection, Mapping

import structlog

from noonday.model.errors import LeasesUnavailable
from noonday.model.ids import PARTITIONS, InstanceId
from noonday.model.rendezvous import share_of, weight_of
from noonday.ports.bus import Bus
from noonday.ports.clock import Clock
from noonday.ports.firing import Firing, Owner
from noonday.ports.hot_index import HotIndex
from noonday.ports.leases import Leases

log = structlog.get_logger("noonday.ownership")
UNSEALED_MS = 10_000
"""What we fired ourselves may be on its way for so long."""


class Ownership:
    """Joins, takes the partitions that fall to this instance, keeps the lease, and gives it up when it is no use.

    Every member computes the same shares from the same members. Two that know different members for a moment both try;
    the store's epoch decides, and whoever is refused drops what it has and looks again.
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
    ) -> None:
        """`load` answers how busy this process is, from 0 to 1."""
        self._instance = instance
        self._leases = leases
        self._firing = firing
        self._index = index
        self._bus = bus
        self._clock = clock
        self._ttl_sec = leases.ttl_sec
        self._load = load
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
        self.on_gained: Callable[[Collection[int]], None] = lambda partitions: None
        """Partitions that somebody else may have had in between."""

    @property
    def partitions(self) -> Collection[int]:
        return self.owner.epochs.keys()

    async def join(self) -> None:
        await self._leases.join(self._instance, self._weight)
        self._joined = True
        self._renewed_at = self._clock.monotonic()
        await self._take_share()

    async def run_once(self, now_ms: int) -> int:
        """Keep the lease, and have what falls to us."""
        if not self._joined:
            await self._join_again()
            return 0
        if self._clock.monotonic() - min(self._store_seen_at, self._bus_seen_at) > 2 * self._ttl_sec:
            await self._give_up("no round with the store or the bus was completed: somebody else shall try")
            return 0
        if not await self._renew():
            return 0
        await self._take_share()
        return 0

    async def next_wait(self) -> float:
        """Renew three times in the life of a lease; sooner, if the members change."""
        longest = min(1.0, self._ttl_sec / 3)
        if not self._joined or self._suspended:
            return longest
        with contextlib.suppress(LeasesUnavailable):
            await self._leases.changed(longest)
        return 0.01

    async def look_for_bus(self) -> None:
        """A round with the bus. Raises BusUnavailable."""
        await self._bus.partitions()
        self._bus_seen_at = self._clock.monotonic()

    def saw_store(self) -> None:
        """A round with the store was completed. Noted by the loops that do the work."""
        self._store_seen_at = self._clock.monotonic()

    def may_adopt(self, owner: InstanceId, age_ms: int) -> bool:
        """Whether it falls to us to publish what an instance fired so long ago and never sealed."""
        if owner == self._instance:
            return age_ms > UNSEALED_MS
        return owner not in self._members and self._instance == min(self._members, default=self._instance)

    def lose(self, partitions: tuple[int, ...]) -> None:
        """The store refused an epoch: somebody else owns these now, and what we believe of the members is old."""
        log.warning("refused by epoch", partitions=len(partitions))
        self._refused_at = self._clock.monotonic()
        self._drop(self.owner.epochs.keys())

    async def leave(self) -> None:
        """Give up everything at once, so that others need not wait for the lease to lapse."""
        self.owner = Owner(self._instance, {})
        self._joined = False
        await self._leases.leave()

    async def _join_again(self) -> None:
        # Only after a round with both: whoever cannot fire and publish must not take a share.
        await self._firing.take_over(self._instance, [])
        self.saw_store()
        await self.look_for_bus()
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
            log.warning("the lease has lapsed")
            self._drop(self.owner.epochs.keys())
            self._joined = False
            return False
        if changed:
            self._weight, self._weighed_at = weight, self._clock.monotonic()
        self._renewed_at = self._clock.monotonic()
        self._suspended = False
        return True

    def _suspend(self) -> None:
        """The lease is in doubt: others may own what we have."""
        if not self._suspended:
            log.warning("the lease is in doubt: standing still")
        self._suspended = True
        self.owner = Owner(self._instance, {})

    async def _give_up(self, why: str) -> None:
        log.warning("giving up the lease", why=why)
        self._drop(self.owner.epochs.keys())
        self._joined = False
        await self._leases.leave()

    async def _take_share(self) -> None:
        members = await self._leases.members()
        await self._forget()
        if self._instance not in members or not self._may_take_from(members):
            return
        self._members = members
        share = share_of(self._instance, self._members, PARTITIONS)
        given_up = [partition for partition in self.owner.epochs if partition not in share]
        if given_up:
            self._drop(given_up)
        wanted = [partition for partition in share if partition not in self.owner.epochs]
        if wanted:
            await self._take(wanted)

    def _may_take_from(self, members: Mapping[InstanceId, float]) -> bool:
        """After a refusal: only once we know more than we did, or whoever refused us has had time to be known."""
        waited = self._clock.monotonic() - self._refused_at
        return members != self._members or waited > self._ttl_sec

    async def _forget(self) -> None:
        gone, self._to_forget = self._to_forget, set()
        if gone:
            await self._index.forget(gone)

    async def _take(self, wanted: Collection[int]) -> None:
        taken = await self._firing.take_over(self._instance, wanted)
        self.saw_store()
        self.owner = Owner(self._instance, {**self.owner.epochs, **{p: each.epoch for p, each in taken.items()}})
        foreign = [partition for partition, each in taken.items() if each.former != self._instance]
        if foreign:
            self.on_gained(foreign)

    def _drop(self, partitions: Collection[int]) -> None:
        gone = set(partitions)
        self.owner = Owner(self._instance, {p: e for p, e in self.owner.epochs.items() if p not in gone})
        self._to_forget |= gone
