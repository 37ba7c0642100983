"""Credit of the pools: how many more dispatches each can take. Measured in the background, answered from memory.

The worker that has a partition of a pool commits its offset with metadata about itself (`member.py: CommitMetadata`). Messages
between the position in that metadata and the end of the partition wait; messages that the position moved past were taken.
There is no counter that goes up and down, so nothing can leak.
"""

import math
from collections import deque
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
DEPTH_SEC = 1.2
"""A pool may be as deep as what its workers take in this many seconds, at their recent rate."""
_MEASURE_SEC, _MEASURE_IDLE_SEC, _DISCOVER_SEC = 0.2, 1.0, 2.0
_RATE_SEC, _LEAST_RATE_SEC = 1.0, 0.5
_REPLACE_CLIENTS_SEC = 10.0
"""Clients that had no answer for this long, in seconds, are replaced."""
_ANSWER_SEC = 1.0
"""Timeout of one request, in seconds. After a longer wait the measurement would be stale anyway."""


@dataclass
class PoolLoad:
    """Depth, rate and concurrency of one pool."""

    positions: dict[PartitionKey, int] = field(default_factory=dict)
    metadata: dict[PartitionKey, tuple[CommitMetadata, float]] = field(default_factory=dict)
    """The last metadata of each partition, and when it changed."""
    taken: float = 0.0
    history: deque[tuple[float, float]] = field(default_factory=deque)
    """(time, number of dispatches taken by then), for the last second."""
    depth: float = 0.0
    concurrency: int = 0

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
            self.taken += max(0, position - self.positions.get(key, position)) * mean
            self.positions[key] = position
            self.depth += max(0, end - position) * mean
        self.history.append((now, self.taken))
        while len(self.history) > 1 and self.history[1][0] <= now - _RATE_SEC:
            self.history.popleft()
        self.concurrency = self._count_concurrency(now, now_ms)

    @property
    def limit(self) -> float:
        """The depth that is allowed, in dispatches."""
        return max(DEPTH_FACTOR * self.concurrency, DEPTH_SEC * self._rate())

    def _rate(self) -> float:
        if not self.history:
            return 0.0
        (then, before), (now, after) = self.history[0], self.history[-1]
        return (after - before) / max(_LEAST_RATE_SEC, now - then)

    def _note_metadata(self, key: PartitionKey, metadata: CommitMetadata | None, now: float) -> None:
        known = self.metadata.get(key)
        if metadata is None or (known is not None and known[0] == metadata):
            return
        # The first metadata that we read of a partition may be of any age.
        self.metadata[key] = (metadata, now if known is not None else -math.inf)

    def _count_concurrency(self, now: float, now_ms: int) -> int:
        """Add up the concurrency of all workers that committed lately, by their clock or by ours."""
        by_worker = {
            metadata.worker: metadata.concurrency
            for metadata, changed_at in self.metadata.values()
            if metadata.concurrency and (abs(now_ms - metadata.at_ms) < GONE_MS or now - changed_at < GONE_MS / 1000)
        }
        return sum(by_worker.values())


class CreditMeter(ClientThread):
    """Measures every pool in a thread: five times a second while it is busy, once a second while it is idle.

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
        self._stopping.wait(_MEASURE_SEC)

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

    def _measure(self, pool: str) -> None:
        acknowledged, published = self._acknowledged.get(pool, 0), self._published.get(pool, 0)
        commits, ends = self._read_commits(pool), self._read_ends(pool)
        now = real_clock.monotonic()
        self._last_measured[pool] = (now, published)
        load = self._loads.setdefault(pool, PoolLoad())
        load.update(ends, commits, self._clock.monotonic(), self._clock.now_ms())
        others = {name: measured for name, measured in self._measurements.items() if name != pool}
        ours = {pool: _Measurement(now, int(load.limit - load.depth), acknowledged)} if load.concurrency else {}
        self._measurements = others | ours

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
    acknowledged: int
    """Number of dispatches published by this process that the measurement is sure to include."""


def _decode_metadata(text: str | None) -> CommitMetadata | None:
    try:
        return msgspec.json.decode(text, type=CommitMetadata) if text else None
    except msgspec.DecodeError:
        return None
