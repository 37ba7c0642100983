"""Checks of `noonday doctor` for Kafka."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from concurrent.futures import Future
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType  # type: ignore[attr-defined]
from confluent_kafka.cimpl import NewTopic

from noonday.cli.instants import length
from noonday.cli.server.checks import CheckContext, Finding, Level
from noonday.drivers.kafka.names import Names
from noonday.drivers.kafka.options import KafkaOptions
from noonday.model.errors import BusUnavailable
from noonday.wiring.cluster.servers import kafka_options

SHORT_SEC = 86_400
TOO_SHORT_SEC = 3_600


async def check_kafka(context: CheckContext) -> AsyncIterator[Finding]:
    kafka = _Kafka(kafka_options(context.settings))
    try:
        brokers = await kafka.count_brokers()
        yield Finding(
            Level.OK, "kafka", f"{brokers} {'broker' if brokers == 1 else 'brokers'} at {kafka.options.servers}"
        )
        topics = await kafka.replicas_by_topic()
        yield await _log_topic(kafka, topics, brokers)
        yield _replication(topics, brokers)
        if kafka.names.log in topics:
            for finding in _log_settings(await kafka.settings_of(kafka.names.log), topics[kafka.names.log], kafka):
                yield finding
    except BusUnavailable as error:
        detail = kafka.last_error() or error.detail
        yield Finding(Level.FAIL, "kafka", detail, _fix_for(detail))


class _Kafka:
    """Admin client of Kafka that collects the errors of its connection."""

    def __init__(self, options: KafkaOptions) -> None:
        self.options = options
        self.names = Names(options.prefix)
        self._timeout_sec = options.answer_within_sec
        self._errors: list[KafkaError] = []
        self._admin = AdminClient(options.client() | {"error_cb": self._errors.append})

    async def count_brokers(self) -> int:
        return len((await self._answer(self._admin.describe_cluster(request_timeout=self._timeout_sec))).nodes)

    async def replicas_by_topic(self) -> dict[str, int]:
        """Return the smallest number of replicas of a partition, for each of our topics."""
        try:
            listed = await asyncio.to_thread(self._admin.list_topics, timeout=self._timeout_sec)
        except KafkaException as error:
            raise BusUnavailable(f"kafka: {error.args[0].str()}") from error
        ours = {name: topic for name, topic in listed.topics.items() if name.startswith(f"{self.options.prefix}.")}
        return {name: min(len(part.replicas) for part in topic.partitions.values()) for name, topic in ours.items()}

    async def check_create(self, topic: str, partitions: int, replicas: int) -> None:
        """Check that the topic can be created, without creating it. Raises BusUnavailable with the broker's reason."""
        new = NewTopic(topic, partitions, replicas)
        requests = self._admin.create_topics([new], validate_only=True, request_timeout=self._timeout_sec)
        await self._answer(requests[topic])

    async def settings_of(self, topic: str) -> dict[str, str]:
        requests = self._admin.describe_configs(
            [ConfigResource(ResourceType.TOPIC, topic)], request_timeout=self._timeout_sec
        )
        (request,) = requests.values()
        return {name: entry.value for name, entry in (await self._answer(request)).items()}

    def last_error(self) -> str | None:
        """Return the last error that the client reported, or None. It explains why a request timed out."""
        self._admin.poll(0)
        errors = [error.str() for error in self._errors if error.code() != KafkaError._ALL_BROKERS_DOWN]
        return "kafka: " + errors[-1].partition(" (after")[0] if errors else None

    async def _answer(self, request: "Future[Any]") -> Any:
        try:
            async with asyncio.timeout(self._timeout_sec + 1.0):
                return await asyncio.wrap_future(request)
        except KafkaException as error:
            raise BusUnavailable(f"kafka: {error.args[0].str()}", kafka=error.args[0].code()) from error
        except TimeoutError as error:
            raise BusUnavailable(f"kafka: no answer within {self._timeout_sec:g} s") from error


