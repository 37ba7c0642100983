"""Extras: parts of Noonday that need more packages than the client does."""

from enum import StrEnum
from importlib.util import find_spec

from noonday.model.errors import MissingExtra


class Extra(StrEnum):
    SERVER = "server"
    """The embedded engine and the API."""
    CLUSTER = "cluster"
    """The drivers of PostgreSQL, Redis, Kafka and etcd; includes the server."""


_SERVER = (
    "aiosmtplib",
    "cryptography",
    "jsonschema_rs",
    "jwt",
    "opentelemetry",
    "prometheus_client",
    "starlette",
    "structlog",
    "uvicorn",
)
PACKAGES = {
    Extra.SERVER: _SERVER,
    Extra.CLUSTER: (*_SERVER, "asyncpg", "confluent_kafka", "hiredis", "redis"),
}
"""Packages that are imported, without those that only some platforms need."""


def is_installed(extra: Extra) -> bool:
    return all(find_spec(package) is not None for package in PACKAGES[extra])


def require(extra: Extra, name: str) -> None:
    """Raise MissingExtra unless the extra that `name` needs is installed."""
    if not is_installed(extra):
        raise MissingExtra(f"{name} needs the {extra}: pip install 'noonday[{extra}]'")
