"""A worker's share of a pool: which partitions it has, what came from them, and how far they are committed."""

import threading
from collections.abc import Callable, Iterable, Sequence

import msgspec
import structlog
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from noonday.drivers.kafka.codec import LARGEST_PACK, Codec
from noonday.drivers.kafka.names import Names
from noonday.drivers.kafka.offsets import Shelf, TopicPlace, Track
from noonday.drivers.kafka.options import KafkaOptions
from noonday.drivers.kafka.thread import ClientThread, pace
from noonday.model.ids import WorkerId
from noonday.model.message import Dispatch
from noonday.ports.clock import Clock

log = structlog.get_logger("noonday.kafka")
COMMIT_SEC = 0.25
BEAT_SEC = 1.0
"""Also when nothing changed: so that others know that a worker is here."""
_POLL_SEC, _HOLD_SEC = 0.05, 0.25
_LEAST_SHELF = 1_000
"""How many dispatches may lie here in any case: the more, the better those of higher lanes can overtake."""
_MOST_BYTES = 16_777_216


class Word(msgspec.Struct, frozen=True, array_like=True):
    """What a worker says of itself wherever it commits an offset: this is how schedulers learn how much a pool can take."""

    position: int
    """It has taken what is before this offset; what it has not done with may be older."""
    at_ms: int
    mean_pack: float
    """How many dispatches a message of this partition has, on average."""
    concurrency: int
    """0: the partition is nobody's at present."""
    worker: str


