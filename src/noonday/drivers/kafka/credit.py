"""Credit of the pools: how many more dispatches each can take. Measured in the background, answered from memory.

The worker that has a partition of a pool commits its offset with metadata about itself (`member.py: CommitMetadata`). Messages
between the position in that metadata and the end of the partition wait; messages that the position moved past were taken.
There is no counter that goes up and down, so nothing can leak.
"""

import math
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec
from confluent_kafka import OFFSET_END, Consumer, KafkaException, TopicPartition

from noonday.drivers.kafka.member import CommitMetadata
from noonday.drivers.kafka.names import Names
from noonday.drivers.kafka.offsets import PartitionKey
from noonday.drivers.kafka.options import KafkaOptions
from noonday.drivers.kafka.thread import ClientThread, real_clock
from noonday.drivers.kafka.topics import Topics
from noonday.ports.clock import Clock

Commit = tuple[int, CommitMetadata | None]
"""The committed offset of a partition, and the metadata that its worker committed with it."""
GONE_MS = 10_000
"""A worker that has committed nothing for this long, in ms, is gone."""
STALE_SEC = 5.0
"""A measurement older than this, in seconds, is not used."""
DEPTH_FACTOR = 4
"""A pool may always be this many times as deep as the concurrency of its workers."""
DEPTH_SEC = 0.6
"""A pool may be as deep as what its workers complete in this many seconds, at their best recent rate."""
PACE_MS = 100
"""A rate is the mean of at least this many ms of a worker's clock."""
PACE_HALVES_MS = 2_000
"""A rate that is not reached again halves in this many ms, so a stall does not shrink the pool that it should refill."""
_MEASURE_SEC, _MEASURE_IDLE_SEC, _DISCOVER_SEC = 0.2, 1.0, 2.0
_MEASURE_LOW_SEC = 0.04
"""Seconds between measurements of a pool whose credit is low, while its workers make progress."""
_REPLACE_CLIENTS_SEC = 10.0
"""Clients that had no answer for this long, in seconds, are replaced."""
_ANSWER_SEC = 1.0
"""Timeout of one request, in seconds. After a longer wait the measurement would be stale anyway."""


@dataclass
class WorkerPace:
    """The rate at which one worker completes dispatches, by its own count and clock."""

    acked: int
    at_ms: int
    rate: float = 0.0
    """Dispatches a second: the best recent one."""

    def note(self, acked: int, at_ms: int) -> None:
        elapsed_ms = at_ms - self.at_ms
        if acked < self.acked or elapsed_ms < 0:
            self.acked, self.at_ms = acked, at_ms  # the worker's clock was set back
        elif elapsed_ms >= PACE_MS:
            rate = (acked - self.acked) * 1000 / elapsed_ms
            self.rate = max(rate, self.rate * 0.5 ** (elapsed_ms / PACE_HALVES_MS))
            self.acked, self.at_ms = acked, at_ms


