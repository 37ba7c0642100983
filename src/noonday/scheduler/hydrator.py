"""Fills the hot index from the store, ahead of time."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from noonday.model.batch import Mark
from noonday.model.firing import Entry
from noonday.model.ids import TenantId
from noonday.ports.firing import Firing
from noonday.ports.hot_index import HotIndex

PAGE = 5_000
"""Entries read in one step of a walk."""


@dataclass
class _Walk:
    """Partitions that are walked together, and how far."""

    generations: dict[int, str]
    mark: Mark | None = None
    caught_up: bool = False
    """True if the last step found no more entries within the look-ahead."""


class Hydrator:
    """Walks the timeline in time order, some minutes ahead, and notes its progress after each step.

    New partitions, and partitions whose index lost its memory (it has another generation), are walked from the head until they
    have caught up with the rest.
    """

    def __init__(
        self,
        firing: Firing,
        index: HotIndex,
        owned: Callable[[], Collection[int]],
        ahead_ms: int,
        is_tracked: Callable[[Entry], bool],
    ) -> None:
        """`is_tracked` returns whether this owner has taken an entry from the index and not yet fired it. Such entries are not
        placed again."""
        self._is_tracked = is_tracked
        self._firing = firing
        self._index = index
        self._owned = owned
        self._ahead_ms = ahead_ms
        self._walks: list[_Walk] = []

    async def run_once(self, now_ms: int) -> int:
        generations = await self._index.generations(self._owned())
        self._drop_old_generations(generations)
        known = {partition for walk in self._walks for partition in walk.generations}
        if new := {partition: generation for partition, generation in generations.items() if partition not in known}:
            self._walks.append(_Walk(new))
        placed = 0
        for walk in self._walks:
            placed += await self._step(walk, now_ms + self._ahead_ms)
        self._merge_caught_up()
        for tenant, first in self._index.omitted().items():
            placed += await self._place_left_out(TenantId(tenant), first, now_ms + self._ahead_ms)
        return placed

    async def _place_left_out(self, tenant: TenantId, first: Mark, until_ms: int) -> int:
        """Place entries of a tenant that the index left out for lack of room, now that it has room again."""
        page = max(1, min(PAGE, self._index.room()))
        entries = await self._firing.walk_tenant(tenant, self._owned(), first, until_ms, page)
        last = (entries[-1].due_ms, entries[-1].key) if len(entries) == page else None
        self._index.readmit(tenant, last)
        await self._place(entries)
        return len(entries)

    def walk_again(self, partitions: Collection[int]) -> None:
        """Walk these partitions from the head again. Another instance owned them, and may have changed their index entries."""
        for walk in self._walks:
            for partition in partitions:
                walk.generations.pop(partition, None)

    def _drop_old_generations(self, generations: Mapping[int, str]) -> None:
        for walk in self._walks:
            walk.generations = {
                p: generation for p, generation in walk.generations.items() if generations.get(p) == generation
            }
        self._walks = [walk for walk in self._walks if walk.generations]

    async def _step(self, walk: _Walk, until_ms: int) -> int:
        if walk.mark is not None and walk.mark[0] > until_ms:
            # The clock was set back. Entries before the mark were seen; entries stored since then that are due soon were
            # hinted.
            walk.mark = (until_ms, "\uffff")
        entries = await self._firing.walk(walk.generations.keys(), walk.mark, until_ms, PAGE)
        await self._place(entries)
        walk.caught_up = len(entries) < PAGE
        # Progress counts only if no generation changed during the step.
        if entries and await self._index.generations(walk.generations.keys()) == walk.generations:
            walk.mark = (entries[-1].due_ms, entries[-1].key)
        return len(entries)

    async def _place(self, entries: Sequence[Entry]) -> None:
        await self._index.add([entry for entry in entries if not self._is_tracked(entry)])

    def _merge_caught_up(self) -> None:
        """Merge the walks that have caught up, at the earliest of their marks: placing an entry twice is harmless."""
        done = [walk for walk in self._walks if walk.caught_up]
        if len(done) > 1:
            marks = [walk.mark for walk in done]
            mark = None if None in marks else min(mark for mark in marks if mark is not None)
            generations = {partition: generation for walk in done for partition, generation in walk.generations.items()}
            self._walks = [walk for walk in self._walks if not walk.caught_up] + [
                _Walk(generations, mark, caught_up=True)
            ]
