"""One worker's membership in a pool's consumer group: its partitions, what it fetched from them, and its commits."""

import threading
from collections.abc import Callable, Iterable, Sequence

import msgspec
import structlog
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from noonday.drivers.kafka.codec import LARGEST_PACK, Codec
from noonday.drivers.kafka.names import Names
from noonday.drivers.kafka.offsets import DispatchBuffer, OffsetTracker, PartitionKey
from noonday.drivers.kafka.options import KafkaOptions
from noonday.drivers.kafka.thread import ClientThread, real_clock
from noonday.model.ids import WorkerId
from noonday.model.message import Dispatch
from noonday.ports.clock import Clock

log = structlog.get_logger("noonday.kafka")
COMMIT_SEC = 0.25
"""Seconds between commits of a worker that completes few dispatches."""
COMMIT_BUSY_SEC = 0.04
"""Seconds between commits of a worker that completed as many dispatches as it has slots since the last one."""
BEAT_SEC = 1.0
"""Seconds between commits when nothing changed, so that schedulers know that the worker is alive."""
_POLL_SEC, _FULL_WAIT_SEC, _ANSWER_WAIT_SEC = 0.05, 0.25, 0.01
_LEAST_BUFFER = 1_000
"""Number of dispatches that may wait in the buffer in any case. The more, the better higher lanes can overtake."""
_MOST_BYTES = 16_777_216


class CommitMetadata(msgspec.Struct, frozen=True, array_like=True):
    """Metadata that a worker commits with each offset. Schedulers compute the credit of a pool from it."""

    position: int
    """The worker has taken everything before this offset. Dispatches that it has not acked may be older."""
    at_ms: int
    mean_dispatches: float
    """Mean number of dispatches in a message of this partition."""
    concurrency: int
    """0 if the worker has left the partition."""
    worker: str
    acked: int = 0
    """Number of dispatches of the pool that this worker has completed since it joined."""


