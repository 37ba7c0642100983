"""Readiness checks of each server: one small request of its protocol, without a client library."""

import json
import socket
import ssl
import struct
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import Any

TIMEOUT_SEC = 2.0

STARTING_UP = b"57P03"  # cannot_connect_now: PostgreSQL starts up, recovers or shuts down
METADATA, FIND_COORDINATOR, SASL_HANDSHAKE, API_VERSIONS, INIT_PRODUCER_ID, SASL_AUTHENTICATE = 3, 10, 17, 18, 22, 36
OK = b"\0\0"  # Kafka's error code for success


@dataclass(frozen=True)
class Address:
    host: str
    port: int
    tls: bool = False
    user: str = ""
    password: str = ""


def postgres(address: Address) -> bool:
    """Return whether PostgreSQL replies to a start-up message with anything but "not ready yet"."""
    parameters = b"user\0" + (address.user or "postgres").encode() + b"\0database\0postgres\0\0"
    try:
        with socket.create_connection((address.host, address.port), TIMEOUT_SEC) as plain:
            plain.sendall(struct.pack("!ii", 8, 80877103))  # SSLRequest
            with _start_tls(plain, address.host) if plain.recv(1) == b"S" else plain as connection:
                connection.sendall(struct.pack("!ii", len(parameters) + 8, 196608) + parameters)
                kind, length = struct.unpack("!ci", _receive(connection, 5))
                reply = _receive(connection, length - 4)
                connection.sendall(b"X\0\0\0\4")
    except OSError:
        return False
    return bool(kind == b"R" or (kind == b"E" and STARTING_UP not in reply))


def redis(address: Address) -> bool:
    """Return whether Redis replies PONG or asks for a password. While it loads its data, it does neither."""
    try:
        with _connected(address) as connection:
            if address.password:
                connection.sendall(_redis_command("AUTH", *([address.user] if address.user else []), address.password))
                if not connection.recv(256).startswith(b"+OK"):
                    return False
            connection.sendall(_redis_command("PING"))
            return connection.recv(256).startswith((b"+PONG", b"-NOAUTH"))
    except OSError:
        return False


def etcd(address: Address) -> bool:
    """Return whether etcd reports that it is healthy: it has a leader and commits a proposal."""
    scheme = "https" if address.tls else "http"
    try:
        return bool(json.loads(fetch(f"{scheme}://{address.host}:{address.port}/health"))["health"] == "true")
    except (OSError, ValueError, KeyError):
        return False


def kafka(address: Address, brokers: int = 1) -> bool:
    """Return whether a metadata reply lists at least this many brokers."""
    try:
        with _kafka_session(address) as connection:
            reply = _kafka_call(connection, METADATA, 1, struct.pack("!i", 0))  # no topics, only brokers
            return bool(struct.unpack("!i", reply[:4])[0] >= brokers)
    except (OSError, struct.error):
        return False


def kafka_coordinates(address: Address) -> bool:
    """Return whether an idempotent producer and a consumer group find their coordinators. The request makes Kafka load them."""
    try:
        with _kafka_session(address) as connection:
            producer = _kafka_call(connection, INIT_PRODUCER_ID, 0, struct.pack("!hi", -1, 1000))
            group = _kafka_call(connection, FIND_COORDINATOR, 0, _kafka_text("noonday"))
            return producer[4:6] == OK and group[:2] == OK
    except OSError:
        return False


def kafka_greets(address: Address) -> bool:
    """Return whether Kafka replies to ApiVersions, which needs no password, without or with TLS."""
    for tls in (address.tls, not address.tls):
        try:
            with _connected(Address(address.host, address.port, tls)) as connection:
                _kafka_call(connection, API_VERSIONS, 0, b"")
        except OSError:
            continue
        return True
    return False


def fetch(url: str, body: dict[str, Any] | None = None, headers: dict[str, str] | None = None) -> bytes:
    """Send GET, or POST with JSON, and return the response body.

    The certificate is not verified, because this only checks whether our own server responds.
    """
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, headers or {})
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=_unverified_context())
    )
    with opener.open(request, timeout=TIMEOUT_SEC) as response:
        return bytes(response.read())


def _connected(address: Address) -> socket.socket:
    plain = socket.create_connection((address.host, address.port), TIMEOUT_SEC)
    if not address.tls:
        return plain
    try:
        return _start_tls(plain, address.host)
    except BaseException:
        plain.close()
        raise


def _start_tls(plain: socket.socket, host: str) -> ssl.SSLSocket:
    return _unverified_context().wrap_socket(plain, server_hostname=host)


def _unverified_context() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _redis_command(*arguments: str) -> bytes:
    parts = [b"$%d\r\n%s\r\n" % (len(each.encode()), each.encode()) for each in arguments]
    return b"*%d\r\n" % len(parts) + b"".join(parts)


def _kafka_session(address: Address) -> socket.socket:
    connection = _connected(address)
    try:
        if address.password:
            _kafka_call(connection, SASL_HANDSHAKE, 1, _kafka_text("PLAIN"))
            token = f"\0{address.user}\0{address.password}".encode()
            reply = _kafka_call(connection, SASL_AUTHENTICATE, 0, struct.pack("!i", len(token)) + token)
            if reply[:2] != OK:
                raise PermissionError("wrong password")
    except BaseException:
        connection.close()
        raise
    return connection


def _kafka_call(connection: socket.socket, api: int, version: int, body: bytes) -> bytes:
    message = struct.pack("!hhi", api, version, 1) + _kafka_text("noonday") + body
    connection.sendall(struct.pack("!i", len(message)) + message)
    (length,) = struct.unpack("!i", _receive(connection, 4))
    if not 4 <= length < 1_000_000:
        raise ConnectionError("the server is not Kafka")
    return _receive(connection, length)[4:]


def _kafka_text(text: str) -> bytes:
    return struct.pack("!h", len(text)) + text.encode()


def _receive(connection: socket.socket, count: int) -> bytes:
    received = b""
    while len(received) < count:
        chunk = connection.recv(count - len(received))
        if not chunk:
            raise ConnectionError("connection closed before the reply was complete")
        received += chunk
    return received
