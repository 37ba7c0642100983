"""Host header check: protects public paths against DNS rebinding.

A web page can make its own host name resolve to 127.0.0.1. The browser then treats this server's responses as that site's,
but sends that name as `Host`. So paths that need no token respond only to known host names. Paths that need a token are not
checked, because the page has no token. Health paths are not checked, because probes use any address.
"""

from collections.abc import Iterable, Mapping

from starlette.types import ASGIApp, Receive, Scope, Send

from noonday.api.errors import UnknownHost, reply_of
from noonday.model.origin import host_of

CHECKED_PATHS = frozenset({"/", "/docs", "/openapi.json", "/metrics"})
"""Paths that disclose information without a token."""
LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")


class KnownHosts:
    """Values of `Host` that the server accepts."""

    def __init__(self, host: str, port: int, origins: Iterable[str], *, is_loopback: bool) -> None:
        """`origins` are URLs such as `https://jobs.example.com`. Loopback names are known if `is_loopback`."""
        self.is_checked = is_loopback
        own = f"[{host}]" if ":" in host else host
        names = {*LOOPBACK_NAMES, own.lower()} if is_loopback else set[str]()
        self._known = names | {f"{name}:{port}" for name in names} | {host_of(origin) for origin in origins}

    def accepts(self, host: str) -> bool:
        return host.lower() in self._known


class HostCheck:
    """ASGI middleware that returns 421 for a checked path under an unknown host name."""

    def __init__(self, app: ASGIApp, hosts: KnownHosts) -> None:
        self._app = app
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and self._hosts.is_checked and scope["path"] in CHECKED_PATHS:
            host = _host_in(dict(scope["headers"]))
            if host is not None and not self._hosts.accepts(host):
                detail = f"unknown host name {host[:100]!r}; to allow it, add its URL to ui.origins"
                await reply_of(UnknownHost(detail), scope["path"]).send(send, without_body=scope["method"] == "HEAD")
                return
        await self._app(scope, receive, send)


def _host_in(headers: Mapping[bytes, bytes]) -> str | None:
    value = headers.get(b"host")
    return None if value is None else value.decode("latin-1")
