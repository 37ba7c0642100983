"""Headers that a user may set on a call."""

import re
from collections.abc import Mapping

from noonday.model.errors import Flaw, pointer_to

POINTER = "/payload/headers"
MAX_HEADERS = 64
MAX_BYTES = 16_384
SHOWN = 200
"""Characters of a refused header name that an error message repeats."""

_CONNECTION = {
    "host",
    "content-length",
    "connection",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "expect",
}
_PROXIES = {"via", "forwarded", "x-real-ip"}
_SET_BY_NOONDAY = {"x-idempotency-key", "traceparent", "tracestate"}
_REFUSED_PREFIXES = {
    "proxy-": "belongs to proxies",
    "x-forwarded-": "belongs to proxies",
    "webhook-": "is set by Noonday on every call",
    "noonday-": "is set by Noonday on every call",
}

_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,200}")
_VALUE = re.compile(r"[\t\x20-\x7e]*")


def flaws_of(headers: Mapping[str, str]) -> list[Flaw]:
    """Return the flaws of a user's headers. A flaw never contains a header's value, which may be a secret."""
    if len(headers) > MAX_HEADERS:
        return [Flaw(POINTER, f"must have at most {MAX_HEADERS} headers", len(headers))]
    flaws = [
        Flaw(POINTER + pointer_to(name[:SHOWN]), f"{name[:SHOWN]!r} {detail}")
        for name, value in headers.items()
        if (detail := _flaw_of(name, value)) is not None
    ]
    size = sum(len(name) + len(value) for name, value in headers.items())
    if size > MAX_BYTES:
        flaws.append(Flaw(POINTER, f"must have at most {MAX_BYTES} characters in all headers", size))
    return flaws


def _flaw_of(name: str, value: str) -> str | None:
    if not _NAME.fullmatch(name):
        return "is not a valid header name"
    if (reason := _reserved(name.lower())) is not None:
        return f"cannot be set: it {reason}"
    if not _VALUE.fullmatch(value):
        return "has a value that is not printable ASCII"
    return None


def _reserved(name: str) -> str | None:
    if name in _CONNECTION:
        return "belongs to the connection"
    if name in _PROXIES:
        return "belongs to proxies"
    if name in _SET_BY_NOONDAY:
        return "is set by Noonday on every call"
    return next((reason for prefix, reason in _REFUSED_PREFIXES.items() if name.startswith(prefix)), None)
