"""Which workers are lost: counted in ticks of one recorder on one log partition."""

from collections.abc import Iterable, Sequence

import msgspec

from noonday.model.ids import InstanceId, WorkerId
from noonday.model.message import LogEntry, Tick

TICKS_TO_JUDGE = 6
_FORGET_AFTER = 10 * TICKS_TO_JUDGE


class Heard(msgspec.Struct, frozen=True):
    """What one batch of the log says about who is alive. It counts once the batch is committed."""

    ticks: int
    """Own ticks read by the end of the batch."""
    last_tick: int
    """The highest number of an own tick."""
    spoke: dict[WorkerId, int]
    """For each worker in the batch, how many own ticks had been read when it last spoke."""


class Liveness:
    """Counts a recorder's own ticks, and how many of them each worker has been silent for.

    A batch that is read again, because the store was away, counts once: `read` changes nothing, and `note` is called after the
    commit. A tick counts by its number: one that the log has twice, or that somebody has sent again, is no second tick.
    """

    def __init__(self, recorder: InstanceId) -> None:
        self._recorder = recorder
        self.ticks = 0
        self._last_tick = 0
        self._spoke: dict[WorkerId, int] = {}

    def read(self, entries: Iterable[LogEntry]) -> Heard:
        ticks, last_tick = self.ticks, self._last_tick
        spoke: dict[WorkerId, int] = {}
        for entry in entries:
            if not isinstance(entry, Tick):
                spoke[entry.worker_id] = ticks
            elif entry.recorder == self._recorder and entry.number > last_tick:
                ticks += 1
                last_tick = entry.number
        return Heard(ticks, last_tick, spoke)

    def note(self, heard: Heard) -> None:
        """The store has committed the batch."""
        self._spoke.update(heard.spoke)
        if heard.ticks > self.ticks:
            oldest = heard.ticks - _FORGET_AFTER
            self._spoke = {worker: ticks for worker, ticks in self._spoke.items() if ticks >= oldest}
        self.ticks, self._last_tick = heard.ticks, heard.last_tick

    def silent(self, known: Sequence[WorkerId]) -> list[WorkerId]:
        """Returns those of the known workers that have said nothing for so many ticks that they are lost."""
        return [worker for worker in known if self.ticks - self._spoke.get(worker, 0) >= TICKS_TO_JUDGE]
