"""Which topics there are. They are made when they are first needed."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import TypeVar

from confluent_kafka import OFFSET_END, Consumer, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType  # type: ignore[attr-defined]
from confluent_kafka.cimpl import NewTopic

from noonday.drivers.kafka.names import Names
from noonday.drivers.kafka.options import KafkaOptions
from noonday.drivers.kafka.thread import pace
from noonday.model.errors import BadSettings, BusUnavailable

T = TypeVar("T")
_MINUTE_MS, _DAY_MS = 60_000, 86_400_000
_POOL_KEPT_MS = _DAY_MS
_LOG_KEPT_MS = 7 * _DAY_MS
_DEAD_LETTERS_KEPT_MS = 30 * _DAY_MS
_MOMENT_SEC = 0.02


class Topics:
    """Asks the broker, each question with a time limit. Raises BusUnavailable; BadSettings, if nothing can be asked at all."""

    def __init__(self, options: KafkaOptions, names: Names) -> None:
        self._options = options
        self._names = names
        self._within = options.answer_within_sec
        self._client: AdminClient | None = _connect(options)
        self._closed = False
        self._sure: set[str] = set()
        """Topics of which there is no reason to doubt that they are there."""
        self._partitions: dict[str, int] = {}

    def close(self) -> None:
        self._closed, self._client = True, None

    def mistrust(self) -> None:
        """The client gave no answer: the next question goes to another one.

        After a broker stood still, a client was seen to wait for its controller for ever, while a new one found it at once.
        """
        self._client = None

    @property
    def _admin(self) -> AdminClient:
        if self._closed:
            raise BusUnavailable("kafka: the bus is closed")
        if self._client is None:
            self._client = _connect(self._options)
        return self._client

    def partitions_of(self, topic: str) -> int:
        """How many it had when it was last looked at; it must have been ensured."""
        return self._partitions[topic]

    async def refuse_small_messages(self) -> None:
        """Raise BadSettings if one of our topics accepts less than our largest message. Needs no topic to be there."""
        ours = await self._our_topics()
        resources = [ConfigResource(ResourceType.TOPIC, topic) for topic in ours]
        if not resources:
            return
        asked = self._admin.describe_configs(resources, request_timeout=self._within)
        for resource, future in asked.items():
            limit = int((await self._ask(future))["max.message.bytes"].value)
            if limit < self._options.message_bytes:
                raise BadSettings(
                    f"kafka.message_bytes is {self._options.message_bytes}, but topic {resource.name} accepts at most "
                    f"{limit} bytes a message: raise max.message.bytes of the topic, or lower kafka.message_bytes"
                )

    async def ensure_pool(self, pool: str) -> None:
        await self._ensure(self._names.topics_of(pool), self._options.pool_partitions, _POOL_KEPT_MS)

    async def ensure_log(self) -> None:
        await self._ensure([self._names.log], self._options.log_partitions, _LOG_KEPT_MS)

    async def ensure_dead_letters(self) -> None:
        await self._ensure([self._names.dead_letters], 1, _DEAD_LETTERS_KEPT_MS)

    def forget(self, topics: Iterable[str]) -> None:
        """They may be gone: look again before they are used again."""
        self._sure.difference_update(topics)

    def note(self, found: Mapping[str, int]) -> None:
        """What somebody saw: partitions may be added at any time."""
        self._partitions |= {topic: count for topic, count in found.items() if topic in self._partitions}

    async def log_partitions(self) -> int:
        """As of now."""
        self.forget([self._names.log])
        await self.ensure_log()
        return self._partitions[self._names.log]

    async def log_id(self) -> str:
        """What tells the log from one of the same name that was there before."""
        await self.ensure_log()
        return await self._ask(self.find_log_id())

    def find_log_id(self) -> "Future[str]":
        """Without waiting: the answer comes from another thread."""
        answer: Future[str] = Future()
        topics = TopicCollection([self._names.log])
        asked = self._admin.describe_topics(topics, request_timeout=self._within)[self._names.log]

        def pass_on(done: "Future[object]") -> None:
            error = done.exception()
            if error is not None:
                answer.set_exception(error)
            else:
                answer.set_result(str(done.result().topic_id))  # type: ignore[attr-defined]

        asked.add_done_callback(pass_on)
        return answer

    async def recently_written(self, topic: str, since_ms: int) -> list[int]:
        """For each partition how many messages came since then."""
        partitions = range(self._partitions[topic])
        places = [TopicPartition(topic, partition, since_ms) for partition in partitions]
        ends = [TopicPartition(topic, partition, OFFSET_END) for partition in partitions]
        since, until = await self._offsets(places, ends)
        # Of a partition in which nothing came since then the first is -1.
        return [end - begin if begin >= 0 else 0 for begin, end in zip(since, until, strict=True)]

    async def offset_since(self, topic: str, partition: int, since_ms: int) -> int | None:
        """Return the offset of the first message since an instant, by the clock of its sender. None if there is none."""
        ((found,),) = await self._offsets([TopicPartition(topic, partition, since_ms)])
        return found if found >= 0 else None

    async def _offsets(self, *asked: list[TopicPartition]) -> list[list[int]]:
        """Return the offsets of the first messages at or after given instants (the `offset` of each place)."""
        with ThreadPoolExecutor(1, "noonday-kafka-topics") as thread:
            loop = asyncio.get_running_loop()
            try:
                return await loop.run_in_executor(thread, self._find_offsets, asked)
            except KafkaException as error:
                raise unavailable(error.args[0]) from error

    def _find_offsets(self, asked: Sequence[list[TopicPartition]]) -> list[list[int]]:
        consumer = Consumer(self._options.reader())
        try:
            answers = [consumer.offsets_for_times(places, timeout=self._within) for places in asked]
        finally:
            consumer.close()
        return [[place.offset for place in places] for places in answers]

    async def _ensure(self, topics: Sequence[str], partitions: int, kept_ms: int) -> None:
        missing = [topic for topic in topics if topic not in self._sure]
        if not missing:
            return
        found = await self._count_partitions(missing)
        absent = [topic for topic in missing if topic not in found]
        if absent:
            await self._create(absent, partitions, kept_ms)
            found |= await self._count_partitions_of_new(absent)
        self._partitions |= found
        self._sure |= set(found)

    async def _count_partitions_of_new(self, topics: Sequence[str]) -> dict[str, int]:
        """A topic that was made is known to the controller; the brokers hear of it a moment later."""
        deadline = pace.monotonic() + self._within
        while len(found := await self._count_partitions(topics)) < len(topics):
            if pace.monotonic() > deadline:
                raise BusUnavailable(f"kafka: {', '.join(set(topics) - set(found))} was made, and is not there yet")
            await pace.sleep(_MOMENT_SEC)
        return found

    async def _count_partitions(self, topics: Sequence[str]) -> dict[str, int]:
        found: dict[str, int] = {}
        asked = self._admin.describe_topics(TopicCollection(list(topics)), request_timeout=self._within)
        for topic, future in asked.items():
            answer = await self._ask_or_none(future, KafkaError.UNKNOWN_TOPIC_OR_PART)
            if answer is not None:
                found[topic] = len(answer.partitions)
        return found

    async def _create(self, topics: Sequence[str], partitions: int, kept_ms: int) -> None:
        copies = self._options.replication or min(3, await self._count_brokers())
        settings = {
            "retention.ms": str(kept_ms),
            # Small segments: what is past its time can only go by whole ones.
            "segment.ms": str(max(60 * _MINUTE_MS, kept_ms // 8)),
            "max.message.bytes": str(self._options.message_bytes),
        }
        new = [NewTopic(topic, partitions, copies, config=settings) for topic in topics]
        asked = self._admin.create_topics(new, operation_timeout=self._within, request_timeout=self._within)
        for future in asked.values():
            await self._ask_or_none(future, KafkaError.TOPIC_ALREADY_EXISTS)

    async def _our_topics(self) -> list[str]:
        ask = partial(self._admin.list_topics, timeout=self._within)
        with ThreadPoolExecutor(1, "noonday-kafka-topics") as thread:
            try:
                listed = await asyncio.get_running_loop().run_in_executor(thread, ask)
            except KafkaException as error:
                raise unavailable(error.args[0]) from error
        return [topic for topic in listed.topics if topic.startswith(f"{self._options.prefix}.")]

    async def _count_brokers(self) -> int:
        cluster = await self._ask(self._admin.describe_cluster(request_timeout=self._within))
        return len(cluster.nodes)

    async def _ask_or_none(self, asked: "Future[T]", unless: int) -> T | None:
        """The answer; None if the broker says `unless`."""
        try:
            return await self._ask(asked)
        except BusUnavailable as error:
            if error.context.get("kafka") == unless:
                return None
            raise

    async def _ask(self, asked: "Future[T]") -> T:
        try:
            async with asyncio.timeout(self._within + 1.0):
                return await asyncio.wrap_future(asked)
        except KafkaException as error:
            # Below zero: not the broker says so, but the client.
            if error.args[0].code() < 0:
                self.mistrust()
            raise unavailable(error.args[0]) from error
        except TimeoutError as error:
            self.mistrust()
            raise BusUnavailable(f"kafka: no answer from {self._options.servers} within {self._within:g} s") from error


def _connect(options: KafkaOptions) -> AdminClient:
    """Nobody is asked yet: what fails here can never work."""
    try:
        return AdminClient(options.client())
    except KafkaException as error:
        raise BadSettings(f"kafka: {error.args[0].str()}") from error


def unavailable(error: KafkaError) -> BusUnavailable:
    """What the client library says, in our words."""
    return BusUnavailable(f"kafka: {error.str()}", kafka=error.code())
