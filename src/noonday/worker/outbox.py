"""Reports and heartbeats that wait to be sent to the log."""

from collections.abc import Iterable, Sequence

import msgspec
import structlog

from noonday.model.errors import NoondayError
from noonday.model.execution import Failure, Outcome
from noonday.model.ids import ExecutionId, WorkerId
from noonday.model.limits import BEAT_BYTES, STUCK_NAMED
from noonday.model.message import Beat, Hello, LogEntry, Oversized, Report, RunProgress
from noonday.ports.bus import Bus
from noonday.ports.clock import Clock
from noonday.runtime.supervise import should_log
from noonday.worker.run import Run, clean

log = structlog.get_logger("noonday.worker")
_LONGEST_WAIT_SEC = 5.0
"""Maximum seconds between two tries to send."""
_SHORT_TEXT = 1_000
"""Characters of a failure's message that a report keeps if it was too large."""


class Item(msgspec.Struct, frozen=True, gc=False):
    """An entry and the log partition it is sent to."""

    partition: int
    entry: LogEntry
    run: Run | None = None
    """The run whose start or end the entry reports."""
    is_cut: bool = False
    """True if the entry replaces one that was too large."""


class Outbox:
    """Entries that the log has not acknowledged yet.

    An entry that is larger than a message can never reach the log: a smaller one that says so replaces it. All others are sent
    again until the log has acknowledged them, so an entry may arrive twice.
    """

    def __init__(self, bus: Bus, clock: Clock) -> None:
        self._bus = bus
        self._clock = clock
        self._items: list[Item] = []
        self.failures = 0
        """Number of failed tries in a row."""
        self.unavailable_since: float | None = None
        """Time when the bus became unavailable, by the monotonic clock; None if it is available."""

    def __len__(self) -> int:
        return len(self._items)

    @property
    def wait_sec(self) -> float:
        """Seconds to wait before the next try."""
        return min(_LONGEST_WAIT_SEC, 0.1 * (1 << min(self.failures, 10)))

    @property
    def has_beat(self) -> bool:
        """True if a heartbeat waits to be sent."""
        return any(isinstance(item.entry, Beat) for item in self._items)

    def add(self, items: Iterable[Item]) -> None:
        self._items.extend(items)

    async def send(self) -> list[Item]:
        """Try once to send all items. Returns those that the log has acknowledged; the others stay."""
        sending, self._items = self._items, []
        acked: list[Item] = []
        failed: NoondayError | None = None
        partitions = sorted({item.partition for item in sending})
        try:
            for partition in partitions:
                batch = [item for item in sending if item.partition == partition] if len(partitions) > 1 else sending
                try:
                    oversized = await self._bus.report(partition, [item.entry for item in batch])
                except NoondayError as error:
                    failed = error
                    continue
                sending = [item for item in sending if item.partition != partition] if len(partitions) > 1 else []
                acked += self._replace_oversized(batch, oversized) if oversized else batch
        finally:
            # Also after a cancellation: items that are not acknowledged are sent again, before those added since.
            self._items = sending + self._items
        self._note_result(failed)
        return acked

    def _note_result(self, failed: NoondayError | None) -> None:
        if failed is None:
            self.failures, self.unavailable_since = 0, None
            return
        self.failures += 1
        if self.unavailable_since is None:
            self.unavailable_since = self._clock.monotonic()
        if should_log(self.failures):
            log.warning("report failed", error=failed.detail, failures=self.failures)

    def _replace_oversized(self, items: Sequence[Item], oversized: Sequence[Oversized[LogEntry]]) -> list[Item]:
        """Return the items that are on the log. Each oversized item is replaced by a smaller one, once."""
        by_entry = {id(each.entry): each for each in oversized}
        for item in items:
            found = by_entry.get(id(item.entry))
            if found is None:
                continue
            log.error(
                "entry too large for the log",
                entry=type(item.entry).__name__,
                execution=item.entry.execution_id if isinstance(item.entry, Report) else None,
                size_bytes=found.size_bytes,
                limit_bytes=found.limit_bytes,
                dropped=item.is_cut,
            )
            if not item.is_cut:
                self._items.append(msgspec.structs.replace(item, entry=cut(found), is_cut=True))
        return [item for item in items if id(item.entry) not in by_entry]


def cut(oversized: Oversized[LogEntry]) -> LogEntry:
    """Return the smaller entry that replaces one that is larger than a message."""
    entry = oversized.entry
    if isinstance(entry, Report):
        return _cut_report(entry, oversized)
    if isinstance(entry, Beat):
        return msgspec.structs.replace(entry, progress=(), stuck=())
    if isinstance(entry, Hello):
        # Without the schemas, only the worker checks payloads.
        handlers = tuple(msgspec.structs.replace(handler, schema=None, doc=None) for handler in entry.handlers)
        return msgspec.structs.replace(entry, handlers=handlers)
    return entry


def _cut_report(report: Report, oversized: Oversized[LogEntry]) -> Report:
    """Return a smaller report: without progress, attempt record and log lines, and with a shorter failure message.

    If that is not enough, result and enqueued jobs are dropped and the run fails: neither is dropped silently. The run is not
    retried, because its report would not become smaller.
    """
    failure = report.failure and Failure(
        report.failure.type, clean(report.failure.message, _SHORT_TEXT), retryable=report.failure.retryable
    )
    small = msgspec.structs.replace(report, progress=None, details=None, logs=None, failure=failure)
    dropped_bytes = sum(len(each or b"") for each in (report.progress, report.details, report.logs))
    is_kept = report.result is None and report.children is None
    if is_kept or oversized.size_bytes - dropped_bytes <= oversized.limit_bytes:
        return small
    message = (
        f"the report of this run has {oversized.size_bytes} bytes, more than the log accepts ({oversized.limit_bytes}): return a "
        "reference to the result instead, and enqueue fewer jobs at once"
    )
    failure = Failure("ReportTooLarge", message, retryable=False)
    return msgspec.structs.replace(small, outcome=int(Outcome.FAILED), result=None, children=None, failure=failure)


def beats_of(
    worker: WorkerId,
    at_ms: int,
    progress: Iterable[RunProgress],
    stuck: Sequence[ExecutionId],
) -> list[Beat]:
    """Return one heartbeat of a worker, split into several if their progress is larger than BEAT_BYTES."""
    parts: list[list[RunProgress]] = [[]]
    size = 0
    for each in progress:
        if parts[-1] and size + len(each.progress) > BEAT_BYTES:
            parts.append([])
            size = 0
        parts[-1].append(each)
        size += len(each.progress) + _NAME_BYTES
    return [Beat(worker, at_ms, tuple(part), tuple(stuck[:STUCK_NAMED])) for part in parts]


_NAME_BYTES = 64
"""Bytes of an execution's id and dispatch number in a heartbeat, rounded up."""