@dataclass
class PoolLoad:
    """Depth, rate and concurrency of one pool."""

    metadata: dict[PartitionKey, tuple[CommitMetadata, float]] = field(default_factory=dict)
    """The last metadata of each partition, and when it changed."""
    paces: dict[str, WorkerPace] = field(default_factory=dict)
    """The pace of each worker that counts."""
    depth: float = 0.0
    concurrency: int = 0
    completed: int = 0
    """Number of dispatches that the workers which count had completed."""

    def update(
        self, ends: Mapping[PartitionKey, int], commits: Mapping[PartitionKey, Commit], now: float, now_ms: int
    ) -> None:
        """Measure again, from the end of each partition and from its last commit."""
        self.depth = 0.0
        for key, end in ends.items():
            committed, metadata = commits.get(key, (0, None))
            self._note_metadata(key, metadata, now)
            mean = metadata.mean_dispatches if metadata is not None and metadata.mean_dispatches else 1.0
            position = max(committed, metadata.position if metadata is not None else 0)
            self.depth += max(0, end - position) * mean
        self._count_workers(now, now_ms)

    @property
    def limit(self) -> float:
        """The depth that is allowed, in dispatches."""
        return max(DEPTH_FACTOR * self.concurrency, DEPTH_SEC * sum(pace.rate for pace in self.paces.values()))

    def _note_metadata(self, key: PartitionKey, metadata: CommitMetadata | None, now: float) -> None:
        known = self.metadata.get(key)
        if metadata is None or (known is not None and known[0] == metadata):
            return
        # The first metadata that we read of a partition may be of any age.
        self.metadata[key] = (metadata, now if known is not None else -math.inf)

    def _count_workers(self, now: float, now_ms: int) -> None:
        """Add up the concurrency and the pace of all workers that committed lately, by their clock or by ours."""
        newest: dict[str, CommitMetadata] = {}
        for metadata, changed_at in self.metadata.values():
            known = newest.get(metadata.worker)
            is_newer = known is None or (metadata.acked, metadata.at_ms) > (known.acked, known.at_ms)
            is_recent = abs(now_ms - metadata.at_ms) < GONE_MS or now - changed_at < GONE_MS / 1000
            if metadata.concurrency and is_recent and is_newer:
                newest[metadata.worker] = metadata
        paces = {
            worker: self.paces.get(worker) or WorkerPace(metadata.acked, metadata.at_ms)
            for worker, metadata in newest.items()
        }
        for worker, metadata in newest.items():
            paces[worker].note(metadata.acked, metadata.at_ms)
        self.paces = paces
        self.concurrency = sum(metadata.concurrency for metadata in newest.values())
        self.completed = sum(metadata.acked for metadata in newest.values())


