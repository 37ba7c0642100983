"""What tenants may take when they take turns: their weights, and how many more of those that have a limit."""

from collections.abc import Container, Mapping
from sys import maxsize

Within = str | tuple[str, str]
"""A tenant, or what it has in a pool: (pool, tenant)."""


class Shares:
    """Of one claim. Whoever is `limited` and has no room named may take nothing, nor may those that are paused."""

    def __init__(
        self,
        weights: Mapping[str, int] | None = None,
        limited: Container[Within] = (),
        rooms: Mapping[Within, int] | None = None,
        paused: Container[str] = (),
    ) -> None:
        self._weights = weights or {}
        self._limited = limited
        self._paused = paused
        self.rooms = dict(rooms or {})
        """What is left of them."""

    def weight(self, tenant: str) -> int:
        return self._weights.get(tenant, 1)

    def room(self, pool: str, tenant: str) -> int:
        return 0 if tenant in self._paused else min(self._room(tenant), self._room((pool, tenant)))

    def took(self, pool: str, tenant: str, count: int) -> None:
        for within in (tenant, (pool, tenant)):
            if within in self.rooms:
                self.rooms[within] -= count

    def _room(self, within: Within) -> int:
        return self.rooms.get(within, 0) if within in self._limited else maxsize


EQUAL = Shares()
"""Nobody has a weight or a limit."""
