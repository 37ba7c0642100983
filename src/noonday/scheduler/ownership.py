"""Which partitions this instance owns, and under which epochs."""

from noonday.model.errors import StaleEpoch
from noonday.model.ids import PARTITIONS, InstanceId
from noonday.ports.firing import Firing, Owner
from noonday.ports.leases import Leases


class Ownership:
    """Joins, takes the partitions that fall to this instance, and keeps the lease."""

    def __init__(self, instance: InstanceId, leases: Leases, firing: Firing) -> None:
        self._instance = instance
        self._leases = leases
        self._firing = firing
        self.owner = Owner(instance, {})

    async def join(self) -> None:
        await self._leases.join(self._instance, 1.0)
        await self._take()

    async def run_once(self, now_ms: int) -> int:
        if not await self._leases.renew():
            self.owner = Owner(self._instance, {})
            raise StaleEpoch("the lease has lapsed")
        return 0

    def lose(self, partitions: tuple[int, ...]) -> None:
        """The store refused an epoch: somebody else owns these now."""
        gone = set(partitions)
        self.owner = Owner(self._instance, {p: e for p, e in self.owner.epochs.items() if p not in gone})

    async def leave(self) -> None:
        self.owner = Owner(self._instance, {})
        await self._leases.leave()

    async def _take(self) -> None:
        epochs = await self._firing.take_over(self._instance, list(range(PARTITIONS)))
        self.owner = Owner(self._instance, epochs)
