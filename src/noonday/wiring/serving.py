"""The API of an embedded engine: its socket, its tokens, and its part in an application that serves it itself."""

import asyncio
import socket
from contextlib import AsyncExitStack
from pathlib import Path
from secrets import token_urlsafe

import msgspec
import structlog
from starlette.types import ASGIApp

from noonday.crypto.tokens import SECRET_BYTES, load_or_create_secret, secret_file
from noonday.drivers.memory.leases import LocalLeases
from noonday.drivers.sqlite.connection import MEMORY
from noonday.model.errors import InvalidInput
from noonday.model.ids import InstanceId
from noonday.runtime.clock import SystemClock
from noonday.wiring.connections import Connections
from noonday.wiring.embedded import Embedded
from noonday.wiring.http_apps import api_app
from noonday.wiring.listening import PortTaken, answering, listen, url_of
from noonday.wiring.settings import Settings
from noonday.wiring.settings.access import AuthSettings

log = structlog.get_logger("noonday.application")


class ServedApi:
    """The API that an application serves beside its own work, on the event loop of its engine."""

    def __init__(self, url: str, task: "asyncio.Task[None]", stack: AsyncExitStack) -> None:
        self.url = url
        self._task = task
        self._stack = stack

    @classmethod
    async def open(cls, embedded: Embedded, settings: Settings, listener: socket.socket) -> "ServedApi":
        """Serve on the listener, which `close` closes. Call this on the engine's loop."""
        api = embedded_api(embedded, settings, auth_in_use(settings), listener)
        connections = Connections.within_descriptor_limit(settings.limits.connections)
        async with AsyncExitStack() as stack:
            stack.callback(listener.close)
            end_waits = embedded.engine.intake.services.execution_ends.close
            task = await stack.enter_async_context(answering(api, listener, connections, end_waits))
            served = cls(url_of(listener), task, stack.pop_all())
        log.info("serving the API", url=served.url)
        return served

    async def close(self) -> None:
        """Accept no further requests, and wait until the current ones have ended."""
        await self._stack.aclose()

    def problems(self) -> list[str]:
        """Return the reason why the API does not answer; an empty list if it does."""
        if not self._task.done():
            return []
        error = None if self._task.cancelled() else self._task.exception()
        return ["the API has stopped" + (f": {error!r}" if error else "")]


def embedded_api(embedded: Embedded, settings: Settings, auth: AuthSettings, listener: socket.socket) -> ASGIApp:
    """Return the API of an engine. `auth` includes the secret in use."""
    engine = embedded.engine
    return api_app(engine, engine.intake, engine.drivers.clock, settings, auth, listener, engine.remote.pools)


def auth_in_use(settings: Settings) -> AuthSettings:
    """Return the token settings. If no secret is configured, they contain the secret stored next to the data file."""
    auth = settings.auth
    if auth.algorithm != "HS256" or auth.secret is not None:
        return auth
    if settings.data == MEMORY:
        return msgspec.structs.replace(auth, secret=token_urlsafe(SECRET_BYTES))
    return msgspec.structs.replace(auth, secret=load_or_create_secret(secret_file(settings.data)))


async def listen_for(settings: Settings) -> socket.socket:
    """Return the socket of the API. Raises PortTaken, and AlreadyRunning if another process has the file as well."""
    try:
        return listen(settings.host, settings.port)
    except PortTaken:
        # A second process on the same file finds the port taken too. The taken file is the more helpful error.
        await _refuse_second_process(settings)
        raise


async def listen_at(serve: str, settings: Settings) -> socket.socket:
    """As `listen_for`, with errors in the words of an application."""
    try:
        return await listen_for(settings)
    except PortTaken as taken:
        raise PortTaken(
            f"cannot serve the API at {serve}: {taken.context['reason']}. Choose another address, or port 0 for a free port: "
            f'serve="{serve.rpartition(":")[0]}:0"',
            host=settings.host,
            port=settings.port,
        ) from taken


def address_of(serve: str) -> dict[str, str | int]:
    """Return the settings `host` and `port` of an address such as `127.0.0.1:8080`. Raises InvalidInput."""
    host, colon, port = serve.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not (colon and host and port.isascii() and port.isdigit() and int(port) <= 65_535):
        detail = (
            f"serve is {serve!r}: expected an address and a port, such as 127.0.0.1:8080 (port 0 selects a free port)"
        )
        raise InvalidInput.of("/serve", detail, serve)
    return {"host": host, "port": int(port)}


async def _refuse_second_process(settings: Settings) -> None:
    if lock := _find_lock(settings):
        leases = LocalLeases(lock, SystemClock())
        await leases.join(InstanceId(""), 1.0)
        await leases.leave()


def _find_lock(settings: Settings) -> Path | None:
    lock = Path(f"{settings.data}.lock")
    return lock if settings.data != MEMORY and lock.exists() else None
