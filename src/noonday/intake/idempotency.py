"""Idempotency keys: the first response to a request is stored, and repeated for the same key."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from noonday.model.errors import NoondayError


@dataclass(frozen=True, slots=True)
class Idempotency:
    """An Idempotency-Key, the fingerprint of its request, and the encoding of its response."""

    key: str
    fingerprint: str
    """Hash of the whole request. The same key with another fingerprint is refused."""
    status_of: Callable[[Any], int]
    encode: Callable[[Any], bytes]

    def storing(self, view: Callable[[Any], Any]) -> "Idempotency":
        """Return the key so that the view of a result, not the result itself, is stored as the response."""
        return replace(self, encode=lambda result: self.encode(view(result)))


class AlreadyAnswered(NoondayError):
    """Raised when the key has a stored response. Carries that response; nothing was done this time."""

    code = "answered-before"

    def __init__(self, status: int, body: bytes) -> None:
        super().__init__("this Idempotency-Key has a stored response", status=status)
        self.status = status
        self.body = body
