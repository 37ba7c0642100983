"""What the owner of partitions knows of the first entries that wait there, so that it need not ask."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

Head = tuple[int, str, int]
"""(partition, pool, score)."""


def score_of(ready_ms: int, early: int) -> int:
    """Orders entries by when they are ready, and says of the first one whether it is early."""
    return 2 * ready_ms + early


class Heads:
    """Each may be too early, when somebody else took the entry; none is too late, as long as all that is placed is noted."""

    def __init__(self) -> None:
        self._scores: dict[int, dict[str, int]] = {}
        self._since: list[Head] | None = None
        """What was noted while Redis was read: newer than what is read."""

    def __contains__(self, partition: int) -> bool:
        return partition in self._scores

    def note(self, heads: Iterable[Head]) -> bool:
        """Entries were placed. Answers whether one of them comes before all that was known of its pool and partition."""
        earlier = False
        for head in heads:
            partition, pool, score = head
            known = self._scores.get(partition)
            if self._since is not None:
                self._since.append(head)
            if known is not None and score < known.get(pool, score + 1):
                known[pool] = score
                earlier = True
        return earlier

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Around the question to Redis and what is made of its answer. One at a time."""
        since = self._since = []
        try:
            yield
        finally:
            self._since = None
            self.note(since)

    def read(self, partition: int, pairs: Sequence[bytes]) -> None:
        """All that Redis has of a partition: pool, score, pool, score, ..."""
        pools = zip(pairs[::2], pairs[1::2], strict=True)
        self._scores[partition] = {pool.decode(): int(score) for pool, score in pools}

    def read_some(self, partition: int, pools: Sequence[str], scores: Sequence[bytes]) -> None:
        """What Redis has for some pools of a partition; an empty score: nothing."""
        known = self._scores.setdefault(partition, {})
        for pool, score in zip(pools, scores, strict=True):
            if score:
                known[pool] = int(score)
            else:
                known.pop(pool, None)

    def due(self, partitions: Collection[int], score: int, pools: Collection[str]) -> list[tuple[int, list[str]]]:
        """The partitions where something is due, and the pools it is for."""
        found = []
        for partition in partitions:
            known = self._scores.get(partition, {})
            due = [pool for pool, first in known.items() if first <= score and pool in pools]
            if due:
                found.append((partition, due))
        return found

    def next_ready_ms(self, partitions: Collection[int], credit: Mapping[str, int], patience_ms: int) -> int | None:
        """When the earliest entry of a pool with credit is ready, or that much later if it is an early one."""
        return min(
            (
                (score >> 1) + patience_ms * (score & 1)
                for partition in partitions
                for pool, score in self._scores.get(partition, {}).items()
                if credit.get(pool, 0) > 0
            ),
            default=None,
        )

    def forget(self, partitions: Iterable[int]) -> None:
        for partition in partitions:
            self._scores.pop(partition, None)
