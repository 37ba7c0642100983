"""A process of its own: the embedded engine, its handlers and the REST API, until a signal says to stop."""

import asyncio
import errno
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from secrets import token_urlsafe
from typing import Any

import msgspec
import structlog
import uvicorn
from starlette.types import ASGIApp

from noonday.api.app import create_app
from noonday.api.auth import SECRET_BYTES, TokenAuthenticator, load_or_create_secret
from noonday.api.limits import ApiLimits
from noonday.drivers.memory.leases import LocalLeases
from noonday.drivers.sqlite.connection import MEMORY
from noonday.model.errors import NoondayError
from noonday.model.ids import InstanceId
from noonday.sdk.demo import demo
from noonday.sdk.registry import Registry
from noonday.wiring.application import EngineLoop, Noonday, Running, declare, new_event_loop
from noonday.wiring.embedded import Embedded
from noonday.wiring.engine import Engine
from noonday.wiring.settings import AuthSettings, LimitSettings, Settings
from noonday.worker.host import HandlerThread

log = structlog.get_logger("noonday.server")

SWITCH_SEC = 0.0005
REQUESTS_END_SEC = 5
"""How long requests under way may take to end once the process is told to stop."""
KEEP_ALIVE_SEC = 75
"""Longer than clients keep an idle connection: it is they who let go then, and none writes into a closed one."""
BACKLOG = 2048
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class PortTaken(NoondayError):
    """Nothing can listen there: somebody else does, or it is not allowed."""

    code = "port-taken"


class EngineFailed(NoondayError):
    """A loop of the engine ended by itself. What was acknowledged is in the store."""

    code = "engine-failed"


@dataclass(frozen=True)
class Serving:
    """What is served, and where."""

    url: str
    data: str
    auth: AuthSettings
    """With the secret in use, if tokens are signed with one."""


async def serve(
    settings: Settings,
    app: Registry | None,
    *,
    on_ready: Callable[[Serving], None],
    on_stopping: Callable[[], None] = lambda: None,
) -> None:
    """Run the engine with the handlers of `app` and of the demo, and the API, until SIGINT or SIGTERM.

    Then no more requests are taken, and running handlers may finish for `worker.drain_sec`; a second signal ends the
    process at once. `on_ready` is called when all of it works, `on_stopping` when it is told to stop.
    Only for the main thread of a process that does nothing else. Raises AlreadyRunning, StoreUnavailable, BadSettings,
    PortTaken; and EngineFailed if it stopped without being told to.
    """
    # The store's writer thread must not wait 5 ms for the interpreter each time it comes back from the disk.
    sys.setswitchinterval(SWITCH_SEC)
    registry = with_demo(app)
    with await _listen(settings) as listener, _stop_signals() as told_to_stop, _handler_thread() as handlers:
        async with _running(settings, registry, handlers) as embedded:
            if isinstance(app, Noonday):
                app.engine = Running(embedded, EngineLoop(asyncio.get_running_loop()))
            auth = auth_in_use(settings)
            async with _answering(_api(embedded.engine, settings, auth), listener) as answering:
                on_ready(Serving(_url_of(listener), settings.data, auth))
                await _first_of(told_to_stop, embedded.engine.failed, answering)
                if told_to_stop.is_set():
                    on_stopping()
        if not told_to_stop.is_set():
            raise _why_failed(embedded.engine, answering)


def with_demo(app: Registry | None) -> Registry:
    """The handlers and jobs of an application, and the demo. Raises Conflict if they clash."""
    both = Registry()
    both.include(demo)
    if app is not None:
        both.include(app)
    return both


def auth_in_use(settings: Settings) -> AuthSettings:
    """The rules for tokens, with a secret kept beside the data if none is configured."""
    auth = settings.auth
    if auth.algorithm != "HS256" or auth.secret is not None:
        return auth
    if settings.data == MEMORY:
        return msgspec.structs.replace(auth, secret=token_urlsafe(SECRET_BYTES))
    return msgspec.structs.replace(auth, secret=load_or_create_secret(secret_file(settings)))


def secret_file(settings: Settings) -> Path:
    return Path(f"{settings.data}.secret")


