"""Topics of the shared broker that belong to one test."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

from confluent_kafka.admin import AdminClient

from noonday.drivers.kafka.options import KafkaOptions
from tests.support.servers_up import kafka_servers


@asynccontextmanager
async def options_for_a_test(**fields: Any) -> AsyncIterator[KafkaOptions]:
    """Options with a prefix of their own. Topics that begin with it are deleted afterwards."""
    options = KafkaOptions(
        **{
            "servers": fields.get("servers") or kafka_servers(),
            "prefix": f"test-{uuid4().hex[:12]}",
            "pool_partitions": 2,
            "log_partitions": 2,
            **fields,
        }
    )
    try:
        yield options
    finally:
        delete_topics(options)


def delete_topics(options: KafkaOptions) -> None:
    admin = AdminClient(options.client())
    ours = [topic for topic in admin.list_topics(timeout=10).topics if topic.startswith(f"{options.prefix}.")]
    if ours:
        for deleted in admin.delete_topics(ours).values():
            deleted.result(timeout=10)
