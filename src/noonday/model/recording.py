"""Progress of recording a log partition, and the result of settling a batch of it."""

import msgspec

from noonday.model.firing import Entry
from noonday.model.message import Report
from noonday.model.usage import NOTHING, Usage


class Checkpoint(msgspec.Struct, frozen=True):
    """The position up to which a log partition is recorded. `generation` names the log: another generation is another log."""

    partition: int
    generation: str
    offset: int
    tick_ms: int
    """The store's time in the last tick that was applied."""
    recent: str = ""
    """`Figures` of the last seconds, as JSON."""


class SettleResult(msgspec.Struct, frozen=True):
    """The result of settling a batch of reports."""

    entries: tuple[Entry, ...]
    """Rows now on the timeline: retries, snoozes, and buffered executions whose turn has come."""
    refused: tuple[Report, ...]
    """Reports of another dispatch or worker, or of an illegal transition. They changed nothing."""
    by_state: dict[str, int]
    """Number of executions that ended in each state."""
    freed: tuple[str, ...] = ()
    """Concurrency keys that have a free slot again."""
    usage: Usage = NOTHING
    """The usage that was added to tenants."""
    with_children: int = 0
    """Number of executions whose child jobs are to be created."""
