"""Does a server answer? One small request of each protocol, by hand: no client library is needed."""

import json
import socket
import ssl
import struct
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import Any

SOON = 2.0  # seconds that a server that is up may take to answer

NOT_YET = b"57P03"  # PostgreSQL starts up, recovers or shuts down
METADATA, FIND_COORDINATOR, SASL_HANDSHAKE, API_VERSIONS, INIT_PRODUCER_ID, SASL_AUTHENTICATE = 3, 10, 17, 18, 22, 36
OK = b"\0\0"  # Kafka's error code of none


@dataclass(frozen=True)
class Address:
    host: str
    port: int
    tls: bool = False
    user: str = ""
    password: str = ""


def postgres(at: Address) -> bool:
    """Any reply to a start-up message, except that it is not ready yet."""
    words = b"user\0" + (at.user or "postgres").encode() + b"\0database\0postgres\0\0"
    try:
        with socket.create_connection((at.host, at.port), SOON) as plain:
            plain.sendall(struct.pack("!ii", 8, 80877103))  # may we speak TLS?
            with _unchecked(plain, at.host) if plain.recv(1) == b"S" else plain as line:
                line.sendall(struct.pack("!ii", len(words) + 8, 196608) + words)
                kind, length = struct.unpack("!ci", _receive(line, 5))
                reply = _receive(line, length - 4)
                line.sendall(b"X\0\0\0\4")
    except OSError:
        return False
    return bool(kind == b"R" or (kind == b"E" and NOT_YET not in reply))


def redis(at: Address) -> bool:
    """PONG, or that a password is needed; not that the data are still being loaded."""
    try:
        with _connected(at) as line:
            if at.password:
                line.sendall(_redis_words("AUTH", *([at.user] if at.user else []), at.password))
                if not line.recv(256).startswith(b"+OK"):
                    return False
            line.sendall(_redis_words("PING"))
            return line.recv(256).startswith((b"+PONG", b"-NOAUTH"))
    except OSError:
        return False


def etcd(at: Address) -> bool:
    """Health as etcd sees it: there is a leader, and a proposal gets through."""
    scheme = "https" if at.tls else "http"
    try:
        return bool(json.loads(fetch(f"{scheme}://{at.host}:{at.port}/health"))["health"] == "true")
    except (OSError, ValueError, KeyError):
        return False


def kafka(at: Address, brokers: int = 1) -> bool:
    """A metadata reply that lists so many brokers."""
    try:
        with _kafka_session(at) as line:
            reply = _kafka_call(line, METADATA, 1, struct.pack("!i", 0))  # of no topic: just the brokers
            return bool(struct.unpack("!i", reply[:4])[0] >= brokers)
    except (OSError, struct.error):
        return False


def kafka_coordinates(at: Address) -> bool:
    """Whether an idempotent producer and a consumer group find their coordinators; asking makes Kafka load them."""
    try:
        with _kafka_session(at) as line:
            producer = _kafka_call(line, INIT_PRODUCER_ID, 0, struct.pack("!hi", -1, 1000))
            group = _kafka_call(line, FIND_COORDINATOR, 0, _kafka_text("noonday"))
            return producer[4:6] == OK and group[:2] == OK
    except OSError:
        return False


def kafka_greets(at: Address) -> bool:
    """A reply to ApiVersions, which needs no password, in plain or over TLS."""
    for tls in (at.tls, not at.tls):
        try:
            with _connected(Address(at.host, at.port, tls)) as line:
                _kafka_call(line, API_VERSIONS, 0, b"")
        except OSError:
            continue
        return True
    return False


def fetch(url: str, body: dict[str, Any] | None = None, headers: dict[str, str] | None = None) -> bytes:
    """GET, or POST of JSON. The certificate is not checked: this asks only whether our own server is there."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, headers or {})
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=_no_questions())
    )
    with opener.open(request, timeout=SOON) as response:
        return bytes(response.read())


def _connected(at: Address) -> socket.socket:
    plain = socket.create_connection((at.host, at.port), SOON)
    if not at.tls:
        return plain
    try:
        return _unchecked(plain, at.host)
    except BaseException:
        plain.close()
        raise


def _unchecked(plain: socket.socket, host: str) -> ssl.SSLSocket:
    return _no_questions().wrap_socket(plain, server_hostname=host)


def _no_questions() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _redis_words(*words: str) -> bytes:
    parts = [b"$%d\r\n%s\r\n" % (len(word.encode()), word.encode()) for word in words]
    return b"*%d\r\n" % len(parts) + b"".join(parts)


def _kafka_session(at: Address) -> socket.socket:
    line = _connected(at)
    try:
        if at.password:
            _kafka_call(line, SASL_HANDSHAKE, 1, _kafka_text("PLAIN"))
            token = f"\0{at.user}\0{at.password}".encode()
            reply = _kafka_call(line, SASL_AUTHENTICATE, 0, struct.pack("!i", len(token)) + token)
            if reply[:2] != OK:
                raise PermissionError("the password is wrong")
    except BaseException:
        line.close()
        raise
    return line


def _kafka_call(line: socket.socket, api: int, version: int, body: bytes) -> bytes:
    message = struct.pack("!hhi", api, version, 1) + _kafka_text("noonday") + body
    line.sendall(struct.pack("!i", len(message)) + message)
    (length,) = struct.unpack("!i", _receive(line, 4))
    if not 4 <= length < 1_000_000:
        raise ConnectionError("this is not Kafka")
    return _receive(line, length)[4:]


def _kafka_text(text: str) -> bytes:
    return struct.pack("!h", len(text)) + text.encode()


def _receive(line: socket.socket, count: int) -> bytes:
    received = b""
    while len(received) < count:
        piece = line.recv(count - len(received))
        if not piece:
            raise ConnectionError("closed before the whole reply")
        received += piece
    return received
