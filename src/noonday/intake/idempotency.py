"""One answer per Idempotency-Key, however often the request comes."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from noonday.model.errors import NoondayError


@dataclass(frozen=True, slots=True)
class Idempotency:
    """A key, what it was sent with, and how the first answer is kept for those who send it again."""

    key: str
    fingerprint: str
    """A hash of the whole request: the same key with another one is refused."""
    status_of: Callable[[Any], int]
    encode: Callable[[Any], bytes]


class Answered(NoondayError):
    """This very request was answered before. Carries that answer; nothing was done this time."""

    code = "answered-before"

    def __init__(self, status: int, body: bytes) -> None:
        super().__init__("the request was answered before", status=status)
        self.status = status
        self.body = body
