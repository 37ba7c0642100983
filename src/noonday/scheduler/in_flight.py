"""Entries that are claimed from the hot index and not yet fired, by batch."""

from collections import Counter
from collections.abc import Sequence
from functools import cached_property

from noonday.model.firing import Entry


class ClaimedBatch:
    """The entries of one claim. Two batches may contain the same entry, if it was placed again while it was being fired."""

    def __init__(self, entries: Sequence[Entry], claimed_at: float) -> None:
        self.entries = entries
        self.claimed_at = claimed_at
        """Time of the claim, by the monotonic clock."""

    # Computed on demand: few rounds need these, and the hot path must not pay for them.

    @cached_property
    def names(self) -> frozenset[tuple[str, int, int]]:
        return frozenset((entry.key, entry.number, entry.nominal_ms) for entry in self.entries)

    @cached_property
    def by_pool_and_tenant(self) -> Counter[tuple[str, str]]:
        return Counter((entry.pool, entry.tenant) for entry in self.entries)


class InFlight:
    """Batches in flight: claimed and not yet fired.

    Every count is derived from the batches: removing a batch removes all of its counts, and none of another batch.
    """

    def __init__(self) -> None:
        self._batches: list[ClaimedBatch] = []

    def __len__(self) -> int:
        return sum(len(batch.entries) for batch in self._batches)

    def __contains__(self, entry: Entry) -> bool:
        name = (entry.key, entry.number, entry.nominal_ms)
        return any(name in batch.names for batch in self._batches)

    def add(self, entries: Sequence[Entry], now: float) -> ClaimedBatch:
        batch = ClaimedBatch(entries, now)
        self._batches.append(batch)
        return batch

    def remove(self, batch: ClaimedBatch) -> None:
        """Remove a batch whose entries were fired or put back. Removing it again changes nothing."""
        if batch in self._batches:
            self._batches.remove(batch)

    def by_pool_and_tenant(self) -> Counter[tuple[str, str]]:
        counts: Counter[tuple[str, str]] = Counter()
        for batch in self._batches:
            counts.update(batch.by_pool_and_tenant)
        return counts

    def oldest_sec(self, now: float) -> float:
        """Return the age of the oldest batch; 0 if there is none."""
        return max((now - batch.claimed_at for batch in self._batches), default=0.0)
