"""What tenants may take when they take turns: their weights, and how many more of those that have a limit."""

from collections.abc import Container, Mapping
from sys import maxsize


class Shares:
    """Of one claim. Whoever is `limited` and has no room named may take nothing."""

    def __init__(
        self,
        weights: Mapping[str, int] | None = None,
        limited: Container[str] = (),
        rooms: Mapping[str, int] | None = None,
    ) -> None:
        self._weights = weights or {}
        self._limited = limited
        self.rooms = dict(rooms or {})
        """What is left of them."""

    def weight(self, tenant: str) -> int:
        return self._weights.get(tenant, 1)

    def room(self, tenant: str) -> int:
        return self.rooms.get(tenant, 0) if tenant in self._limited else maxsize

    def took(self, tenant: str, count: int) -> None:
        if tenant in self.rooms:
            self.rooms[tenant] -= count


EQUAL = Shares()
"""Nobody has a weight or a limit."""
