"""Leases of several instances in memory, which lapse by the clock of the test."""

from collections.abc import Mapping

from noonday.model.errors import LeasesUnavailable
from noonday.model.ids import InstanceId
from noonday.ports.clock import Clock
from noonday.ports.leases import Leases

TTL_SEC = 3.0


class LeaseServer:
    """What the members of a group share."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.leases: dict[InstanceId, tuple[float, float]] = {}
        """When the lease of each instance lapses, by the monotonic clock, and its weight."""
        self.is_away = False

    def lapse(self, instance: InstanceId) -> None:
        """End a lease that nobody renewed."""
        self.leases.pop(instance, None)


class SharedLeases(Leases):
    """The lease of one instance on a server."""

    def __init__(self, server: LeaseServer) -> None:
        self._server = server
        self._instance: InstanceId | None = None

    @property
    def ttl_sec(self) -> float:
        return TTL_SEC

    async def join(self, instance: InstanceId, weight: float) -> None:
        self._check()
        self._instance = instance
        self._hold(weight)

    async def renew(self, weight: float | None = None) -> bool:
        self._check()
        live = await self.members()
        if self._instance is None or self._instance not in live:
            return False
        self._hold(live[self._instance] if weight is None else weight)
        return True

    async def members(self) -> Mapping[InstanceId, float]:
        self._check()
        now = self._server.clock.monotonic()
        return {instance: weight for instance, (until, weight) in self._server.leases.items() if until >= now}

    async def changed(self, timeout_sec: float) -> bool:
        """Return at once: a test turns the rounds itself."""
        self._check()
        return True

    async def leave(self) -> None:
        instance, self._instance = self._instance, None
        if instance is not None:
            self._server.lapse(instance)

    def _hold(self, weight: float) -> None:
        assert self._instance is not None
        self._server.leases[self._instance] = (self._server.clock.monotonic() + TTL_SEC, weight)

    def _check(self) -> None:
        if self._server.is_away:
            raise LeasesUnavailable("away")
