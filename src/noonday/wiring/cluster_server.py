"""Processes of a cluster: reach the servers, work, answer, until a signal says to stop."""

import asyncio
import socket
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import structlog
from starlette.types import ASGIApp

from noonday.api.app import create_app, create_ops_app
from noonday.api.auth import TokenAuthenticator
from noonday.model.errors import BadSettings
from noonday.runtime.clock import SystemClock
from noonday.runtime.supervise import StopDeadline
from noonday.wiring.cluster import Node, Role, WorkerNode
from noonday.wiring.connections import Connections
from noonday.wiring.listening import (
    answering,
    end_within,
    first_of,
    handler_thread,
    listen,
    spare_the_collector,
    stop_signals,
    url_of,
)
from noonday.wiring.parts import stop_deadline, stop_within_sec
from noonday.wiring.server import SWITCH_SEC, api_limits, known_hosts, prover, why_failed
from noonday.wiring.settings import Settings
from noonday.worker.handler import Handler
from noonday.worker.parent_link import ParentLink

log = structlog.get_logger("noonday.cluster")
WORN_OUT_SEC = 1.0
"""How often a worker looks whether it needs a successor."""


class _Process(Protocol):
    @property
    def failed(self) -> "asyncio.Future[None]": ...
    @property
    def settings(self) -> Settings: ...
    def live(self) -> bool: ...
    def ready(self) -> list[str]: ...
    def metrics_text(self) -> bytes: ...
    async def hand_over(self) -> None: ...
    async def stop(self, deadline: StopDeadline | None = None) -> None: ...


async def serve_roles(settings: Settings, roles: Sequence[Role], on_ready: Callable[[str], None]) -> None:
    """Run some roles, with the API if it is among them, and health and metrics in any case."""
    if Role.API in roles and settings.auth.algorithm == "HS256" and settings.auth.secret is None:
        raise BadSettings("the API of a cluster needs auth.secret (NOONDAY_AUTH_SECRET), the same in every process")
    with listen(settings.host, settings.port) as listener, stop_signals() as told_to_stop:
        node = await Node.open(settings, roles)
        connections = Connections.within_files(settings.limits.connections)
        hosts = known_hosts(settings, listener)
        app = _api(node, settings, listener) if Role.API in roles else create_ops_app(_Health(node), hosts)
        await _run(node, app, listener, connections, told_to_stop, on_ready)


async def serve_worker(
    settings: Settings,
    handlers: Mapping[tuple[str, str], Handler],
    concurrency: Mapping[str, int],
    on_ready: Callable[[str], None],
    parent: ParentLink | None = None,
) -> None:
    """Run handlers, with health and metrics. A parent process may tell it to retire: to finish what runs, and end."""
    sys.setswitchinterval(SWITCH_SEC)
    with (
        _listen(settings, parent) as listener,
        stop_signals(has_parent=parent is not None) as told,
        handler_thread() as loop,
    ):
        opening = asyncio.create_task(WorkerNode.open(settings, handlers, concurrency, loop))
        await first_of(told, opening)
        if not opening.done():
            opening.cancel()
            await asyncio.wait({opening})
            return
        node = opening.result()
        connections = Connections.within_files(settings.limits.connections)
        app = create_ops_app(_Health(node), known_hosts(settings, listener))
        if parent is None:
            await _run(node, app, listener, connections, told, on_ready)
            return
        watching = asyncio.create_task(_ask_for_successor(node, parent))

        def ready(url: str) -> None:
            on_ready(url)
            parent.works()

        retiring = _Retiring(parent.told_to_retire, partial(node.finish, told))
        try:
            await _run(node, app, listener, connections, told, ready, retiring)
        finally:
            watching.cancel()


def _listen(settings: Settings, parent: ParentLink | None) -> socket.socket:
    """The socket of a predecessor, if there was one: the port stays the same."""
    inherited = parent.inherited() if parent is not None else None
    if inherited is not None:
        return inherited
    listener = listen(settings.host, settings.port)
    if parent is not None:
        parent.listens(listener)
    return listener


async def _ask_for_successor(node: WorkerNode, parent: ParentLink) -> None:
    while not node.worker.is_worn_out:
        await asyncio.sleep(WORN_OUT_SEC)
    log.warning("worker is worn out", why=node.worker.troubles())
    parent.ask_for_successor()


@dataclass(frozen=True)
class _Retiring:
    """How a process ends that has a successor."""

    told: asyncio.Event
    finish: Callable[[], Awaitable[None]]
    """Wait until everything that runs has ended."""


async def _run(
    node: _Process,
    app: ASGIApp,
    listener: socket.socket,
    connections: Connections,
    told_to_stop: asyncio.Event,
    on_ready: Callable[[str], None],
    retiring: "_Retiring | None" = None,
) -> None:
    deadline: StopDeadline | None = None
    told_to_retire = asyncio.ensure_future(retiring.told.wait()) if retiring else asyncio.Future()
    try:
        async with answering(app, listener, connections) as answers:
            spare_the_collector()
            on_ready(url_of(listener))
            await first_of(told_to_stop, node.failed, answers, told_to_retire)
            if not told_to_retire.done():
                deadline = _begin_to_stop(node.settings)
            # Before requests under way have ended: others wait for what we own.
            await (deadline.step("hand over", node.hand_over()) if deadline else node.hand_over())
        if retiring and deadline is None:
            await retiring.finish()
            deadline = _begin_to_stop(node.settings)
    finally:
        told_to_retire.cancel()
        await node.stop(deadline)
    if not told_to_stop.is_set() and (node.failed.done() or not (retiring and retiring.told.is_set())):
        raise why_failed(node.failed, answers)


def _begin_to_stop(settings: Settings) -> StopDeadline:
    end_within(stop_within_sec(settings))
    return stop_deadline(settings, SystemClock())


def _api(node: Node, settings: Settings, listener: socket.socket) -> ASGIApp:
    now_ms = node.clock.now_ms
    return create_app(
        node.intake.job_service,
        node.intake.queries,
        node.intake.tasks,
        node.intake.secrets,
        TokenAuthenticator(settings.auth, lambda: now_ms() / 1000),
        _Health(node),
        on_answer=node.metrics.count_answer,
        limits=api_limits(settings.sizes),
        now_ms=now_ms,
        preferences=node.intake.preferences,
        alerts=node.intake.alerts,
        hosts=known_hosts(settings, listener),
        prove=prover(settings.auth, listener),
    )


class _Health:
    def __init__(self, node: _Process) -> None:
        self._node = node

    def ready(self) -> list[str]:
        return self._node.ready()

    def live(self) -> bool:
        return self._node.live()

    def metrics(self) -> bytes:
        return self._node.metrics_text()
