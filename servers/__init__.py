"""Installs and runs the real servers of this project, and breaks them for tests. Needs only Python's standard library.

`scripts/servers` is the command. Tests start their own servers with `Postgres`, `Redis`, `Etcd` and `Kafka`.
"""

from servers.certificates import Authority, Certificate
from servers.errors import CannotInstall, ServerFailed, WrongUse
from servers.etcd import Etcd
from servers.kafka import Kafka
from servers.ports import free_port, free_ports, is_free
from servers.postgres import Postgres
from servers.process import Command, Daemon, eventually
from servers.project import urls
from servers.redis import Redis
from servers.server import Server
from servers.versions import at_least, pins

__all__ = [
    "Authority",
    "CannotInstall",
    "Certificate",
    "Command",
    "Daemon",
    "Etcd",
    "Kafka",
    "Postgres",
    "Redis",
    "Server",
    "ServerFailed",
    "WrongUse",
    "at_least",
    "eventually",
    "free_port",
    "free_ports",
    "is_free",
    "pins",
    "urls",
]