async def _listen(settings: Settings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        return socket.create_server((settings.host, settings.port), family=family, backlog=BACKLOG)
    except OSError as error:
        # Whoever starts a second process by mistake has taken both port and file: the file is the better reason.
        await _refuse_second_process(settings)
        raise PortTaken(_why_not_listening(error, settings), host=settings.host, port=settings.port) from error


async def _refuse_second_process(settings: Settings) -> None:
    if lock := _find_lock(settings):
        leases = LocalLeases(lock)
        await leases.join(InstanceId(""), 1.0)
        await leases.leave()


def _find_lock(settings: Settings) -> Path | None:
    lock = Path(f"{settings.data}.lock")
    return lock if settings.data != MEMORY and lock.exists() else None


def _why_not_listening(error: OSError, settings: Settings) -> str:
    host, port = settings.host, settings.port
    if error.errno == errno.EADDRINUSE:
        return f"port {port} on {host} is in use by another program: choose another, such as --port {port + 1}"
    if error.errno == errno.EACCES:
        return f"port {port} is reserved for the system: choose one above 1023 with --port"
    return f"cannot listen on {host} port {port}: {error.strerror or error}; check --host and --port"


def _url_of(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    reachable = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{reachable}]:{port}" if ":" in reachable else f"http://{reachable}:{port}"


@contextmanager
def _stop_signals() -> Iterator[asyncio.Event]:
    """An event that the first signal sets. The second one ends the process: the store is safe at any moment."""
    loop, stop = asyncio.get_running_loop(), asyncio.Event()

    def on_signal(number: int) -> None:
        if stop.is_set():
            os._exit(128 + number)
        stop.set()

    for number in _SIGNALS:
        loop.add_signal_handler(number, on_signal, number)
    try:
        yield stop
    finally:
        for number in _SIGNALS:
            loop.remove_signal_handler(number)


@contextmanager
def _handler_thread() -> Iterator[asyncio.AbstractEventLoop]:
    thread = HandlerThread(new_event_loop, "noonday-handlers")
    try:
        yield thread.loop
    finally:
        thread.close()


@asynccontextmanager
async def _running(
    settings: Settings, registry: Registry, handlers: asyncio.AbstractEventLoop
) -> AsyncIterator[Embedded]:
    embedded = await Embedded.open(settings, registry.handlers, handlers_loop=handlers)
    try:
        await declare(embedded, registry.declared)
        yield embedded
    finally:
        await _close(embedded)


async def _close(embedded: Embedded) -> None:
    if not embedded.engine.failed.done():
        await embedded.close()
        return
    worker = embedded.engine.settings.worker
    try:
        # What has failed may not come to its end; nothing is lost by leaving it there.
        async with asyncio.timeout(worker.drain_sec + worker.cancel_grace_sec + REQUESTS_END_SEC):
            await embedded.close()
    except Exception as error:
        if error is not embedded.engine.failed.exception():
            log.exception("the engine did not stop in order")


def _api(engine: Engine, settings: Settings, auth: AuthSettings) -> ASGIApp:
    now_ms = engine.drivers.clock.now_ms
    return create_app(
        engine.desk,
        engine.reading,
        TokenAuthenticator(auth, lambda: now_ms() / 1000),
        _Health(engine),
        limits=_limits(settings.limits),
        now_ms=now_ms,
    )


def _limits(limits: LimitSettings) -> ApiLimits:
    usual = ApiLimits()
    # A payload of the allowed size may come escaped (\\u00e9), and has a job around it.
    body_bytes = max(usual.body_bytes, 4 * limits.payload_bytes)
    return ApiLimits(body_bytes, max(usual.batch_bytes, body_bytes), limits.batch_jobs)


class _Health:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def ready(self) -> list[str]:
        return self._engine.ready()

    def live(self) -> bool:
        return not self._engine.failed.done()

    def metrics(self) -> bytes:
        return self._engine.metrics.text()


@asynccontextmanager
async def _answering(api: ASGIApp, listener: socket.socket) -> "AsyncIterator[asyncio.Task[None]]":
    """The task that answers requests; it takes no more of them when the block ends."""
    server = _Server(_config(api))
    task = asyncio.create_task(server.serve([listener]), name="api")
    try:
        await _first_of(server.accepting, task)
        if task.done():
            await task
        yield task
    finally:
        server.should_exit = True
        await asyncio.wait({task})


def _config(api: ASGIApp) -> uvicorn.Config:
    return uvicorn.Config(
        api,
        http="auto",
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


async def _first_of(event: asyncio.Event, *others: "asyncio.Future[None]") -> None:
    arrival: asyncio.Future[Any] = asyncio.ensure_future(event.wait())
    try:
        await asyncio.wait({arrival, *others}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        arrival.cancel()


def _why_failed(engine: Engine, answering: "asyncio.Task[None]") -> EngineFailed:
    failed = engine.failed.exception() if engine.failed.done() else answering.exception()
    if isinstance(failed, NoondayError):
        return EngineFailed(f"the engine stopped: {failed.detail}")
    # Not one of ours, so a mistake of ours: whoever mends it needs to see where it was made.
    log.error("the engine stopped", exc_info=failed)
    return EngineFailed(f"the engine stopped: {failed!r}")
