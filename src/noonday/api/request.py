"""An HTTP request: method, path, headers, and a body of limited size."""

from collections.abc import Mapping, Sequence
from typing import Any

from starlette.types import Receive, Scope

from noonday.api.errors import UnsupportedMediaType
from noonday.api.reply import JSON
from noonday.model.errors import MalformedBody, PayloadTooLarge


class Request:
    __slots__ = ("_receive", "headers", "method", "path", "path_values", "query")

    def __init__(self, scope: Scope, receive: Receive) -> None:
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.path_values: Mapping[str, Any] = scope["path_params"]
        self.query: bytes = scope["query_string"]
        self.headers: Mapping[bytes, bytes] = dict(scope["headers"])
        self._receive = receive

    def header(self, name: bytes) -> str | None:
        value = self.headers.get(name)
        return None if value is None else value.decode("latin-1").strip(" \t")

    async def json_body(self, limit: int, accepted: Sequence[str] = (JSON,), *, is_optional: bool = False) -> bytes:
        """Return the body, which has one of the `accepted` media types. An empty body that is optional may have any.

        Raises UnsupportedMediaType, MalformedBody, and PayloadTooLarge as soon as the size is known.
        """
        if not is_optional:
            self._require_media_type(accepted)
        self._require_size_within(limit)
        chunks, size, more = list[bytes](), 0, True
        while more:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise MalformedBody("the connection closed before the whole body arrived")
            chunks.append(message.get("body", b""))
            size += len(chunks[-1])
            _require_within(size, limit)
            more = message.get("more_body", False)
        if is_optional and size:
            self._require_media_type(accepted)
        return b"".join(chunks)

    async def wait_until_gone(self) -> None:
        """Wait until the client has closed the connection. The body must have been read."""
        while (await self._receive())["type"] != "http.disconnect":
            pass

    def _require_media_type(self, accepted: Sequence[str]) -> None:
        declared = self.headers.get(b"content-type")
        if declared is None or declared == b"application/json":
            return
        sent = declared.decode("latin-1")
        if sent.partition(";")[0].strip().lower() not in accepted:
            raise UnsupportedMediaType(f"Content-Type is {sent}; send {' or '.join(accepted)}", contentType=sent)

    def _require_size_within(self, limit: int) -> None:
        declared = self.headers.get(b"content-length", b"")
        if declared.isdigit():
            _require_within(int(declared[:18]), limit)


def _require_within(size: int, limit: int) -> None:
    if size > limit:
        raise PayloadTooLarge(
            f"the body exceeds {limit} bytes; store large data elsewhere and pass a reference in the payload",
            limitBytes=limit,
        )
