"""The bus: topics that carry dispatches to workers, and the log that carries reports to recorders."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TypeVar

from noonday.model.ids import WorkerId
from noonday.model.message import Dispatch, LogBatch, LogEntry, Oversized

T = TypeVar("T", bound=Dispatch | LogEntry)


class Bus(ABC):
    """Delivers at least once, and in order within a log partition.

    When `publish` or `report` returns, all entries are acknowledged, except oversized ones, which it returns.
    """

    @abstractmethod
    async def publish(self, dispatches: Sequence[Dispatch]) -> Sequence[Oversized[Dispatch]]:
        """Send dispatches to the topics of their pools. Returns those that are larger than one message.

        Raises BusUnavailable: none, some or all of the dispatches may arrive.
        """

    @abstractmethod
    async def take(self, worker: WorkerId, room: Mapping[str, int], wait_sec: float) -> list[Dispatch]:
        """Return up to `room` dispatches of each pool. Waits up to `wait_sec` for the first."""

    @abstractmethod
    async def mark_processed(self, worker: WorkerId, dispatches: Sequence[Dispatch]) -> None:
        """Mark dispatches as processed: the log has acknowledged their start or end, so they need not be delivered again."""

    @abstractmethod
    async def credit(self) -> Mapping[str, int]:
        """Return, for each pool that has workers, how many more dispatches keep its topic under about a second deep."""

    @abstractmethod
    async def join(self, worker: WorkerId, pools: Mapping[str, int]) -> int:
        """Register a worker and its concurrency in each pool. Returns the log partition that it reports to for its lifetime."""

    @abstractmethod
    async def leave(self, worker: WorkerId) -> None: ...

    @abstractmethod
    async def report(self, partition: int, entries: Sequence[LogEntry]) -> Sequence[Oversized[LogEntry]]:
        """Append entries to a log partition. Returns those that are larger than one message.

        Raises BusUnavailable: none, some or all of the entries may arrive.
        """

    async def report_durably(self, partition: int, entries: Sequence[LogEntry]) -> Sequence[Oversized[LogEntry]]:
        """Append entries like `report`, but return only when they survive the end of this process.

        A log on a server keeps the entries that it acknowledged. A log in this process has to be recorded first.
        """
        return await self.report(partition, entries)

    @abstractmethod
    async def read(self, partition: int, offset: int, limit: int, wait_sec: float) -> LogBatch:
        """Return entries from an offset on. Waits up to `wait_sec` for the first."""

    @abstractmethod
    async def offset_since(self, partition: int, since_ms: int) -> int | None:
        """Return the offset of the first entry reported at an instant or later, by the reporter's clock.

        None if there is no such entry, or if entries that were read are not kept.
        """

    @abstractmethod
    async def keep_dead_letter(self, entry: LogEntry, why: str) -> None:
        """Keep a log entry that cannot be settled as a dead letter of the log, with the reason, for people to inspect."""

    @abstractmethod
    async def partitions(self) -> int:
        """Return the number of log partitions. It may grow."""

    @abstractmethod
    async def generation(self, partition: int) -> str:
        """Return the name of the log's generation. A new name means that all entries of the former generation are gone."""
