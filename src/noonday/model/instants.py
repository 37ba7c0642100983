"""Instants: milliseconds since the Unix epoch inside, datetimes at the edges, ISO 8601 in texts."""

from datetime import UTC, datetime, timedelta
from typing import overload

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@overload
def ms_of(instant: datetime) -> int: ...
@overload
def ms_of(instant: None) -> None: ...
def ms_of(instant: datetime | None) -> int | None:
    return None if instant is None else round(instant.timestamp() * 1000)


@overload
def instant_of(ms: int) -> datetime: ...
@overload
def instant_of(ms: None) -> None: ...
def instant_of(ms: int | None) -> datetime | None:
    return None if ms is None else _EPOCH + timedelta(milliseconds=ms)


def text_of(ms: int) -> str:
    """Return an instant as ISO 8601 text in UTC: 2030-01-31T09:00:00.250Z."""
    return instant_of(ms).isoformat(timespec="milliseconds").replace("+00:00", "Z")
