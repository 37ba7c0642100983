"""Shares of tenants in a claim: their weights, and the room of those that have a limit."""

from collections.abc import Container, Mapping
from sys import maxsize

Within = str | tuple[str, str]
"""A tenant, or a tenant in one pool: (pool, tenant)."""


class Shares:
    """The shares of one claim. A limited tenant without an entry in `rooms` may take nothing, nor may a paused tenant."""

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
        """The rest of each room."""

    def weight(self, tenant: str) -> int:
        return self._weights.get(tenant, 1)

    def room(self, pool: str, tenant: str) -> int:
        """Return how many more entries a tenant may take in a pool."""
        return 0 if tenant in self._paused else min(self._room(tenant), self._room((pool, tenant)))

    def took(self, pool: str, tenant: str, count: int) -> None:
        """Subtract entries that a tenant has taken in a pool from its room."""
        for within in (tenant, (pool, tenant)):
            if within in self.rooms:
                self.rooms[within] -= count

    def _room(self, within: Within) -> int:
        return self.rooms.get(within, 0) if within in self._limited else maxsize


EQUAL = Shares()
"""Shares without weights and limits."""
