"""The owner's copy of the heads (first waiting entries) of its partitions, so that it need not ask Redis each time."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

Head = tuple[int, str, int]
"""(partition, pool, score)."""


def score_of(ready_ms: int, early: int) -> int:
    """Return the score that orders entries by the instant they are ready. Its last bit is set if the entry is early."""
    return 2 * ready_ms + early


class Heads:
    """Scores of the heads, by partition and pool.

    A head may be too early, if another process took the entry. No head is too late, if all placed entries are noted.
    """

    def __init__(self) -> None:
        self._scores: dict[int, dict[str, int]] = {}
        self._noted_during_read: list[Head] | None = None
        """Heads that were noted while Redis was read. They are newer than the answer."""

    def __contains__(self, partition: int) -> bool:
        return partition in self._scores

    def note(self, heads: Iterable[Head]) -> bool:
        """Note placed entries. Returns whether one of them comes before the known head of its pool and partition."""
        earlier = False
        for head in heads:
            partition, pool, score = head
            known = self._scores.get(partition)
            if self._noted_during_read is not None:
                self._noted_during_read.append(head)
            if known is not None and score < known.get(pool, score + 1):
                known[pool] = score
                earlier = True
        return earlier

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Context for reading heads from Redis and storing the answer. Only one may be open at a time."""
        noted = self._noted_during_read = []
        try:
            yield
        finally:
            self._noted_during_read = None
            self.note(noted)

    def read(self, partition: int, pairs: Sequence[bytes]) -> None:
        """Store all heads that Redis has for a partition: pool, score, pool, score, ..."""
        pools = zip(pairs[::2], pairs[1::2], strict=True)
        self._scores[partition] = {pool.decode(): int(score) for pool, score in pools}

    def read_some(self, partition: int, pools: Sequence[str], scores: Sequence[bytes]) -> None:
        """Store the heads that Redis has for some pools of a partition. An empty score means that the pool has no entries."""
        known = self._scores.setdefault(partition, {})
        for pool, score in zip(pools, scores, strict=True):
            if score:
                known[pool] = int(score)
            else:
                known.pop(pool, None)

    def due(self, partitions: Collection[int], score: int, pools: Collection[str]) -> list[tuple[int, list[str]]]:
        """Return the partitions with due entries, and the pools of those entries."""
        found = []
        for partition in partitions:
            known = self._scores.get(partition, {})
            due = [pool for pool, first in known.items() if first <= score and pool in pools]
            if due:
                found.append((partition, due))
        return found

    def next_ready_ms(self, partitions: Collection[int], credit: Mapping[str, int], patience_ms: int) -> int | None:
        """Return when the earliest entry of a pool with credit is ready, plus `patience_ms` if it is an early one."""
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
