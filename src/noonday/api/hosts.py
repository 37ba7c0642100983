"""Which names a browser may call this server by.

A page of another site can make its own name point to 127.0.0.1 (DNS rebinding). The browser then takes our answers for that
site's, but it sends that name as `Host`. So what needs no token is answered only under names that are known to be ours.
Requests with a token are not asked: a page has none. Health is not asked: probes call it by any address.
"""

from collections.abc import Iterable, Mapping

from starlette.types import ASGIApp, Receive, Scope, Send

from noonday.api.errors import UnknownHost, reply_of
from noonday.model.origin import host_of

GUARDED = frozenset({"/", "/docs", "/openapi.json", "/metrics"})
"""What shows something without a token."""
LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")


class KnownHosts:
    """The values of `Host` under which a server is called."""

    def __init__(self, host: str, port: int, origins: Iterable[str], *, is_loopback: bool) -> None:
        """`origins` are addresses such as `https://jobs.example.com`. Without them, only loopback has names of its own."""
        self.is_guarded = is_loopback
        own = f"[{host}]" if ":" in host else host
        names = {*LOOPBACK_NAMES, own.lower()} if is_loopback else set[str]()
        self._known = names | {f"{name}:{port}" for name in names} | {host_of(origin) for origin in origins}

    def knows(self, host: str) -> bool:
        return host.lower() in self._known


class HostCheck:
    """An ASGI application that answers 421 to what a browser asks under a name that is not ours."""

    def __init__(self, app: ASGIApp, hosts: KnownHosts) -> None:
        self._app = app
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and self._hosts.is_guarded and scope["path"] in GUARDED:
            host = _host_in(dict(scope["headers"]))
            if host is not None and not self._hosts.knows(host):
                detail = f"this server is not called {host[:100]!r}; if it should be, name its address in ui.origins"
                await reply_of(UnknownHost(detail), scope["path"]).send(send, without_body=scope["method"] == "HEAD")
                return
        await self._app(scope, receive, send)


def _host_in(headers: Mapping[bytes, bytes]) -> str | None:
    value = headers.get(b"host")
    return None if value is None else value.decode("latin-1")