class Member(ClientThread):
    """Of the group that shares the topics of one pool.

    Its thread fetches, commits and answers the group; the loop takes and says what is done with. The shelf is between them.
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
        self._shelf = Shelf()
        self._room = concurrency
        self._wanted_at = pace.monotonic()
        self._drained = threading.Event()
        self._subscribed = False
        self._paused = False
        self._mean_pack = float(LARGEST_PACK)
        self._committed_at = 0.0
        self._under_way = 0
        """Commits that are not answered."""
        self._beat_at = 0.0
        self.takers = 0
        """How many wait for something to arrive. Changed on the loop only."""

    # On the loop

    def take(self, room: int) -> list[Dispatch]:
        with self._lock:
            taken = self._shelf.take(room)
            self._room = room
            self._wanted_at = pace.monotonic()
            if 2 * self._shelf.waiting < self._most() and 2 * self._shelf.bytes < _MOST_BYTES:
                self._drained.set()
        return taken

    def done(self, dispatches: Sequence[Dispatch]) -> None:
        with self._lock:
            self._shelf.done(dispatches)

    # In the thread

    def _open(self) -> None:
        self._consumer = Consumer(self._options.member(self._group) | {"on_commit": self._on_commit})

    def _turn(self) -> None:
        now = pace.monotonic()
        self._come_or_go(now)
        if self._is_full():
            self._hold_off()
        else:
            self._fetch()
        self._commit_some(now)

    def _close(self) -> None:
        self._consumer.close()

    def _come_or_go(self, now: float) -> None:
        """A worker without room gives its partitions to others, and comes back when it has some."""
        wants = self.takers > 0 or now - self._wanted_at < self._options.full_after_sec
        if wants and not self._subscribed:
            self._consumer.subscribe(
                list(self._topics), on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
            )
            self._subscribed = True
        elif self._subscribed and not wants:
            log.info("a full worker gives up its partitions", worker=self._worker, group=self._group)
            self._consumer.unsubscribe()
            self._subscribed = False

    def _is_full(self) -> bool:
        with self._lock:
            full = self._shelf.waiting >= self._most() or self._shelf.bytes >= _MOST_BYTES
            if full:
                self._drained.clear()
            return full

    def _most(self) -> int:
        return max(_LEAST_SHELF, 2 * self._room)

    def _hold_off(self) -> None:
        """For a moment simply do not look; after that the group must hear from us, and we must not get more."""
        if self._drained.wait(_HOLD_SEC):
            return
        if not self._paused:
            self._consumer.pause(self._consumer.assignment())
            self._paused = True
        self._admit([self._consumer.poll(0)])

    def _fetch(self) -> None:
        if self._paused:
            self._consumer.resume(self._consumer.assignment())
            self._paused = False
        first = self._consumer.poll(_POLL_SEC)
        if first is not None:
            with self._lock:
                room = self._most() - self._shelf.waiting
            # What is here already, without waiting for more.
            self._admit([first, *self._consumer.consume(max(1, round(room / self._mean_pack)), 0)])

    def _admit(self, messages: Iterable[Message | None]) -> None:
        opened: list[tuple[TopicPlace, int, list[Dispatch], int]] = []
        for message in messages:
            if message is None:
                continue
            error = message.error()
            if error is not None:
                self._complain("cannot fetch", error)
                continue
            dispatches = self._codec.open_pack(message)
            opened.append((_place(message), message.offset() or 0, dispatches, len(message)))
            self._mean_pack += (max(1, len(dispatches)) - self._mean_pack) / 8
        with self._lock:
            for place, offset, dispatches, size in opened:
                self._shelf.add(place, offset, dispatches, size)
        if opened:
            self._tell(self._on_arrival)

    def _commit_some(self, now: float) -> None:
        # One at a time: while one is under way, a client does not let go of its broker, be that dead.
        patience = self._options.end_within_sec if self._under_way else COMMIT_SEC
        if now - self._committed_at < patience:
            return
        self._committed_at = now
        with self._lock:
            saying = self._unsaid(self._shelf.tracks, self._concurrency)
            if not saying and now - self._beat_at >= BEAT_SEC:
                saying = self._said_again()
        if saying:
            self._beat_at = now
            self._commit(saying)

    def _unsaid(self, places: Iterable[TopicPlace], concurrency: int) -> list[TopicPartition]:
        """What changed since it was last committed."""
        found = ((place, self._shelf.tracks.get(place)) for place in places)
        spoken = (self._say(place, track, concurrency) for place, track in found if track is not None)
        return [saying for saying in spoken if saying is not None]

    def _said_again(self) -> list[TopicPartition]:
        """For one partition: that is enough to be known."""
        for place, track in self._shelf.tracks.items():
            track.said = None
            saying = self._say(place, track, self._concurrency)
            if saying is not None:
                return [saying]
        return []

    def _say(self, place: TopicPlace, track: Track, concurrency: int) -> TopicPartition | None:
        offset, position = track.done_to(), track.position
        if offset is None or position is None or track.said == (offset, position, concurrency):
            return None
        track.said = (offset, position, concurrency)
        word = Word(position, self._clock.now_ms(), round(track.mean_pack, 2), concurrency, self._worker)
        return TopicPartition(*place, offset, metadata=msgspec.json.encode(word).decode())

    def _commit(self, saying: Sequence[TopicPartition]) -> None:
        self._under_way += 1
        try:
            self._consumer.commit(offsets=list(saying), asynchronous=True)
        except KafkaException as error:
            self._on_commit(error.args[0], saying)

    def _on_commit(self, error: KafkaError | None, said: Sequence[TopicPartition]) -> None:
        """What was not committed is said again. While partitions change hands, that is normal."""
        self._under_way = max(0, self._under_way - 1)
        unheard = said if error is not None else [each for each in said if each.error is not None]
        with self._lock:
            for each in unheard:
                track = self._shelf.tracks.get((each.topic, each.partition))
                if track is not None:
                    track.said = None

    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Of what we had before, we go on where we are, unless somebody else had it in between."""
        starts = self._find_starts(consumer, partitions)
        with self._lock:
            self._shelf.lose(
                place for place, track in list(self._shelf.tracks.items()) if not _goes_on(track, starts.get(place))
            )
            for each in partitions:
                place = (each.topic, each.partition)
                if place not in self._shelf.tracks:
                    self._shelf.gain(place, self._topics.index(each.topic), starts.get(place))
                start = self._shelf.tracks[place].next
                if start is not None:
                    each.offset = start
            self._shelf.closed = False
        consumer.assign(partitions)
        self._paused = False
        self._tell(self._on_arrival)

    def _find_starts(self, consumer: Consumer, partitions: list[TopicPartition]) -> dict[TopicPlace, int]:
        """Where others left off. What is not in it, the client has to find out by itself."""
        if not partitions:
            return {}
        try:
            found = consumer.committed(partitions, timeout=self._options.answer_within_sec)
        except KafkaException as error:
            self._complain("cannot tell where to begin", error.args[0])
            return {}
        # Where nobody has committed anything: from the beginning. Should that be later by now, the client finds out.
        return {(each.topic, each.partition): max(0, each.offset) for each in found if each.error is None}

    def _on_revoke(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Still ours until we return: say how far we came. Most of them, we get back in a moment."""
        leaves = self._stopping.is_set() or not self._subscribed
        places = [(each.topic, each.partition) for each in partitions]
        with self._lock:
            saying = self._unsaid(places, 0 if leaves else self._concurrency)
            self._shelf.closed = True
        if saying:
            self._commit(saying)
        if leaves:
            self._on_lost(consumer, partitions)

    def _on_lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Others may have them already."""
        with self._lock:
            self._shelf.lose((each.topic, each.partition) for each in partitions)


def _goes_on(track: Track, start: int | None) -> bool:
    return start is not None and track.said is not None and track.said[0] == start


def _place(message: Message) -> TopicPlace:
    return message.topic() or "", message.partition() or 0
