"""Sockets, stop signals and the HTTP server that every serving process uses."""

import asyncio
import errno
import faulthandler
import gc
import os
import signal
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from noonday.model.errors import NoondayError
from noonday.wiring.connections import KEEP_ALIVE_SEC, BoundedProtocol, Connections
from noonday.wiring.engine_thread import new_event_loop
from noonday.worker.host import HandlerThread

REQUESTS_END_SEC = 5
"""Time that current requests have to end when the process is stopped, in seconds."""
BACKLOG = 2048
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class PortTaken(NoondayError):
    """The process cannot listen on the port: it is in use or not permitted."""

    code = "port-taken"


def tune_garbage_collection() -> None:
    """Make garbage collection rare. Reference counting frees the objects of a job, so collections find almost nothing."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 50)


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket. Raises PortTaken."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        reason, advice = _why_not_listening(error, host, port)
        raise PortTaken(f"{reason}: {advice}", host=host, port=port, reason=reason) from error


def _why_not_listening(error: OSError, host: str, port: int) -> tuple[str, str]:
    """Return the reason, and what to do on the command line."""
    if error.errno == errno.EADDRINUSE:
        return f"port {port} on {host} is in use by another program", f"choose another port, such as --port {port + 1}"
    if error.errno == errno.EACCES:
        return f"port {port} needs elevated privileges", "choose a port above 1023 with --port"
    return f"cannot listen on {host} port {port}: {error.strerror or error}", "check --host and --port"


def port_of(listener: socket.socket) -> int:
    return int(listener.getsockname()[1])


def url_of(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    reachable = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{reachable}]:{port}" if ":" in reachable else f"http://{reachable}:{port}"


@contextmanager
def stop_signals(*, has_parent: bool = False) -> Iterator[asyncio.Event]:
    """Return an event that the first SIGINT or SIGTERM sets. The second signal exits at once, which is safe for the store.

    With a parent process, further signals are ignored: a signal to the process group arrives once directly and once from the
    parent, and the parent decides when to kill.
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


def exit_after(seconds: float) -> None:
    """Exit this process after `seconds`, even if a library blocks the interpreter or a thread does not stop.

    Standard error then shows the traceback of each thread, and the exit code is 1.
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
    api: ASGIApp, listener: socket.socket, connections: Connections, end_waits: Callable[[], None] = lambda: None
) -> "AsyncIterator[asyncio.Task[None]]":
    """Serve requests, and yield the task that does. When the block ends, the server accepts no further requests.

    `end_waits` is called then: it ends the requests that only wait, so that the others have the time.
    """
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
        end_waits()
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
    """A uvicorn server that reports its start and does not handle signals, because the engine must be stopped too."""

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
    """Wait until the event is set or one of the futures is done."""
    arrival: asyncio.Future[Any] = asyncio.ensure_future(event.wait())
    try:
        await asyncio.wait({arrival, *others}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        arrival.cancel()
