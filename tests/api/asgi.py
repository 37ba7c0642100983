"""Requests to an ASGI application without a server."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
from starlette.types import ASGIApp, Message


@dataclass(frozen=True)
class Response:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.body)

    @property
    def code(self) -> str:
        """The last part of a problem's type."""
        assert self.headers["content-type"] == "application/problem+json"
        return str(self.json["type"]).rpartition("/")[2]

    @property
    def flaw(self) -> dict[str, Any]:
        """The only flaw."""
        (flaw,) = self.json["errors"]
        return dict(flaw)


@dataclass
class Client:
    """Calls the application; a body that is not bytes is sent as JSON."""

    app: ASGIApp
    headers: dict[str, str] = field(default_factory=dict)

    async def call(self, method: str, url: str, body: Any = None, **headers: str) -> Response:
        path, _, query = url.partition("?")
        content = body if isinstance(body, bytes) else b"" if body is None else msgspec.json.encode(body)
        sent = self.headers | {name.replace("_", "-"): value for name, value in headers.items()}
        if body is not None:
            sent = {"content-type": "application/json"} | sent
        return await self._exchange(method, path, query.encode(), sent, content)

    async def get(self, url: str, **headers: str) -> Response:
        return await self.call("GET", url, **headers)

    async def post(self, url: str, body: Any = None, **headers: str) -> Response:
        return await self.call("POST", url, body, **headers)

    async def put(self, url: str, body: Any = None, **headers: str) -> Response:
        return await self.call("PUT", url, body, **headers)

    async def _exchange(
        self, method: str, path: str, query: bytes, headers: dict[str, str], content: bytes
    ) -> Response:
        scope = {
            "type": "http",
            "method": method,
            "path": path,
            "root_path": "",
            "query_string": query,
            "headers": [(name.lower().encode(), value.encode("latin-1")) for name, value in headers.items()],
        }
        # In pieces, as a server may deliver the body.
        pieces = [content[at : at + 60_000] for at in range(0, len(content), 60_000)] or [b""]
        waiting: list[Message] = [{"type": "http.request", "body": piece, "more_body": True} for piece in pieces]
        waiting[-1]["more_body"] = False
        sent: list[Message] = []

        async def receive() -> Message:
            return waiting.pop(0) if waiting else {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            sent.append(message)

        await self.app(scope, receive, send)
        start, *bodies = sent
        received = {name.decode(): value.decode() for name, value in start["headers"]}
        return Response(start["status"], received, b"".join(part["body"] for part in bodies))
