"""HTTP responses."""

from collections.abc import Sequence
from dataclasses import dataclass

from starlette.types import Send

JSON = "application/json"
PROBLEM_JSON = "application/problem+json"

Header = tuple[bytes, bytes]


@dataclass(frozen=True, slots=True)
class Reply:
    body: bytes = b""
    status: int = 200
    media_type: str = JSON
    headers: Sequence[Header] = ()

    async def send(self, send: Send, *, without_body: bool = False) -> None:
        headers = [(b"content-length", b"%d" % len(self.body)), *self.headers]
        if self.body:
            headers.append((b"content-type", self.media_type.encode()))
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if without_body else self.body})
