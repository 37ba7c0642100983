"""Headers as they may be kept and shown."""

import re
from collections.abc import Collection, Iterable
from functools import lru_cache
from typing import Any

REDACTED = "[redacted]"
_SECRET = re.compile(r"auth(?!ors?$)|cookie|token|secret|key|signature|password|credential|session", re.IGNORECASE)
"""Parts of the names of headers whose values are secrets, or may be."""
_PUBLIC = frozenset({"x-idempotency-key", "idempotency-key", "noonday-token", "www-authenticate", "proxy-authenticate"})
"""Names that look like it, and are none."""


def redacted(headers: Iterable[tuple[str, str]], also: Collection[str] = ()) -> tuple[tuple[str, str], ...]:
    """Secrets, by the names of their headers, and those that a user names besides, lose their value."""
    besides = frozenset(map(str.lower, also))
    return tuple([(name, REDACTED if is_secret(name) or name.lower() in besides else value) for name, value in headers])


@lru_cache(maxsize=1024)
def is_secret(name: str) -> bool:
    """Whether the value of a header of this name is not to be kept or shown."""
    return _SECRET.search(name) is not None and name.lower() not in _PUBLIC


def redacted_call(payload: Any) -> Any:
    """The payload of a job that calls somebody, as it may be shown. Anybody may have made it, with whatever in it."""
    headers = payload.get("headers") if isinstance(payload, dict) else None
    if not isinstance(headers, dict):
        return payload
    return {**payload, "headers": dict(redacted((str(name), value) for name, value in headers.items()))}
