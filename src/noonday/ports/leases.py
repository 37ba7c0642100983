"""Leases: the membership of instances, which ends when it is not renewed."""

from abc import ABC, abstractmethod
from collections.abc import Mapping

from noonday.model.ids import InstanceId


class Leases(ABC):
    """Membership under one lease per instance. The lease decides who tries; the store's epoch decides who may."""

    @property
    @abstractmethod
    def ttl_sec(self) -> float:
        """Duration of a lease after its last renewal, in seconds. Infinite where only one instance can exist."""

    @abstractmethod
    async def join(self, instance: InstanceId, weight: float) -> None:
        """Become a member. Raises AlreadyRunning where only one instance can exist and one does."""

    @abstractmethod
    async def renew(self, weight: float | None = None) -> bool:
        """Renew the lease, and publish a new weight if one is given. Returns False if it has lapsed: others may act.

        Raises LeasesUnavailable if the servers cannot be reached. The lease then continues until it lapses.
        """

    @abstractmethod
    async def members(self) -> Mapping[InstanceId, float]:
        """Return the live members and their weights. Raises LeasesUnavailable."""

    @abstractmethod
    async def changed(self, timeout_sec: float) -> bool:
        """Wait for a change of members or weights since `members` was last read, at most `timeout_sec`.

        Returns whether something may have changed.
        """

    @abstractmethod
    async def leave(self) -> None:
        """Release the lease at once, so that others need not wait for it to lapse."""
