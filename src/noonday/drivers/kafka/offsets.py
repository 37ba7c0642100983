"""Tracks which messages of a pool's topics are fetched, taken and acked: up to where each partition may be committed.

Nothing here waits or does I/O. It is not thread-safe: the caller serialises access.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from heapq import heapify, heappop, heappush

from noonday.model.firing import LANES
from noonday.model.message import Dispatch

PartitionKey = tuple[str, int]
"""(topic, partition)."""
_MEAN_OVER = 8
"""About how many messages the mean number of dispatches is taken over."""


class OffsetTracker:
    """Offsets of one partition, from its assignment until it is lost."""

    __slots__ = ("_messages", "_waiting", "lane", "last_commit", "lost", "mean_dispatches", "next", "position")

    def __init__(self, lane: int, start: int | None) -> None:
        self.lane = lane
        self.next = start
        """The offset after the last fetched message. None if the start is not known yet."""
        self.position = start
        """The offset of the first message with dispatches that are not taken."""
        self.mean_dispatches = 0.0
        self.lost = False
        self.last_commit: tuple[int, int, int] | None = None
        """The last commit: offset, position, concurrency of the worker."""
        self._messages: deque[FetchedMessage] = deque()
        self._waiting: deque[FetchedMessage] = deque()
        """Messages with dispatches that are not taken, in order."""

    def add(self, offset: int, dispatches: list[Dispatch], size: int) -> "FetchedMessage":
        """Add a fetched message. One without dispatches is acked from the start."""
        message = FetchedMessage(self, offset, dispatches, size)
        self._messages.append(message)
        self.next = offset + 1
        if not self._waiting:
            self.position = offset if dispatches else self.next
        if dispatches:
            self._waiting.append(message)
            self.mean_dispatches += (len(dispatches) - self.mean_dispatches) / (
                _MEAN_OVER if self.mean_dispatches else 1
            )
        return message

    @property
    def first(self) -> "FetchedMessage | None":
        """The first message with dispatches that are not taken."""
        return self._waiting[0] if self._waiting else None

    @property
    def waiting(self) -> Iterable["FetchedMessage"]:
        return self._waiting

    def first_is_taken(self) -> None:
        """Note that all dispatches of the first waiting message are taken."""
        self._waiting.popleft()
        self.position = self._waiting[0].offset if self._waiting else self.next

    def acked_to(self) -> int | None:
        """Return the offset before which every dispatch is acked."""
        messages = self._messages
        while messages and not messages[0].unacked:
            messages.popleft()
        return messages[0].offset if messages else self.next


class FetchedMessage:
    """A message, and how many of its dispatches are taken and acked."""

    __slots__ = ("dispatches", "offset", "size", "taken", "tracker", "unacked")

    def __init__(self, tracker: OffsetTracker, offset: int, dispatches: list[Dispatch], size: int) -> None:
        self.tracker = tracker
        self.offset = offset
        self.dispatches = dispatches
        self.size = size
        self.taken = 0
        self.unacked = len(dispatches)


class DispatchBuffer:
    """Fetched dispatches of one pool: those that wait to be taken, by lane, and those that are taken and not acked."""

    def __init__(self) -> None:
        self._trackers: dict[PartitionKey, OffsetTracker] = {}
        self._heads: tuple[list[tuple[int, int, OffsetTracker]], ...] = tuple([] for _ in LANES)
        """Partitions with waiting dispatches, as a heap for each lane: (due time of the first message, serial number, tracker).

        Partitions are merged by due time, and each of them stays in its own order."""
        self._serial = 0
        self._taken: dict[tuple[str, int], FetchedMessage | list[FetchedMessage]] = {}
        """The message of each dispatch that is taken and not acked, by (execution, number). A list for duplicates."""
        self.waiting = 0
        """Number of dispatches that wait to be taken."""
        self.bytes = 0
        """Size in bytes of the messages with dispatches that wait to be taken."""
        self.rebalancing = False
        """True if partitions are being reassigned. Until it is known which ones we keep, nothing can be taken."""

    @property
    def trackers(self) -> Mapping[PartitionKey, OffsetTracker]:
        return self._trackers

    def add_partition(self, key: PartitionKey, lane: int, start: int | None) -> None:
        self.drop_partitions([key])
        self._trackers[key] = OffsetTracker(lane, start)

    def drop_partitions(self, keys: Iterable[PartitionKey]) -> None:
        """Drop all messages of some partitions. Another worker gets them, from the committed offset on."""
        lost = [tracker for key in keys if (tracker := self._trackers.pop(key, None)) is not None]
        if not lost:
            return
        for tracker in lost:
            tracker.lost = True
        for heads in self._heads:
            heads[:] = [head for head in heads if not head[-1].lost]
            heapify(heads)
        waiting = [message for tracker in self._trackers.values() for message in tracker.waiting]
        self.waiting = sum(len(message.dispatches) - message.taken for message in waiting)
        self.bytes = sum(message.size for message in waiting)
        self._taken = {
            name: kept for name, messages in self._taken.items() if (kept := _not_lost(messages)) is not None
        }

    def add(self, key: PartitionKey, offset: int, dispatches: list[Dispatch], size: int = 0) -> None:
        """Add a fetched message. A message of a partition that was dropped is ignored."""
        tracker = self._trackers.get(key)
        if tracker is None:
            return
        if tracker.next is not None and offset < tracker.next:
            # The topic was recreated, or the client started over: none of the tracked offsets is valid.
            self.add_partition(key, tracker.lane, offset)
            tracker = self._trackers[key]
        has_head = tracker.first is not None
        tracker.add(offset, dispatches, size)
        if dispatches:
            if not has_head:
                self._push_head(tracker)
            self.waiting += len(dispatches)
            self.bytes += size

    def take(self, room: int) -> list[Dispatch]:
        """Take up to `room` dispatches: higher lanes first, then messages whose first dispatch is due earliest."""
        taken: list[Dispatch] = []
        for heads in self._heads if not self.rebalancing else ():
            while heads and len(taken) < room:
                tracker = heads[0][-1]
                message = tracker.first
                assert message is not None
                some = message.dispatches[message.taken : message.taken + room - len(taken)]
                self._note_taken(message, some)
                taken += some
                if message.taken == len(message.dispatches):
                    heappop(heads)
                    tracker.first_is_taken()
                    self._push_head(tracker)
                    self.bytes -= message.size
        self.waiting -= len(taken)
        return taken

    def _push_head(self, tracker: OffsetTracker) -> None:
        """Add a partition to the heap of its lane, if it has dispatches that wait."""
        if tracker.first is not None:
            self._serial += 1
            heappush(self._heads[tracker.lane], (tracker.first.dispatches[0].due_ms, self._serial, tracker))

    def ack(self, dispatches: Sequence[Dispatch]) -> None:
        """Mark dispatches, and all their duplicates that were taken, as not to be delivered again."""
        pop = self._taken.pop
        for dispatch in dispatches:
            messages = pop((dispatch.execution_id, dispatch.number), None)
            if messages.__class__ is FetchedMessage:
                messages.unacked -= 1
            elif messages is not None:
                for message in messages:  # type: ignore[union-attr]
                    message.unacked -= 1

    def _note_taken(self, message: FetchedMessage, dispatches: Sequence[Dispatch]) -> None:
        message.taken += len(dispatches)
        by_name = self._taken
        for dispatch in dispatches:
            name = (dispatch.execution_id, dispatch.number)
            if name in by_name:
                before = by_name[name]
                by_name[name] = [*before, message] if isinstance(before, list) else [before, message]
            else:
                by_name[name] = message


def _not_lost(messages: FetchedMessage | list[FetchedMessage]) -> FetchedMessage | list[FetchedMessage] | None:
    if isinstance(messages, FetchedMessage):
        return None if messages.tracker.lost else messages
    return [message for message in messages if not message.tracker.lost] or None
