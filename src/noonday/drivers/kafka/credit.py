"""How much more a pool can take: measured in the background, answered from memory.

Whoever has a partition of a pool commits its offset with a word about itself (`member.py: Word`). What is between the position
in that word and the end of the partition waits; what the position moved by was taken. Nothing is counted up and down, so
nothing can leak.
"""

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec
from confluent_kafka import OFFSET_END, Consumer, KafkaException, TopicPartition

from noonday.drivers.kafka.member import Word
from noonday.drivers.kafka.names import Names
from noonday.drivers.kafka.offsets import TopicPlace
from noonday.drivers.kafka.options import KafkaOptions
from noonday.drivers.kafka.thread import ClientThread, pace
from noonday.drivers.kafka.topics import Topics
from noonday.ports.clock import Clock

Said = tuple[int, Word | None]
"""What is committed at a partition: an offset, and a word of whoever has it."""
GONE_MS = 10_000
"""A worker that has said nothing for so long is not there."""
STALE_SEC = 5.0
"""After so long without a look, nothing is known."""
DEEP = 4
"""A pool may always be this many times as deep as its workers have room."""
MORE = 1.2
"""How many seconds of what the pool took lately may wait for it."""
_LOOK_SEC, _LOOK_AT_IDLE_SEC, _DISCOVER_SEC = 0.2, 1.0, 2.0
_RATE_SEC, _LEAST_RATE_SEC = 1.0, 0.5
_MISTRUST_SEC = 10.0
"""Clients that brought no answer for so long are replaced."""
_ANSWER_SEC = 1.0
"""How long a look may take: whoever waits longer knows nothing anyway."""


@dataclass
class Gauge:
    """What is known of one pool."""

    positions: dict[TopicPlace, int] = field(default_factory=dict)
    words: dict[TopicPlace, tuple[Word, float]] = field(default_factory=dict)
    """What was last said at each partition, and when we heard it being said."""
    taken: float = 0.0
    lately: deque[tuple[float, float]] = field(default_factory=deque)
    """(when, how much had been taken by then), going back a second."""
    depth: float = 0.0
    concurrency: int = 0

    def note(self, ends: Mapping[TopicPlace, int], said: Mapping[TopicPlace, Said], now: float, now_ms: int) -> None:
        """A look: the end of each partition, and what is committed there."""
        self.depth = 0.0
        for place, end in ends.items():
            committed, word = said.get(place, (0, None))
            self._hear(place, word, now)
            mean = word.mean_pack if word is not None and word.mean_pack else 1.0
            position = max(committed, word.position if word is not None else 0)
            self.taken += max(0, position - self.positions.get(place, position)) * mean
            self.positions[place] = position
            self.depth += max(0, end - position) * mean
        self.lately.append((now, self.taken))
        while len(self.lately) > 1 and self.lately[1][0] <= now - _RATE_SEC:
            self.lately.popleft()
        self.concurrency = self._count_room(now, now_ms)

    @property
    def limit(self) -> float:
        """How deep it may be."""
        return max(DEEP * self.concurrency, MORE * self._rate())

    def _rate(self) -> float:
        if not self.lately:
            return 0.0
        (then, before), (now, after) = self.lately[0], self.lately[-1]
        return (after - before) / max(_LEAST_RATE_SEC, now - then)

    def _hear(self, place: TopicPlace, word: Word | None, now: float) -> None:
        known = self.words.get(place)
        if word is None or (known is not None and known[0] == word):
            return
        # What was there before we came may be of any age.
        self.words[place] = (word, now if known is not None else -math.inf)

    def _count_room(self, now: float, now_ms: int) -> int:
        """Of all workers that spoke lately, by their clock or by ours."""
        room = {
            word.worker: word.concurrency
            for word, heard in self.words.values()
            if word.concurrency and (abs(now_ms - word.at_ms) < GONE_MS or now - heard < GONE_MS / 1000)
        }
        return sum(room.values())


