"""Topics of an installation. They are created when they are first needed."""

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
from noonday.drivers.kafka.thread import real_clock
from noonday.model.errors import BadSettings, BusUnavailable

T = TypeVar("T")
_MINUTE_MS, _DAY_MS = 60_000, 86_400_000
_POOL_KEPT_MS = _DAY_MS
_LOG_KEPT_MS = 7 * _DAY_MS
_DEAD_LETTERS_KEPT_MS = 30 * _DAY_MS
_RETRY_SEC = 0.02


class Topics:
    """Creates and describes topics. Each request has a timeout.

    Requests raise BusUnavailable. The constructor raises BadSettings if no client can be created from the options.
    """

    def __init__(self, options: KafkaOptions, names: Names) -> None:
        self._options = options
        self._names = names
        self._timeout_sec = options.answer_within_sec
        self._client: AdminClient | None = _connect(options)
        self._closed = False
        self._existing: set[str] = set()
        """Topics that are known to exist."""
        self._partitions: dict[str, int] = {}

    def close(self) -> None:
        self._closed, self._client = True, None

    def replace_client(self) -> None:
        """Use a new client for the next request, because this one gave no answer.

        After a broker was frozen, a client was seen to wait for its controller for ever, while a new client found it at once.
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
        """Return the last known number of partitions of a topic. The topic must have been ensured."""
        return self._partitions[topic]

    async def refuse_small_messages(self) -> None:
        """Raise BadSettings if one of our topics accepts less than our largest message. Topics need not exist."""
        ours = await self._our_topics()
        resources = [ConfigResource(ResourceType.TOPIC, topic) for topic in ours]
        if not resources:
            return
        requests = self._admin.describe_configs(resources, request_timeout=self._timeout_sec)
        for resource, future in requests.items():
            limit = int((await self._answer(future))["max.message.bytes"].value)
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
        """Check these topics again before their next use: they may be gone."""
        self._existing.difference_update(topics)

    def note_partitions(self, found: Mapping[str, int]) -> None:
        """Update the numbers of partitions of known topics. Partitions may be added at any time."""
        self._partitions |= {topic: count for topic, count in found.items() if topic in self._partitions}

    async def log_partitions(self) -> int:
        """Return the present number of partitions of the log."""
        self.forget([self._names.log])
        await self.ensure_log()
        return self._partitions[self._names.log]

    async def log_id(self) -> str:
        """Return the id of the log topic. A recreated topic of the same name has another id."""
        await self.ensure_log()
        return await self._answer(self.find_log_id())

    def find_log_id(self) -> "Future[str]":
        """Request the id of the log topic without waiting. Another thread completes the future."""
        answer: Future[str] = Future()
        topics = TopicCollection([self._names.log])
        request = self._admin.describe_topics(topics, request_timeout=self._timeout_sec)[self._names.log]

        def pass_on(done: "Future[object]") -> None:
            error = done.exception()
            if error is not None:
                answer.set_exception(error)
            else:
                answer.set_result(str(done.result().topic_id))  # type: ignore[attr-defined]

        request.add_done_callback(pass_on)
        return answer

    async def count_written_since(self, topic: str, since_ms: int) -> list[int]:
        """Return for each partition how many messages it got since an instant."""
        partitions = range(self._partitions[topic])
        starts = [TopicPartition(topic, partition, since_ms) for partition in partitions]
        ends = [TopicPartition(topic, partition, OFFSET_END) for partition in partitions]
        since, until = await self._offsets(starts, ends)
        # The start of a partition that got nothing since then is -1.
        return [end - begin if begin >= 0 else 0 for begin, end in zip(since, until, strict=True)]

    async def offset_since(self, topic: str, partition: int, since_ms: int) -> int | None:
        """Return the offset of the first message since an instant, by the clock of its sender. None if there is none."""
        ((found,),) = await self._offsets([TopicPartition(topic, partition, since_ms)])
        return found if found >= 0 else None

    async def _offsets(self, *queries: list[TopicPartition]) -> list[list[int]]:
        """Return the offsets of the first messages at or after given instants (the `offset` of each partition)."""
        with ThreadPoolExecutor(1, "noonday-kafka-topics") as thread:
            loop = asyncio.get_running_loop()
            try:
                return await loop.run_in_executor(thread, self._find_offsets, queries)
            except KafkaException as error:
                raise unavailable(error.args[0]) from error

    def _find_offsets(self, queries: Sequence[list[TopicPartition]]) -> list[list[int]]:
        consumer = Consumer(self._options.reader())
        try:
            answers = [consumer.offsets_for_times(query, timeout=self._timeout_sec) for query in queries]
        finally:
            consumer.close()
        return [[partition.offset for partition in answer] for answer in answers]

    async def _ensure(self, topics: Sequence[str], partitions: int, kept_ms: int) -> None:
        unknown = [topic for topic in topics if topic not in self._existing]
        if not unknown:
            return
        found = await self._count_partitions(unknown)
        missing = [topic for topic in unknown if topic not in found]
        if missing:
            await self._create(missing, partitions, kept_ms)
            found |= await self._count_partitions_of_new(missing)
        self._partitions |= found
        self._existing |= set(found)

    async def _count_partitions_of_new(self, topics: Sequence[str]) -> dict[str, int]:
        """Wait until the brokers know new topics. The controller knows them a moment earlier."""
        deadline = real_clock.monotonic() + self._timeout_sec
        while len(found := await self._count_partitions(topics)) < len(topics):
            if real_clock.monotonic() > deadline:
                raise BusUnavailable(
                    f"kafka: {', '.join(set(topics) - set(found))} was created, but the brokers do not know it yet; retry"
                )
            await real_clock.sleep(_RETRY_SEC)
        return found

    async def _count_partitions(self, topics: Sequence[str]) -> dict[str, int]:
        found: dict[str, int] = {}
        requests = self._admin.describe_topics(TopicCollection(list(topics)), request_timeout=self._timeout_sec)
        for topic, future in requests.items():
            answer = await self._answer_or_none(future, KafkaError.UNKNOWN_TOPIC_OR_PART)
            if answer is not None:
                found[topic] = len(answer.partitions)
        return found

    async def _create(self, topics: Sequence[str], partitions: int, kept_ms: int) -> None:
        replicas = self._options.replication or min(3, await self._count_brokers())
        settings = {
            "retention.ms": str(kept_ms),
            # Small segments, because Kafka deletes expired messages by whole segments.
            "segment.ms": str(max(60 * _MINUTE_MS, kept_ms // 8)),
            "max.message.bytes": str(self._options.message_bytes),
        }
        new = [NewTopic(topic, partitions, replicas, config=settings) for topic in topics]
        requests = self._admin.create_topics(
            new, operation_timeout=self._timeout_sec, request_timeout=self._timeout_sec
        )
        for future in requests.values():
            await self._answer_or_none(future, KafkaError.TOPIC_ALREADY_EXISTS)

    async def _our_topics(self) -> list[str]:
        list_topics = partial(self._admin.list_topics, timeout=self._timeout_sec)
        with ThreadPoolExecutor(1, "noonday-kafka-topics") as thread:
            try:
                listed = await asyncio.get_running_loop().run_in_executor(thread, list_topics)
            except KafkaException as error:
                raise unavailable(error.args[0]) from error
        return [topic for topic in listed.topics if topic.startswith(f"{self._options.prefix}.")]

    async def _count_brokers(self) -> int:
        cluster = await self._answer(self._admin.describe_cluster(request_timeout=self._timeout_sec))
        return len(cluster.nodes)

    async def _answer_or_none(self, request: "Future[T]", none_code: int) -> T | None:
        """Wait for the answer to a request. Returns None if the broker answers with the error `none_code`."""
        try:
            return await self._answer(request)
        except BusUnavailable as error:
            if error.context.get("kafka") == none_code:
                return None
            raise

    async def _answer(self, request: "Future[T]") -> T:
        try:
            async with asyncio.timeout(self._timeout_sec + 1.0):
                return await asyncio.wrap_future(request)
        except KafkaException as error:
            # Codes below zero are errors of the client, not of the broker.
            if error.args[0].code() < 0:
                self.replace_client()
            raise unavailable(error.args[0]) from error
        except TimeoutError as error:
            self.replace_client()
            raise BusUnavailable(
                f"kafka: no answer from {self._options.servers} within {self._timeout_sec:g} s"
            ) from error


def _connect(options: KafkaOptions) -> AdminClient:
    """Create a client without connecting. An error here is permanent."""
    try:
        return AdminClient(options.client())
    except KafkaException as error:
        raise BadSettings(f"kafka: {error.args[0].str()}") from error


def unavailable(error: KafkaError) -> BusUnavailable:
    """Return the error of the bus for an error of the client library."""
    return BusUnavailable(f"kafka: {error.str()}", kafka=error.code())
