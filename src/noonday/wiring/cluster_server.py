"""Processes of a cluster: reach the servers, work, answer, until a signal says to stop."""

import asyncio
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

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
) -> None:
    """Run handlers, with health and metrics."""
    sys.setswitchinterval(SWITCH_SEC)
    with listen(settings.host, settings.port) as listener, stop_signals() as told, handler_thread() as loop:
        opening = asyncio.create_task(WorkerNode.open(settings, handlers, concurrency, loop))
        await first_of(told, opening)
        if not opening.done():
            opening.cancel()
            await asyncio.wait({opening})
            return
        node = opening.result()
        connections = Connections.within_files(settings.limits.connections)
        await _run(
            node, create_ops_app(_Health(node), known_hosts(settings, listener)), listener, connections, told, on_ready
        )


async def _run(
    node: _Process,
    app: ASGIApp,
    listener: socket.socket,
    connections: Connections,
    told_to_stop: asyncio.Event,
    on_ready: Callable[[str], None],
) -> None:
    deadline: StopDeadline | None = None
    try:
        async with answering(app, listener, connections) as answers:
            spare_the_collector()
            on_ready(url_of(listener))
            await first_of(told_to_stop, node.failed, answers)
            deadline = stop_deadline(node.settings, SystemClock())
            end_within(stop_within_sec(node.settings))
            # Before requests under way have ended: others wait for what we own.
            await deadline.step("hand over", node.hand_over())
    finally:
        await node.stop(deadline)
    if not told_to_stop.is_set():
        raise why_failed(node.failed, answers)


def _api(node: Node, settings: Settings, listener: socket.socket) -> ASGIApp:
    now_ms = node.clock.now_ms
    return create_app(
        node.intake.desk,
        node.intake.reading,
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
