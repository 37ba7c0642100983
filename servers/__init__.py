"""The real servers of this project: installed, started, and broken on purpose. Needs nothing but Python's own library.

`scripts/servers` is the command; tests take `Postgres`, `Redis`, `Etcd` and `Kafka` to start their own.
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
