"""The HTTP applications of a process, composed once for every mode: the API, or only health and metrics."""

import socket
from collections.abc import Callable
from typing import Protocol

from starlette.types import ASGIApp

from noonday.api.app import create_app, create_ops_app
from noonday.api.auth import TokenAuthenticator
from noonday.api.context import ApiServices
from noonday.api.hosts import KnownHosts
from noonday.api.limits import ApiLimits
from noonday.crypto.tokens import proof_of
from noonday.ports.clock import Clock
from noonday.runtime.metrics import Metrics
from noonday.wiring.intake import IntakePart
from noonday.wiring.listening import port_of
from noonday.wiring.settings import Settings
from noonday.wiring.settings.access import AuthSettings
from noonday.wiring.settings.checks import is_loopback
from noonday.worker.remote_pools import RemotePools


class ObservedProcess(Protocol):
    """A process whose health and metrics are served."""

    @property
    def metrics(self) -> Metrics: ...
    def live(self) -> bool: ...
    def ready(self) -> list[str]: ...


def api_app(
    process: ObservedProcess,
    intake: IntakePart,
    clock: Clock,
    settings: Settings,
    auth: AuthSettings,
    listener: socket.socket,
    remote: RemotePools | None,
) -> ASGIApp:
    """Return the API of a process, with its health and metrics.

    `auth` includes the secret in use. `remote`: the pools of remote workers, if the process serves them.
    """
    services = ApiServices(
        intake=intake.services,
        tasks=intake.tasks,
        secrets=intake.secrets,
        authenticator=TokenAuthenticator(auth, lambda: clock.now_ms() / 1000),
        health=_ProcessHealth(process),
        limits=ApiLimits(settings.sizes.body_bytes, settings.sizes.batch_body_bytes, settings.sizes.batch_jobs),
        now_ms=clock.now_ms,
        preferences=intake.preferences,
        alerts=intake.alerts,
        notifications=intake.notifications,
        remote=remote,
        prove=_prover(auth, listener),
        on_answer=process.metrics.count_answer,
    )
    return create_app(services, _known_hosts(settings, listener))


def ops_app(process: ObservedProcess, settings: Settings, listener: socket.socket) -> ASGIApp:
    """Return an application with health and metrics only, for a process without the API."""
    return create_ops_app(_ProcessHealth(process), _known_hosts(settings, listener))


def _known_hosts(settings: Settings, listener: socket.socket) -> KnownHosts:
    """Return the host names under which browsers may reach the server."""
    origins, port = settings.ui.known_origins, port_of(listener)
    return KnownHosts(settings.host, port, origins, is_loopback=is_loopback(settings.host))


def _prover(auth: AuthSettings, listener: socket.socket) -> Callable[[str], str | None]:
    """Return a function that answers challenges. It returns None if tokens are not signed with a shared secret."""
    secret, port = auth.secret if auth.algorithm == "HS256" else None, port_of(listener)
    return lambda nonce: None if secret is None else proof_of(secret, nonce, port)


class _ProcessHealth:
    def __init__(self, process: ObservedProcess) -> None:
        self._process = process

    def ready(self) -> list[str]:
        return self._process.ready()

    def live(self) -> bool:
        return self._process.live()

    def metrics(self) -> bytes:
        return self._process.metrics.text()