class Meter(ClientThread):
    """Looks at every pool again and again: five times a second while something happens there.

    It asks as a consumer. The admin client of librdkafka ends the whole process if a broker restarts while it is asked for
    the offsets of a group, and once a leader has changed it never gets the end of a partition again.
    """

    def __init__(self, options: KafkaOptions, names: Names, topics: Topics, clock: Clock) -> None:
        super().__init__("noonday-kafka-meter")
        self._options = options
        self._names = names
        self._topics = topics
        self._clock = clock
        self._inside: dict[str, Consumer] = {}
        """For each pool a client that knows its group, without being a member."""
        self._gauges: dict[str, Gauge] = {}
        self._places: dict[str, list[TopicPartition]] = {}
        self._discovered_at = -math.inf
        self._answered_at = pace.monotonic()
        self._looked: dict[str, tuple[float, int]] = {}
        """For each pool: when we last looked, and how much we had published by then."""
        self._seen: dict[str, _Seen] = {}
        self._published: dict[str, int] = {}
        self._acknowledged: dict[str, int] = {}

    # On the loop

    def credit(self) -> dict[str, int]:
        now = pace.monotonic()
        published = self._published
        return {
            pool: max(0, seen.room - published.get(pool, 0) + seen.acknowledged)
            for pool, seen in self._seen.items()
            if now - seen.at < STALE_SEC
        }

    def publishing(self, pool: str, count: int) -> None:
        """Until it is acknowledged, no look is sure to see it."""
        self._published[pool] = self._published.get(pool, 0) + count

    def published(self, pool: str, count: int) -> None:
        """It is in the topic, or will not get there."""
        self._acknowledged[pool] = self._acknowledged.get(pool, 0) + count

    def discover_soon(self) -> None:
        """There are new topics."""
        self._discovered_at = -math.inf

    # In the thread

    def _open(self) -> None:
        self._outside = Consumer(self._options.reader())

    def _turn(self) -> None:
        now = pace.monotonic()
        try:
            if now - self._discovered_at >= _DISCOVER_SEC:
                self._discover(now)
            for pool in self._places:
                if self._is_due(pool, now):
                    self._look(pool)
            self._answered_at = now
        except KafkaException as error:
            self._complain("cannot tell how deep the pools are", error.args[0])
            if now - self._answered_at > _MISTRUST_SEC:
                self._answered_at = now
                self._close()
                self._open()
        self._stopping.wait(_LOOK_SEC)

    def _close(self) -> None:
        self._outside.close()
        for consumer in self._inside.values():
            consumer.close()
        self._inside.clear()

    def _discover(self, now: float) -> None:
        self._discovered_at = now
        found = self._outside.list_topics(timeout=_ANSWER_SEC).topics
        counts = {name: len(topic.partitions) for name, topic in found.items() if topic.error is None}
        self._topics.note(counts)
        places: dict[str, list[TopicPartition]] = {}
        for name, count in counts.items():
            pool = self._names.find_pool(name)
            if pool is not None:
                places.setdefault(pool, []).extend(TopicPartition(name, each) for each in range(count))
        self._places = places
        self._seen = {pool: seen for pool, seen in self._seen.items() if pool in places}
        for gone in set(self._inside) - set(places):
            self._gauges.pop(gone, None)
            self._inside.pop(gone).close()

    def _is_due(self, pool: str, now: float) -> bool:
        at, published = self._looked.get(pool, (-math.inf, 0))
        gauge = self._gauges.get(pool)
        idle = gauge is not None and not gauge.depth and self._published.get(pool, 0) == published
        return now - at >= (_LOOK_AT_IDLE_SEC if idle else 0)

    def _look(self, pool: str) -> None:
        acknowledged, published = self._acknowledged.get(pool, 0), self._published.get(pool, 0)
        said, ends = self._read_words(pool), self._read_ends(pool)
        now = pace.monotonic()
        self._looked[pool] = (now, published)
        gauge = self._gauges.setdefault(pool, Gauge())
        gauge.note(ends, said, self._clock.monotonic(), self._clock.now_ms())
        others = {name: seen for name, seen in self._seen.items() if name != pool}
        here = {pool: _Seen(now, int(gauge.limit - gauge.depth), acknowledged)} if gauge.concurrency else {}
        self._seen = others | here

    def _read_words(self, pool: str) -> dict[TopicPlace, Said]:
        """What is committed by the group of a pool. Only a client that is told of the group can ask about it."""
        inside = self._inside.get(pool)
        if inside is None:
            inside = self._inside[pool] = Consumer(self._options.member(self._names.group_of(pool)))
        found = inside.committed(self._places[pool], timeout=_ANSWER_SEC)
        return {
            (each.topic, each.partition): (max(0, each.offset), _read_word(each.metadata))
            for each in found
            if each.error is None
        }

    def _read_ends(self, pool: str) -> dict[TopicPlace, int]:
        asked = [TopicPartition(each.topic, each.partition, OFFSET_END) for each in self._places[pool]]
        found = self._outside.offsets_for_times(asked, timeout=_ANSWER_SEC)
        for each in found:
            if each.error is not None:
                raise KafkaException(each.error)
        return {(each.topic, each.partition): each.offset for each in found}


class _Seen(NamedTuple):
    """What a look at a pool that has workers came to."""

    at: float
    room: int
    acknowledged: int
    """How much of what we published it is sure to have seen."""


def _read_word(text: str | None) -> Word | None:
    try:
        return msgspec.json.decode(text, type=Word) if text else None
    except msgspec.DecodeError:
        return None