class CreditMeter(ClientThread):
    """Measures every pool in a thread: five times a second while it is busy, more often while its credit is low, and once a
    second while it is idle.

    The loop is closed over the workers: they commit what they completed as soon as that matters (`member.py`), and the credit
    that this leaves is measured as soon as it matters.

    It asks with consumers. The admin client of librdkafka ends the whole process if a broker restarts while the offsets of a
    group are requested, and after a change of leader it never gets the end of a partition again.
    """

    def __init__(self, options: KafkaOptions, names: Names, topics: Topics, clock: Clock) -> None:
        super().__init__("noonday-kafka-credit")
        self._options = options
        self._names = names
        self._topics = topics
        self._clock = clock
        self._group_clients: dict[str, Consumer] = {}
        """Client of each pool that is configured with the group of the pool, without being a member."""
        self._loads: dict[str, PoolLoad] = {}
        self._partitions: dict[str, list[TopicPartition]] = {}
        self._discovered_at = -math.inf
        self._answered_at = real_clock.monotonic()
        self._last_measured: dict[str, tuple[float, int]] = {}
        """Time of the last measurement of each pool, and the number of dispatches that this process had published by then."""
        self._measurements: dict[str, _Measurement] = {}
        self._published: dict[str, int] = {}
        self._acknowledged: dict[str, int] = {}
        self._low = threading.Event()
        """Set when the credit of a pool becomes low, so that the pool is measured soon."""

    # On the loop

    def credit(self) -> dict[str, int]:
        now = real_clock.monotonic()
        published = self._published
        return {
            pool: max(0, measured.room - published.get(pool, 0) + measured.acknowledged)
            for pool, measured in self._measurements.items()
            if now - measured.at < STALE_SEC
        }

    def publishing(self, pool: str, count: int) -> None:
        """Count dispatches that are about to be sent. Until they are acknowledged, a measurement may miss them."""
        self._published[pool] = self._published.get(pool, 0) + count
        if self._is_low(pool):
            self._low.set()

    def published(self, pool: str, count: int) -> None:
        """Count dispatches that are in the topic, or failed to get there."""
        self._acknowledged[pool] = self._acknowledged.get(pool, 0) + count

    def discover_soon(self) -> None:
        """List the topics again in the next round, because there are new ones."""
        self._discovered_at = -math.inf

    # In the thread

    def _open(self) -> None:
        self._client = Consumer(self._options.reader())

    def _run_once(self) -> None:
        now = real_clock.monotonic()
        try:
            if now - self._discovered_at >= _DISCOVER_SEC:
                self._discover(now)
            for pool in self._partitions:
                if self._is_due(pool, now):
                    self._measure(pool)
            self._answered_at = now
        except KafkaException as error:
            self._warn("kafka credit unknown", error.args[0])
            if now - self._answered_at > _REPLACE_CLIENTS_SEC:
                self._answered_at = now
                self._close()
                self._open()
        self._wait()

    def _wait(self) -> None:
        """Wait until the next round. A stop waits for that, too, which is short."""
        self._stopping.wait(_MEASURE_LOW_SEC)
        self._low.wait(_MEASURE_SEC - _MEASURE_LOW_SEC)
        self._low.clear()

    def _close(self) -> None:
        self._client.close()
        for consumer in self._group_clients.values():
            consumer.close()
        self._group_clients.clear()

    def _discover(self, now: float) -> None:
        self._discovered_at = now
        found = self._client.list_topics(timeout=_ANSWER_SEC).topics
        counts = {name: len(topic.partitions) for name, topic in found.items() if topic.error is None}
        self._topics.note_partitions(counts)
        partitions: dict[str, list[TopicPartition]] = {}
        for name, count in counts.items():
            pool = self._names.find_pool(name)
            if pool is not None:
                partitions.setdefault(pool, []).extend(TopicPartition(name, each) for each in range(count))
        self._partitions = partitions
        self._measurements = {pool: each for pool, each in self._measurements.items() if pool in partitions}
        for gone in set(self._group_clients) - set(partitions):
            self._loads.pop(gone, None)
            self._group_clients.pop(gone).close()

    def _is_due(self, pool: str, now: float) -> bool:
        at, published = self._last_measured.get(pool, (-math.inf, 0))
        load = self._loads.get(pool)
        idle = load is not None and not load.depth and self._published.get(pool, 0) == published
        return now - at >= (_MEASURE_IDLE_SEC if idle else 0)

    def _is_low(self, pool: str) -> bool:
        """Return whether less than half of the depth that a pool may have is left to publish."""
        measured = self._measurements.get(pool)
        if measured is None:
            return False
        return 2 * (measured.room - self._published.get(pool, 0) + measured.acknowledged) < measured.limit

    def _measure(self, pool: str) -> None:
        acknowledged, published = self._acknowledged.get(pool, 0), self._published.get(pool, 0)
        commits, ends = self._read_commits(pool), self._read_ends(pool)
        now = real_clock.monotonic()
        self._last_measured[pool] = (now, published)
        load = self._loads.setdefault(pool, PoolLoad())
        completed = load.completed
        load.update(ends, commits, self._clock.monotonic(), self._clock.now_ms())
        others = {name: measured for name, measured in self._measurements.items() if name != pool}
        room, limit = int(load.limit - load.depth), load.limit
        ours = {pool: _Measurement(now, room, limit, acknowledged)} if load.concurrency else {}
        self._measurements = others | ours
        if load.completed != completed and pool in ours and self._is_low(pool):
            self._low.set()

    def _read_commits(self, pool: str) -> dict[PartitionKey, Commit]:
        """Return the commits of a pool's group. Only a client that is configured with the group can ask for them."""
        client = self._group_clients.get(pool)
        if client is None:
            client = self._group_clients[pool] = Consumer(self._options.member(self._names.group_of(pool)))
        found = client.committed(self._partitions[pool], timeout=_ANSWER_SEC)
        return {
            (each.topic, each.partition): (max(0, each.offset), _decode_metadata(each.metadata))
            for each in found
            if each.error is None
        }

    def _read_ends(self, pool: str) -> dict[PartitionKey, int]:
        ends = [TopicPartition(each.topic, each.partition, OFFSET_END) for each in self._partitions[pool]]
        found = self._client.offsets_for_times(ends, timeout=_ANSWER_SEC)
        for each in found:
            if each.error is not None:
                raise KafkaException(each.error)
        return {(each.topic, each.partition): each.offset for each in found}


class _Measurement(NamedTuple):
    """Result of measuring a pool that has workers."""

    at: float
    room: int
    limit: float
    acknowledged: int
    """Number of dispatches published by this process that the measurement is sure to include."""


def _decode_metadata(text: str | None) -> CommitMetadata | None:
    try:
        return msgspec.json.decode(text, type=CommitMetadata) if text else None
    except msgspec.DecodeError:
        return None
