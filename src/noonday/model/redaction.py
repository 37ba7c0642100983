"""Redaction of secret headers before they are stored or shown."""

import re
from collections.abc import Collection, Iterable
from functools import lru_cache
from typing import Any

REDACTED = "[redacted]"
_SECRET = re.compile(r"auth(?!ors?$)|cookie|token|secret|key|signature|password|credential|session", re.IGNORECASE)
"""Parts of header names whose values are secrets, or may be."""
_PUBLIC = frozenset({"x-idempotency-key", "idempotency-key", "noonday-token", "www-authenticate", "proxy-authenticate"})
"""Names that match `_SECRET` although their values are not secret."""


def redacted(headers: Iterable[tuple[str, str]], also: Collection[str] = ()) -> tuple[tuple[str, str], ...]:
    """Return headers with the values of secret ones replaced. `also` has further names to redact."""
    named = frozenset(map(str.lower, also))
    return tuple([(name, REDACTED if is_secret(name) or name.lower() in named else value) for name, value in headers])


@lru_cache(maxsize=1024)
def is_secret(name: str) -> bool:
    """Return whether a header of this name has a secret value, by its name."""
    return _SECRET.search(name) is not None and name.lower() not in _PUBLIC


def redacted_call(payload: Any) -> Any:
    """Return the payload of a webhook job with its secret headers redacted. The payload may have any shape."""
    headers = payload.get("headers") if isinstance(payload, dict) else None
    if not isinstance(headers, dict):
        return payload
    return {**payload, "headers": dict(redacted((str(name), value) for name, value in headers.items()))}
