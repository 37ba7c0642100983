"""Dispatches that are taken and not claimed."""

from collections.abc import Sequence

from noonday.model.message import Dispatch
from noonday.ports.clock import Clock

PARKED_RETRY_SEC = 1.0
"""Seconds between two tries to claim parked dispatches."""


class ParkedDispatches:
    """Dispatches that another delivery has claimed, or that could not be claimed because the signals were unavailable."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._dispatches: list[Dispatch] = []
        self._since = 0.0

    def __len__(self) -> int:
        return len(self._dispatches)

    @property
    def are_due(self) -> bool:
        """True if it is time to try to claim them again."""
        return bool(self._dispatches) and self._clock.monotonic() - self._since >= PARKED_RETRY_SEC

    def add(self, dispatches: Sequence[Dispatch]) -> None:
        if not self._dispatches:
            self._since = self._clock.monotonic()
        self._dispatches.extend(dispatches)

    def take(self) -> list[Dispatch]:
        """Remove and return all."""
        taken, self._dispatches = self._dispatches, []
        return taken

    def drop_duplicates(self, acked: Sequence[Dispatch]) -> None:
        """Drop dispatches that are acked: they need no claim to be recognised as duplicates."""
        if self._dispatches:
            names = {(dispatch.execution_id, dispatch.number) for dispatch in acked}
            self._dispatches = [each for each in self._dispatches if (each.execution_id, each.number) not in names]

    def clear(self) -> None:
        self._dispatches.clear()
