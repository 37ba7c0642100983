"""The right to act until it lapses."""

from abc import ABC, abstractmethod
from collections.abc import Mapping

from noonday.model.ids import InstanceId


class Leases(ABC):
    """Membership under one lease per instance. The lease decides who tries; the store's epoch decides who may."""

    @property
    @abstractmethod
    def ttl_sec(self) -> float:
        """How long after the last renewal others may act. Infinite where there can be no others."""

    @abstractmethod
    async def join(self, instance: InstanceId, weight: float) -> None:
        """Become a member. Raises AlreadyRunning where only one instance can be."""

    @abstractmethod
    async def renew(self, weight: float | None = None) -> bool:
        """Keep the lease, and say a new weight if one is given. False: it has lapsed, and others may act.

        Raises LeasesUnavailable if the servers cannot be reached: the lease goes on until it lapses.
        """

    @abstractmethod
    async def members(self) -> Mapping[InstanceId, float]:
        """The live members and their weights. Raises LeasesUnavailable."""

    @abstractmethod
    async def changed(self, timeout_sec: float) -> bool:
        """Wait until somebody joined, left, lapsed or said another weight since `members` was last read, or until the time is
        up. Answers whether something may have changed."""

    @abstractmethod
    async def leave(self) -> None:
        """Give the lease up at once, so that others need not wait for it to lapse."""
