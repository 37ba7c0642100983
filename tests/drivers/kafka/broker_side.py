"""The state of the broker, and writes of a client that is not part of the cluster."""

import time
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from confluent_kafka import OFFSET_END, Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from noonday.drivers.kafka.names import Names
from noonday.drivers.kafka.offsets import PartitionKey
from noonday.drivers.kafka.options import KafkaOptions

WITHIN_SEC = 60.0


@lru_cache(maxsize=1)
def admin(options: KafkaOptions) -> AdminClient:
    """Return an admin client. It must live at least until it has answered."""
    return AdminClient(options.client())


def ask(futures: dict[Any, Any]) -> dict[Any, Any]:
    return {key: future.result(timeout=WITHIN_SEC) for key, future in futures.items()}


def ends(options: KafkaOptions, *topics: str) -> dict[PartitionKey, int]:
    """The end offset of each partition of some topics."""
    with Consumer(options.reader()) as consumer:
        found = consumer.list_topics(timeout=WITHIN_SEC).topics
        asked = [TopicPartition(topic, each, OFFSET_END) for topic in topics for each in found[topic].partitions]
        answers = _led(lambda: consumer.offsets_for_times(asked, timeout=WITHIN_SEC))
    return {(each.topic, each.partition): each.offset for each in answers}


def _led(ask: Callable[[], list[TopicPartition]]) -> list[TopicPartition]:
    """Wait for a leader: a new partition may not have one everywhere yet."""
    until = time.monotonic() + WITHIN_SEC
    while True:
        try:
            return ask()
        except KafkaException as error:
            if error.args[0].code() != KafkaError.NOT_LEADER_FOR_PARTITION or time.monotonic() > until:
                raise
            time.sleep(0.05)


def committed(options: KafkaOptions, pool: str) -> dict[PartitionKey, int]:
    """The committed offsets of the partitions that have one."""
    names = Names(options.prefix)
    with Consumer(options.member(names.group_of(pool))) as consumer:
        found = consumer.list_topics(timeout=WITHIN_SEC).topics
        asked = [TopicPartition(topic, each) for topic in names.topics_of(pool) for each in found[topic].partitions]
        answers = consumer.committed(asked, timeout=WITHIN_SEC)
    return {(each.topic, each.partition): each.offset for each in answers if each.offset >= 0}


def messages(options: KafkaOptions, *topics: str) -> list[Message]:
    """All messages of some topics, by partition and offset."""
    here = ends(options, *topics)
    found: list[Message] = []
    with Consumer(options.reader() | {"auto.offset.reset": "earliest"}) as consumer:
        consumer.assign([TopicPartition(*place, 0) for place in here])
        while len(found) < sum(here.values()):
            message = consumer.poll(WITHIN_SEC)
            assert message is not None
            assert message.error() is None
            found.append(message)
    return sorted(found, key=lambda each: (each.topic(), each.partition(), each.offset()))


def write(options: KafkaOptions, topic: str, value: bytes, partition: int = 0, headers: Any = None) -> None:
    """Write as a client that has the permission, and none of our keys."""
    producer = Producer(options.client())
    producer.produce(topic, value, partition=partition, headers=headers)
    assert producer.flush(WITHIN_SEC) == 0
