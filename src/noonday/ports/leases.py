"""The right to act until it lapses."""

from abc import ABC, abstractmethod
from collections.abc import Mapping

from noonday.model.ids import InstanceId


class Leases(ABC):
    """Membership under one lease per instance. The lease decides who tries; the store's epoch decides who may."""

    @abstractmethod
    async def join(self, instance: InstanceId, weight: float) -> None:
        """Become a member. Raises AlreadyRunning where only one instance can be."""

    @abstractmethod
    async def renew(self) -> bool:
        """Keep the lease. False: it has lapsed, and others may act."""

    @abstractmethod
    async def members(self) -> Mapping[InstanceId, float]:
        """The live members and their weights."""

    @abstractmethod
    async def leave(self) -> None:
        """Give the lease up at once, so that others need not wait for it to lapse."""