def _fix_for(detail: str) -> str:
    low = detail.lower()
    if "ssl handshake" in low or "certificate" in low or "security.protocol" in low:
        return "set kafka.tls if the brokers use TLS, and kafka.ca_file to the CA that signed their certificates"
    if "sasl" in low or "authentication" in low:
        return "check kafka.user, kafka.password and kafka.mechanism (NOONDAY_KAFKA_USER, ...)"
    if "authorization" in low:
        return "grant the user Describe on the cluster, and All on topics and groups that begin with cluster.name"
    return "start Kafka, or correct kafka.servers (NOONDAY_KAFKA_SERVERS); brokers must advertise a reachable name"


async def _log_topic(kafka: _Kafka, topics: Mapping[str, int], brokers: int) -> Finding:
    log, options = kafka.names.log, kafka.options
    if log in topics:
        return Finding(Level.OK, "topics", f"{log} and {len(topics) - 1} more")
    replicas = options.replication or min(3, brokers)
    try:
        await kafka.check_create(log, options.log_partitions, replicas)
    except BusUnavailable as error:
        fix = (
            f"grant the user Create on topics that begin with {options.prefix}., lower kafka.replication if there are too few "
            f"brokers, or create it: kafka-topics.sh --create --topic {log} --partitions {options.log_partitions}"
        )
        return Finding(Level.FAIL, "topics", f"{log} does not exist, and cannot be created: {error.detail}", fix)
    return Finding(Level.OK, "topics", f"{log} does not exist yet, and can be created")


def _replication(topics: Mapping[str, int], brokers: int) -> Finding:
    if brokers == 1:
        detail = "one broker: if its disk is lost, acknowledged messages are lost; while it is down, nothing starts"
        return Finding(Level.WARN, "copies", detail, "run three brokers, on three machines")
    single = sorted(name for name, replicas in topics.items() if replicas < 2)
    if single:
        detail = f"{', '.join(single[:3])}{' ...' if len(single) > 3 else ''}: only one replica, which is lost with its broker"
        return Finding(Level.WARN, "copies", detail, "add replicas with kafka-reassign-partitions.sh")
    return Finding(
        Level.OK, "copies", f"{min(topics.values(), default=min(3, brokers))} or more replicas of each topic"
    )


def _log_settings(settings: Mapping[str, str], replicas: int, kafka: _Kafka) -> Iterator[Finding]:
    log = kafka.names.log
    yield _retention(log, settings)
    largest = int(settings["max.message.bytes"])
    needed = kafka.options.message_bytes
    if largest < needed:
        fix = _alter(log, f"max.message.bytes={needed}")
        yield Finding(
            Level.FAIL, "messages", f"{log} accepts messages of at most {largest} bytes; {needed} are needed", fix
        )
    else:
        yield Finding(Level.OK, "messages", f"{log} accepts messages of {largest} bytes")
    min_in_sync = int(settings["min.insync.replicas"])
    if replicas >= 3 and min_in_sync < 2:
        detail = f"{log} is acknowledged when one broker has it: if that broker loses its disk, reports are lost"
        yield Finding(Level.WARN, "in step", detail, _alter(log, "min.insync.replicas=2"))
    elif replicas > 1 and min_in_sync >= replicas:
        detail = f"{log} needs all of its {replicas} replicas in sync: writes stop when one broker is down"
        yield Finding(Level.WARN, "in step", detail, _alter(log, f"min.insync.replicas={replicas - 1}"))


def _retention(log: str, settings: Mapping[str, str]) -> Finding:
    if settings["cleanup.policy"] != "delete":
        detail = f"cleanup.policy of {log} is {settings['cleanup.policy']}: reports of one worker replace each other"
        return Finding(Level.FAIL, "retention", detail, _alter(log, "cleanup.policy=delete"))
    kept_sec = int(settings["retention.ms"]) / 1000
    if kept_sec < 0:
        return Finding(Level.OK, "retention", f"{log} is kept for ever: monitor the disk")
    level = Level.FAIL if kept_sec < TOO_SHORT_SEC else Level.WARN if kept_sec < SHORT_SEC else Level.OK
    detail = f"{log} is kept for {length(kept_sec)}"
    if level is Level.OK:
        return Finding(level, "retention", detail)
    detail += ": while PostgreSQL is down, reports wait there, and those that are deleted before it is back are lost"
    return Finding(level, "retention", detail, _alter(log, "retention.ms=604800000"))


def _alter(topic: str, setting: str) -> str:
    return f"kafka-configs.sh --alter --entity-type topics --entity-name {topic} --add-config {setting}"
