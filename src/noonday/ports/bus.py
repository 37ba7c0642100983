"""What carries dispatches to workers and events to recorders."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Generic, NamedTuple, TypeVar

import msgspec

from noonday.model.ids import WorkerId
from noonday.model.message import Dispatch, LogEntry

T = TypeVar("T", bound=Dispatch | LogEntry)


class LogBatch(msgspec.Struct, frozen=True):
    """Entries of a partition of the log, with the offset of the first and the offset to read next."""

    offset: int
    next_offset: int
    entries: tuple[LogEntry, ...]


class Oversized(NamedTuple, Generic[T]):
    """An entry that is larger than one message. It was not sent, and never can be."""

    entry: T
    size_bytes: int
    limit_bytes: int


class Bus(ABC):
    """At least once, in order per partition of the log. What `publish` or `report` returned for is acknowledged."""

    @abstractmethod
    async def publish(self, dispatches: Sequence[Dispatch]) -> Sequence[Oversized[Dispatch]]:
        """Hand dispatches to the topics of their pools; returns when all are acknowledged, but for those that are larger than
        one message, which it returns. Raises BusUnavailable: none, some or all may arrive."""

    @abstractmethod
    async def take(self, worker: WorkerId, room: Mapping[str, int], wait_sec: float) -> list[Dispatch]:
        """Up to `room` dispatches of each pool; waits up to `wait_sec` for the first."""

    @abstractmethod
    async def done_with(self, worker: WorkerId, dispatches: Sequence[Dispatch]) -> None:
        """Their start or end is acknowledged by the log: they need not be delivered again."""

    @abstractmethod
    async def credit(self) -> Mapping[str, int]:
        """For each pool that has workers: how many more dispatches keep its topic under about a second deep."""

    @abstractmethod
    async def join(self, worker: WorkerId, pools: Mapping[str, int]) -> int:
        """A worker with this concurrency per pool is here. Answers the partition of the log it reports to, for good."""

    @abstractmethod
    async def leave(self, worker: WorkerId) -> None: ...

    @abstractmethod
    async def report(self, partition: int, entries: Sequence[LogEntry]) -> Sequence[Oversized[LogEntry]]:
        """Append to a partition of the log; returns when all are acknowledged, but for those that are larger than one message,
        which it returns. Raises BusUnavailable: none, some or all may arrive."""

    async def report_durably(self, partition: int, entries: Sequence[LogEntry]) -> Sequence[Oversized[LogEntry]]:
        """The same as `report`, but returns only when the entries outlive this process. A log on a server that has acknowledged
        them does; a log in this process has to be recorded first."""
        return await self.report(partition, entries)

    @abstractmethod
    async def read(self, partition: int, offset: int, limit: int, wait_sec: float) -> LogBatch:
        """Entries from an offset on; waits up to `wait_sec` for the first."""

    @abstractmethod
    async def offset_since(self, partition: int, since_ms: int) -> int | None:
        """Return the offset of the first entry reported at an instant or later, by the reporter's clock.

        None if there is no such entry, or if entries that were read are not kept.
        """

    @abstractmethod
    async def bury(self, entry: LogEntry, why: str) -> None:
        """Keep an entry of the log that nobody can settle, with the reason, where people can look at it."""

    @abstractmethod
    async def partitions(self) -> int:
        """How many partitions the log has. It may grow."""

    @abstractmethod
    async def generation(self, partition: int) -> str:
        """Names the log. Another generation means that everything in the former one is gone."""