class Member(ClientThread):
    """Member of the consumer group that shares the topics of one pool.

    Its thread fetches, commits and answers the group coordinator; the loop takes and acks dispatches. The buffer is between
    them.
    """

    def __init__(
        self,
        options: KafkaOptions,
        names: Names,
        codec: Codec,
        clock: Clock,
        *,
        worker: WorkerId,
        pool: str,
        concurrency: int,
        on_arrival: Callable[[], None],
    ) -> None:
        super().__init__(f"noonday-kafka-pool-{pool}")
        self._options = options
        self._codec = codec
        self._clock = clock
        self._worker = worker
        self._concurrency = concurrency
        self._topics = names.topics_of(pool)
        self._group = names.group_of(pool)
        self._on_arrival = on_arrival
        self._lock = threading.Lock()
        self._buffer = DispatchBuffer()
        self._room = concurrency
        self._taken_at = real_clock.monotonic()
        self._drained = threading.Event()
        self._subscribed = False
        self._paused = False
        self._mean_dispatches = float(LARGEST_PACK)
        self._acked = self._committed_acked = 0
        """Number of dispatches acked since the start, and by the last commit."""
        self._committed_at = 0.0
        self._commits_in_flight = 0
        self._beat_at = 0.0
        self.takers = 0
        """Number of calls that wait for dispatches. Changed on the loop only."""

    # On the loop

    def take(self, room: int) -> list[Dispatch]:
        with self._lock:
            taken = self._buffer.take(room)
            self._room = room
            self._taken_at = real_clock.monotonic()
            if 2 * self._buffer.waiting < self._capacity() and 2 * self._buffer.bytes < _MOST_BYTES:
                self._drained.set()
        return taken

    def ack(self, dispatches: Sequence[Dispatch]) -> None:
        with self._lock:
            self._buffer.ack(dispatches)
            self._acked += len(dispatches)

    # In the thread

    def _open(self) -> None:
        self._consumer = Consumer(self._options.member(self._group) | {"on_commit": self._on_commit})

    def _run_once(self) -> None:
        now = real_clock.monotonic()
        self._join_or_leave(now)
        if self._is_full():
            self._wait_for_room()
        else:
            self._fetch()
        self._commit_changes(now)

    def _close(self) -> None:
        self._consumer.close()

    def _join_or_leave(self, now: float) -> None:
        """Leave the group while the worker has no room, so that others get its partitions. Join it again afterwards."""
        has_room = self.takers > 0 or now - self._taken_at < self._options.full_after_sec
        if has_room and not self._subscribed:
            self._consumer.subscribe(
                list(self._topics), on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
            )
            self._subscribed = True
        elif self._subscribed and not has_room:
            log.info("full worker leaves group", worker=self._worker, group=self._group)
            self._consumer.unsubscribe()
            self._subscribed = False

    def _is_full(self) -> bool:
        with self._lock:
            full = self._buffer.waiting >= self._capacity() or self._buffer.bytes >= _MOST_BYTES
            if full:
                self._drained.clear()
            return full

    def _capacity(self) -> int:
        return max(_LEAST_BUFFER, 2 * self._room)

    def _wait_for_room(self) -> None:
        """Wait a moment without polling. After that, poll with all partitions paused, so that the member stays in the group.

        The answer of a commit arrives in a poll only, and the next commit waits for it. Meanwhile one message may be added to a
        full buffer every few ms.
        """
        if self._commits_in_flight and not self._paused:
            if not self._drained.wait(_ANSWER_WAIT_SEC):
                self._add_messages([self._consumer.poll(0)])
            return
        if self._drained.wait(COMMIT_BUSY_SEC if self._is_busy() else _FULL_WAIT_SEC) or self._is_busy():
            return
        if not self._paused:
            self._consumer.pause(self._consumer.assignment())
            self._paused = True
        self._add_messages([self._consumer.poll(0)])

    def _fetch(self) -> None:
        if self._paused:
            self._consumer.resume(self._consumer.assignment())
            self._paused = False
        first = self._consumer.poll(_ANSWER_WAIT_SEC if self._is_busy() else _POLL_SEC)
        if first is not None:
            with self._lock:
                room = self._capacity() - self._buffer.waiting
            # Take what the client has fetched already, without waiting for more.
            self._add_messages([first, *self._consumer.consume(max(1, round(room / self._mean_dispatches)), 0)])

    def _add_messages(self, messages: Iterable[Message | None]) -> None:
        unpacked: list[tuple[PartitionKey, int, list[Dispatch], int]] = []
        for message in messages:
            if message is None:
                continue
            error = message.error()
            if error is not None:
                self._warn("kafka fetch failed", error)
                continue
            dispatches = self._codec.unpack_dispatches(message)
            unpacked.append((_partition_of(message), message.offset() or 0, dispatches, len(message)))
            self._mean_dispatches += (max(1, len(dispatches)) - self._mean_dispatches) / 8
        with self._lock:
            for key, offset, dispatches, size in unpacked:
                self._buffer.add(key, offset, dispatches, size)
        if unpacked:
            self._call_on_loop(self._on_arrival)

    def _commit_changes(self, now: float) -> None:
        # One commit at a time: while one is in flight, a client does not give up its broker, even a dead one.
        interval = COMMIT_BUSY_SEC if self._is_busy() else COMMIT_SEC
        if self._commits_in_flight:
            interval = self._options.end_within_sec
        if now - self._committed_at < interval:
            return
        self._committed_at = now
        with self._lock:
            self._committed_acked = self._acked
            commits = self._changed_commits(self._buffer.trackers, self._concurrency)
            if not commits and now - self._beat_at >= BEAT_SEC:
                commits = self._repeated_commit()
        if commits:
            self._beat_at = now
            self._commit(commits)

    def _is_busy(self) -> bool:
        """Return whether so many dispatches were acked since the last commit that schedulers should know."""
        return self._acked - self._committed_acked >= self._concurrency

    def _changed_commits(self, keys: Iterable[PartitionKey], concurrency: int) -> list[TopicPartition]:
        """Return commits of the partitions that changed since their last commit."""
        found = ((key, self._buffer.trackers.get(key)) for key in keys)
        commits = (self._next_commit(key, tracker, concurrency) for key, tracker in found if tracker is not None)
        return [commit for commit in commits if commit is not None]

    def _repeated_commit(self) -> list[TopicPartition]:
        """Return a commit of one partition. One is enough to show that the worker is alive."""
        for key, tracker in self._buffer.trackers.items():
            tracker.last_commit = None
            commit = self._next_commit(key, tracker, self._concurrency)
            if commit is not None:
                return [commit]
        return []

    def _next_commit(self, key: PartitionKey, tracker: OffsetTracker, concurrency: int) -> TopicPartition | None:
        offset, position = tracker.acked_to(), tracker.position
        if offset is None or position is None or tracker.last_commit == (offset, position, concurrency):
            return None
        tracker.last_commit = (offset, position, concurrency)
        metadata = CommitMetadata(
            position, self._clock.now_ms(), round(tracker.mean_dispatches, 2), concurrency, self._worker, self._acked
        )
        return TopicPartition(*key, offset, metadata=msgspec.json.encode(metadata).decode())

    def _commit(self, commits: Sequence[TopicPartition]) -> None:
        self._commits_in_flight += 1
        try:
            self._consumer.commit(offsets=list(commits), asynchronous=True)
        except KafkaException as error:
            self._on_commit(error.args[0], commits)

    def _on_commit(self, error: KafkaError | None, commits: Sequence[TopicPartition]) -> None:
        """Arrange that failed commits are repeated. Failures are normal while partitions move between workers."""
        self._commits_in_flight = max(0, self._commits_in_flight - 1)
        failed = commits if error is not None else [each for each in commits if each.error is not None]
        with self._lock:
            for each in failed:
                tracker = self._buffer.trackers.get((each.topic, each.partition))
                if tracker is not None:
                    tracker.last_commit = None

    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Start the assigned partitions. Those that we had before continue where we are, unless another worker had them since."""
        starts = self._find_starts(consumer, partitions)
        with self._lock:
            self._buffer.drop_partitions(
                key
                for key, tracker in list(self._buffer.trackers.items())
                if not _can_continue(tracker, starts.get(key))
            )
            for each in partitions:
                key = (each.topic, each.partition)
                if key not in self._buffer.trackers:
                    self._buffer.add_partition(key, self._topics.index(each.topic), starts.get(key))
                start = self._buffer.trackers[key].next
                if start is not None:
                    each.offset = start
            self._buffer.rebalancing = False
        consumer.assign(partitions)
        self._paused = False
        self._call_on_loop(self._on_arrival)

    def _find_starts(self, consumer: Consumer, partitions: list[TopicPartition]) -> dict[PartitionKey, int]:
        """Return the committed offsets. For partitions that are not in the answer, the client finds the start itself."""
        if not partitions:
            return {}
        try:
            found = consumer.committed(partitions, timeout=self._options.answer_within_sec)
        except KafkaException as error:
            self._warn("committed offsets unknown", error.args[0])
            return {}
        # A partition without a commit starts at 0. If its first messages are deleted, the client finds the real start.
        return {(each.topic, each.partition): max(0, each.offset) for each in found if each.error is None}

    def _on_revoke(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Commit before the partitions are given up: they are ours until this returns. Most of them come back at once."""
        leaving = self._stopping.is_set() or not self._subscribed
        keys = [(each.topic, each.partition) for each in partitions]
        with self._lock:
            commits = self._changed_commits(keys, 0 if leaving else self._concurrency)
            self._buffer.rebalancing = True
        if commits:
            self._commit(commits)
        if leaving:
            self._on_lost(consumer, partitions)

    def _on_lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Drop partitions that other workers may have already."""
        with self._lock:
            self._buffer.drop_partitions((each.topic, each.partition) for each in partitions)


def _can_continue(tracker: OffsetTracker, start: int | None) -> bool:
    return start is not None and tracker.last_commit is not None and tracker.last_commit[0] == start


def _partition_of(message: Message) -> PartitionKey:
    return message.topic() or "", message.partition() or 0
