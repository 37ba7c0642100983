"""Run one process of a cluster until SIGINT or SIGTERM: some roles, or a worker."""

import asyncio
import socket
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import structlog
from starlette.types import ASGIApp

from noonday.model.errors import BadSettings
from noonday.model.handler import Handler
from noonday.runtime.clock import SystemClock
from noonday.runtime.supervise import StopDeadline
from noonday.wiring.cluster.node import Node, Role
from noonday.wiring.cluster.worker_node import WorkerNode
from noonday.wiring.connections import Connections
from noonday.wiring.http_apps import ObservedProcess, api_app, ops_app
from noonday.wiring.listening import (
    answering,
    exit_after,
    first_of,
    handler_thread,
    listen,
    stop_signals,
    tune_garbage_collection,
    url_of,
)
from noonday.wiring.server import SWITCH_SEC, why_failed
from noonday.wiring.settings import Settings
from noonday.wiring.stopping import stop_deadline, stop_within_sec
from noonday.worker.parent_link import ParentLink

log = structlog.get_logger("noonday.cluster")
SUCCESSOR_CHECK_SEC = 1.0
"""Interval at which a worker checks whether it needs a successor, in seconds."""


class _Process(ObservedProcess, Protocol):
    @property
    def failed(self) -> "asyncio.Future[None]": ...
    @property
    def settings(self) -> Settings: ...
    async def hand_over(self, deadline: StopDeadline | None = None) -> None: ...
    async def drain(self, deadline: StopDeadline) -> None: ...
    async def stop(self, deadline: StopDeadline | None = None) -> None: ...


async def serve_roles(settings: Settings, roles: Sequence[Role], on_ready: Callable[[str], None]) -> None:
    """Run roles, and serve health and metrics. With the role `api`, serve the API too."""
    if Role.API in roles and settings.auth.algorithm == "HS256" and settings.auth.secret is None:
        raise BadSettings("the API of a cluster needs auth.secret, the same in every process: set NOONDAY_AUTH_SECRET")
    if Role.REMOTE in roles and Role.API not in roles:
        raise BadSettings("--roles: remote needs api, because remote workers use the API: start --roles api,remote")
    with listen(settings.host, settings.port) as listener, stop_signals() as stop_requested:
        node = await Node.open(settings, roles)
        connections = Connections.within_descriptor_limit(settings.limits.connections)
        if Role.API in roles:
            app = api_app(
                node,
                node.intake,
                node.clock,
                settings,
                settings.auth,
                listener,
                node.remote.pools if node.remote else None,
            )
        else:
            app = ops_app(node, settings, listener)
        end_waits = node.intake.services.execution_ends.close
        await _run(node, app, listener, connections, stop_requested, on_ready, end_waits=end_waits)


async def serve_worker(
    settings: Settings,
    handlers: Mapping[tuple[str, str], Handler],
    concurrency: Mapping[str, int],
    on_ready: Callable[[str], None],
    parent: ParentLink | None = None,
) -> None:
    """Run handlers, and serve health and metrics.

    If `parent` asks the worker to retire, the worker takes no further executions, finishes its runs and ends.
    """
    sys.setswitchinterval(SWITCH_SEC)
    with (
        _listen(settings, parent) as listener,
        stop_signals(has_parent=parent is not None) as stop_requested,
        handler_thread() as loop,
    ):
        opening = asyncio.create_task(WorkerNode.open(settings, handlers, concurrency, loop))
        await first_of(stop_requested, opening)
        if not opening.done():
            opening.cancel()
            await asyncio.wait({opening})
            return
        node = opening.result()
        connections = Connections.within_descriptor_limit(settings.limits.connections)
        app = ops_app(node, settings, listener)
        if parent is None:
            await _run(node, app, listener, connections, stop_requested, on_ready)
            return
        watching = asyncio.create_task(_ask_for_successor(node, parent))

        def ready(url: str) -> None:
            on_ready(url)
            parent.report_working()

        retirement = _Retirement(parent.retire_requested, partial(node.finish, stop_requested))
        try:
            await _run(node, app, listener, connections, stop_requested, ready, retirement)
        finally:
            watching.cancel()


def _listen(settings: Settings, parent: ParentLink | None) -> socket.socket:
    """Return the socket of the predecessor, so that the port stays the same, or a new one."""
    inherited = parent.inherited() if parent is not None else None
    if inherited is not None:
        return inherited
    listener = listen(settings.host, settings.port)
    if parent is not None:
        parent.share_listener(listener)
    return listener


async def _ask_for_successor(node: WorkerNode, parent: ParentLink) -> None:
    while not node.worker.needs_successor:
        await asyncio.sleep(SUCCESSOR_CHECK_SEC)
    log.warning("worker needs successor", reasons=node.worker.reasons_not_ready())
    parent.ask_for_successor()


@dataclass(frozen=True)
class _Retirement:
    """Retirement of a process with a successor."""

    requested: asyncio.Event
    finish: Callable[[], Awaitable[None]]
    """Waits until all runs have ended."""


async def _run(
    node: _Process,
    app: ASGIApp,
    listener: socket.socket,
    connections: Connections,
    stop_requested: asyncio.Event,
    on_ready: Callable[[str], None],
    retirement: "_Retirement | None" = None,
    end_waits: Callable[[], None] = lambda: None,
) -> None:
    deadline: StopDeadline | None = None
    retire_requested = asyncio.ensure_future(retirement.requested.wait()) if retirement else asyncio.Future()
    try:
        async with answering(app, listener, connections, end_waits) as api_task:
            tune_garbage_collection()
            on_ready(url_of(listener))
            await first_of(stop_requested, node.failed, api_task, retire_requested)
            if not retire_requested.done():
                deadline = _begin_to_stop(node.settings)
            # Hand over before current requests have ended, because other processes wait for our partitions.
            await node.hand_over(deadline)
            if deadline is not None:
                await node.drain(deadline)
        if retirement and deadline is None:
            await retirement.finish()
            deadline = _begin_to_stop(node.settings)
    finally:
        retire_requested.cancel()
        await node.stop(deadline)
    if not stop_requested.is_set() and (node.failed.done() or not (retirement and retirement.requested.is_set())):
        raise why_failed(node.failed, api_task)


def _begin_to_stop(settings: Settings) -> StopDeadline:
    exit_after(stop_within_sec(settings))
    return stop_deadline(settings, SystemClock())
