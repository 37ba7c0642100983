"""Fills the hot index from the store, ahead of time."""

from noonday.ports.firing import Firing, Mark
from noonday.ports.hot_index import HotIndex

PAGE = 5_000


class Hydrator:
    """Walks the timeline in order of time, some minutes ahead, and notes how far it came after each step.

    An index of another era has lost its memory: the walk begins again at the head.
    """

    def __init__(self, firing: Firing, index: HotIndex, ahead_ms: int) -> None:
        self._firing = firing
        self._index = index
        self._ahead_ms = ahead_ms
        self._mark: Mark | None = None
        self._era: str | None = None

    async def run_once(self, now_ms: int) -> int:
        era = await self._index.era()
        if era != self._era:
            self._era, self._mark = era, None
        entries = await self._firing.walk(self._mark, now_ms + self._ahead_ms, PAGE)
        await self._index.place(entries)
        # Progress counts only where the era is still the one the step began with.
        if entries and await self._index.era() == era:
            self._mark = (entries[-1].due_ms, entries[-1].key)
        return len(entries)
