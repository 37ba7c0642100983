"""The addresses of the real servers. A test that needs a missing server fails, and names the command that starts it."""

import os
import socket
from functools import cache
from urllib.parse import urlsplit

import pytest

ANSWERS_WITHIN_SEC = 2.0


def postgres_url() -> str:
    url = os.environ.get("NOONDAY_POSTGRES_URL", "postgresql://postgres@127.0.0.1:25432/noonday")
    _must_answer("PostgreSQL", "NOONDAY_POSTGRES_URL", _place(url, 5432))
    return url


def redis_url() -> str:
    url = os.environ.get("NOONDAY_REDIS_URL", "redis://127.0.0.1:26379/0")
    _must_answer("Redis", "NOONDAY_REDIS_URL", _place(url, 6379))
    return url


def etcd_urls() -> list[str]:
    urls = os.environ.get("NOONDAY_ETCD_URLS", "http://127.0.0.1:22379").split(",")
    _must_answer("etcd", "NOONDAY_ETCD_URLS", *(_place(url, 2379) for url in urls))
    return urls


def kafka_servers() -> str:
    """`host:port,host:port`."""
    servers = os.environ.get("NOONDAY_KAFKA_SERVERS", "127.0.0.1:29092")
    _must_answer("Kafka", "NOONDAY_KAFKA_SERVERS", *(_place(f"//{server}", 9092) for server in servers.split(",")))
    return servers


def _place(url: str, usual_port: int) -> tuple[str, int]:
    parts = urlsplit(url)
    return parts.hostname or "127.0.0.1", parts.port or usual_port


def _must_answer(server: str, variable: str, *places: tuple[str, int]) -> None:
    """Check that one of several addresses answers."""
    complaints = [complaint for place in places if (complaint := _complaint(place))]
    if len(complaints) == len(places):
        pytest.fail(
            f"{server} does not answer: {'; '.join(complaints)}. Start it with `scripts/servers start`, or name a server that "
            f"runs in {variable}.",
            pytrace=False,
        )


def _complaint(place: tuple[str, int]) -> str | None:
    try:
        _reach(place)
    except OSError as error:
        return f"{place[0]}:{place[1]}: {error}"
    return None


@cache
def _reach(place: tuple[str, int]) -> None:
    """Check an address once: after its first answer it is not checked again."""
    socket.create_connection(place, ANSWERS_WITHIN_SEC).close()
