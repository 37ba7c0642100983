"""Run the embedded engine with handlers and the REST API until SIGINT or SIGTERM (`noonday up`)."""

import asyncio
import sys
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from noonday.model.errors import NoondayError
from noonday.runtime.clock import SystemClock
from noonday.runtime.supervise import StopDeadline
from noonday.sdk.registry import Registry
from noonday.wiring.application import Noonday
from noonday.wiring.connections import Connections
from noonday.wiring.demo import demo
from noonday.wiring.embedded import Embedded
from noonday.wiring.engine_thread import EngineLoop
from noonday.wiring.listening import (
    answering,
    exit_after,
    first_of,
    handler_thread,
    stop_signals,
    tune_garbage_collection,
    url_of,
)
from noonday.wiring.running import Running, declare
from noonday.wiring.serving import auth_in_use, embedded_api, listen_for
from noonday.wiring.settings import Settings
from noonday.wiring.settings.access import AuthSettings
from noonday.wiring.stopping import stop_deadline, stop_within_sec

log = structlog.get_logger("noonday.server")

SWITCH_SEC = 0.0005
"""Thread switch interval of the interpreter, in seconds."""


class EngineFailed(NoondayError):
    """A loop of the engine failed. Everything that was acknowledged is in the store."""

    code = "engine-failed"


@dataclass(frozen=True)
class ServerInfo:
    """URL, data file and token settings of a running server."""

    url: str
    data: str
    auth: AuthSettings
    """Includes the secret in use, if a secret signs the tokens."""
    outbox: str | None
    """URL of the outbox of the provider doubles, if notifications go to them."""


async def serve(
    settings: Settings,
    app: Registry | None,
    *,
    on_ready: Callable[[ServerInfo], None],
    on_stopping: Callable[[], None] = lambda: None,
) -> None:
    """Run the engine with the handlers of `app` and of the demo, and the API, until SIGINT or SIGTERM.

    After the signal, the server accepts no further requests, and running handlers have `worker.drain_sec` to finish. A second
    signal exits at once. `on_ready` is called when everything runs, `on_stopping` when a signal arrives. Call it only in the
    main thread of a process that does nothing else. Raises AlreadyRunning, StoreUnavailable, BadSettings or PortTaken, and
    EngineFailed if the engine stopped without a signal.
    """
    # With the default interval, the store's writer thread would wait 5 ms for the interpreter after each disk write.
    sys.setswitchinterval(SWITCH_SEC)
    registry = with_demo(app)
    with await listen_for(settings) as listener, stop_signals() as stop_requested, handler_thread() as handlers:
        embedded = await Embedded.open(settings, registry.handlers, handlers_loop=handlers, offers_doubles=True)
        deadline: StopDeadline | None = None
        try:
            await declare(embedded, registry.declared)
            if isinstance(app, Noonday):
                app.engine = Running(embedded, EngineLoop(asyncio.get_running_loop()), embedded.engine)
            engine, auth = embedded.engine, auth_in_use(settings)
            api = embedded_api(embedded, settings, auth, listener)
            connections = Connections.within_descriptor_limit(settings.limits.connections)
            end_waits = engine.intake.services.execution_ends.close
            async with answering(api, listener, connections, end_waits) as api_task:
                tune_garbage_collection()
                doubles = embedded.sending.doubles
                on_ready(ServerInfo(url_of(listener), settings.data, auth, doubles.url if doubles else None))
                await first_of(stop_requested, embedded.engine.failed, api_task)
                deadline = stop_deadline(settings, SystemClock())
                exit_after(stop_within_sec(settings))
                if stop_requested.is_set():
                    on_stopping()
                    await engine.remote.drain(deadline)
        finally:
            await _close(embedded, deadline)
        if not stop_requested.is_set():
            raise why_failed(embedded.engine.failed, api_task)


def with_demo(app: Registry | None) -> Registry:
    """Return a registry with the handlers and jobs of `app` and of the demo. Raises Conflict if they clash."""
    registry = Registry()
    registry.include(demo)
    if app is not None:
        registry.include(app)
    return registry


async def _close(embedded: Embedded, deadline: StopDeadline | None) -> None:
    try:
        await embedded.close(deadline)
    except Exception as error:
        if not embedded.engine.failed.done():
            raise
        # A failed engine may not stop cleanly. Nothing is lost, because the next start recovers it.
        if error is not embedded.engine.failed.exception():
            log.exception("engine did not stop cleanly")


def why_failed(failed: "asyncio.Future[None]", api_task: "asyncio.Task[None]") -> EngineFailed:
    """Return the error of a process that stopped without a signal."""
    error = failed.exception() if failed.done() else api_task.exception()
    if isinstance(error, NoondayError):
        return EngineFailed(f"the engine stopped: {error.detail}")
    # An unexpected exception is a bug, so its traceback is needed.
    log.error("engine stopped", exc_info=error)
    return EngineFailed(f"the engine stopped: {error!r}")
