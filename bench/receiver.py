"""EndpointKey webhooks call, in a process of its own: as cheap as a receiver can be, it notes who called and when."""

import asyncio
import subprocess
import sys
import time
import urllib.request
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast

import msgspec

from bench import ROOT, BenchFailed
from bench.notes import Seen
from noonday.wiring.engine_thread import new_event_loop

HOST = "127.0.0.1"
NOTES = "/notes"
ANSWERS_WITHIN_SEC = 60
_ID = b"webhook-id:"
_LENGTH = b"content-length:"
_END = b"\r\n\r\n"
_YES = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"


@contextmanager
def receiving(after_sec: float) -> Iterator[str]:
    """Somebody who answers each call after so long. Yields the URL to call."""
    with subprocess.Popen(
        [sys.executable, "-m", "bench.receiver", str(after_sec)],
        stdout=subprocess.PIPE,
        cwd=ROOT,
        start_new_session=True,
    ) as process:
        assert process.stdout
        try:
            port = process.stdout.readline().strip()
            if not port:
                raise BenchFailed("the webhook receiver did not start: see above")
            yield f"http://{HOST}:{port.decode()}/"
        finally:
            process.kill()


def notes_of(url: str) -> Seen:
    """The requests that the receiver has seen."""
    with urllib.request.urlopen(url.rstrip("/") + NOTES, timeout=ANSWERS_WITHIN_SEC) as answer:
        return msgspec.msgpack.decode(answer.read(), type=Seen)


class Receiver:
    """What all connections together have seen."""

    def __init__(self, after_sec: float) -> None:
        self._after_sec = after_sec
        self._loop = asyncio.get_running_loop()
        self._executions: list[str] = []
        self._at_ns = array("q")
        self._open = 0
        self._at_once = 0

    def called(self, execution: str, transport: asyncio.Transport) -> None:
        self._at_ns.append(time.time_ns())
        self._executions.append(execution)
        if not self._after_sec:
            transport.write(_YES)
            return
        self._open += 1
        self._at_once = max(self._at_once, self._open)
        self._loop.call_later(self._after_sec, self._answer, transport)

    def _answer(self, transport: asyncio.Transport) -> None:
        self._open -= 1
        transport.write(_YES)

    def notes(self) -> bytes:
        return msgspec.msgpack.encode(Seen(self._executions, list(self._at_ns), self._at_once))


class _Connection(asyncio.Protocol):
    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self._unread = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._unread += data
        while (end := self._unread.find(_END)) >= 0:
            head = self._unread[:end].lower()
            whole = end + len(_END) + int(_value(head, _LENGTH) or 0)
            if len(self._unread) < whole:
                return
            self._unread = self._unread[whole:]
            self._take(head)

    def _take(self, head: bytes) -> None:
        execution = _value(head, _ID)
        if execution is not None:
            self._receiver.called(execution.decode(), self._transport)
        else:
            notes = self._receiver.notes()
            self._transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(notes) + notes)


def _value(head: bytes, name: bytes) -> bytes | None:
    _, found, rest = head.partition(name)
    return rest.partition(b"\r\n")[0].strip() if found else None


async def _serve(after_sec: float) -> None:
    receiver = Receiver(after_sec)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: _Connection(receiver), HOST, 0, backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(_serve(float(sys.argv[1])))
