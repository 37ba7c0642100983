"""Headers as they may be kept and shown."""

from collections.abc import Collection, Iterable
from typing import Any

REDACTED = "[redacted]"
_SECRET = frozenset({"authorization", "cookie", "set-cookie", "x-api-key", "proxy-authorization"})


def redacted(headers: Iterable[tuple[str, str]], also: Collection[str] = ()) -> tuple[tuple[str, str], ...]:
    """Secrets, and those that a user names besides, lose their value."""
    secret = _SECRET.union(map(str.lower, also)) if also else _SECRET
    return tuple([(name, REDACTED if name.lower() in secret else value) for name, value in headers])


def redacted_call(payload: Any) -> Any:
    """The payload of a job that calls somebody, as it may be shown. Anybody may have made it, with whatever in it."""
    headers = payload.get("headers") if isinstance(payload, dict) else None
    if not isinstance(headers, dict):
        return payload
    return {**payload, "headers": dict(redacted((str(name), value) for name, value in headers.items()))}
