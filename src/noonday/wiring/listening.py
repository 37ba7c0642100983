"""What every process that serves has: a socket, signals that stop it, and somebody who answers requests."""

import asyncio
import errno
import faulthandler
import gc
import os
import signal
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from noonday.model.errors import NoondayError
from noonday.wiring.application import new_event_loop
from noonday.wiring.connections import KEEP_ALIVE_SEC, BoundedProtocol, Connections
from noonday.worker.host import HandlerThread

REQUESTS_END_SEC = 5
"""How long requests under way may take to end once the process is told to stop."""
BACKLOG = 2048
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class PortTaken(NoondayError):
    """Nothing can listen there: somebody else does, or it is not allowed."""

    code = "port-taken"


def spare_the_collector() -> None:
    """What is made for a job ends by reference counting: looking at everything else again and again is in vain."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 50)


def listen(host: str, port: int) -> socket.socket:
    """Raises PortTaken."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        raise PortTaken(_why_not_listening(error, host, port), host=host, port=port) from error


def _why_not_listening(error: OSError, host: str, port: int) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"port {port} on {host} is in use by another program: choose another, such as --port {port + 1}"
    if error.errno == errno.EACCES:
        return f"port {port} is reserved for the system: choose one above 1023 with --port"
    return f"cannot listen on {host} port {port}: {error.strerror or error}; check --host and --port"


def port_of(listener: socket.socket) -> int:
    return int(listener.getsockname()[1])


def url_of(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    reachable = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{reachable}]:{port}" if ":" in reachable else f"http://{reachable}:{port}"


@contextmanager
def stop_signals(*, has_parent: bool = False) -> Iterator[asyncio.Event]:
    """An event that the first signal sets. The second one ends the process: the store is safe at any moment.

    With a parent, that one decides when it is enough: a signal to all processes comes once directly and once from it.
    """
    loop, stop = asyncio.get_running_loop(), asyncio.Event()

    def on_signal(number: int) -> None:
        if stop.is_set() and not has_parent:
            os._exit(128 + number)
        stop.set()

    for number in _SIGNALS:
        loop.add_signal_handler(number, on_signal, number)
    try:
        yield stop
    finally:
        for number in _SIGNALS:
            loop.remove_signal_handler(number)


def end_within(seconds: float) -> None:
    """End this process after so long, whatever holds it: a library that keeps the interpreter, a thread that nobody can stop.

    Standard error then shows where each thread was, and the exit code is 1.
    """
    faulthandler.dump_traceback_later(seconds, exit=True)


@contextmanager
def handler_thread() -> Iterator[asyncio.AbstractEventLoop]:
    thread = HandlerThread(new_event_loop, "noonday-handlers")
    try:
        yield thread.loop
    finally:
        thread.close()


@asynccontextmanager
async def answering(
    api: ASGIApp, listener: socket.socket, connections: Connections
) -> "AsyncIterator[asyncio.Task[None]]":
    """The task that answers requests; it takes no more of them when the block ends."""
    server = _Server(_config(api, connections))
    task = asyncio.create_task(server.serve([listener]), name="api")
    sweeping = asyncio.create_task(connections.sweep(), name="connections")
    try:
        await first_of(server.accepting, task)
        if task.done():
            await task
        yield task
    finally:
        sweeping.cancel()
        server.should_exit = True
        await asyncio.wait({task, sweeping})


def _config(api: ASGIApp, connections: Connections) -> uvicorn.Config:
    return uvicorn.Config(
        api,
        http=partial(BoundedProtocol, connections),  # type: ignore[arg-type]
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=KEEP_ALIVE_SEC,
        timeout_graceful_shutdown=REQUESTS_END_SEC,
    )


class _Server(uvicorn.Server):
    """Says when it has begun, and leaves signals alone: the engine has to be stopped as well."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.accepting = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.accepting.set()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def first_of(event: asyncio.Event, *others: "asyncio.Future[Any]") -> None:
    arrival: asyncio.Future[Any] = asyncio.ensure_future(event.wait())
    try:
        await asyncio.wait({arrival, *others}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        arrival.cancel()
