"""Liveness of workers, measured in the ticks of one recorder on one log partition."""

from collections.abc import Iterable, Sequence

import msgspec

from noonday.model.ids import InstanceId, WorkerId
from noonday.model.message import LogEntry, Tick

TICKS_TO_JUDGE = 6
_FORGET_AFTER = 10 * TICKS_TO_JUDGE


class SignsOfLife(msgspec.Struct, frozen=True):
    """The signs of life in one batch of the log. They count once the batch is committed."""

    ticks: int
    """Number of own ticks that were read by the end of the batch."""
    last_tick: int
    """The highest number of an own tick."""
    seen: dict[WorkerId, int]
    """Number of own ticks that were read before the last entry of each worker in the batch."""


class Liveness:
    """Counts a recorder's own ticks, and for how many of them each worker has been silent.

    A batch that is read again, because the store was unavailable, counts once: `read` changes nothing, and `note` is called
    after the commit. A tick counts by its number: a duplicate of a tick on the log is no second tick.
    """

    def __init__(self, recorder: InstanceId) -> None:
        self._recorder = recorder
        self.ticks = 0
        self._last_tick = 0
        self._seen: dict[WorkerId, int] = {}

    def read(self, entries: Iterable[LogEntry]) -> SignsOfLife:
        """Return the signs of life in a batch. Changes nothing."""
        ticks, last_tick = self.ticks, self._last_tick
        seen: dict[WorkerId, int] = {}
        for entry in entries:
            if not isinstance(entry, Tick):
                seen[entry.worker_id] = ticks
            elif entry.recorder == self._recorder and entry.number > last_tick:
                ticks += 1
                last_tick = entry.number
        return SignsOfLife(ticks, last_tick, seen)

    def note(self, signs: SignsOfLife) -> None:
        """Count the signs of life of a batch that the store has committed."""
        self._seen.update(signs.seen)
        if signs.ticks > self.ticks:
            oldest = signs.ticks - _FORGET_AFTER
            self._seen = {worker: ticks for worker, ticks in self._seen.items() if ticks >= oldest}
        self.ticks, self._last_tick = signs.ticks, signs.last_tick

    def silent(self, known: Sequence[WorkerId]) -> list[WorkerId]:
        """Return the known workers that are lost: silent for at least TICKS_TO_JUDGE ticks."""
        return [worker for worker in known if self.ticks - self._seen.get(worker, 0) >= TICKS_TO_JUDGE]
