"""Conversion of instants: ISO 8601 with an offset on the wire, milliseconds inside."""

from datetime import UTC, datetime

from noonday.model.errors import InvalidInput
from noonday.model.job import text_of

DAY_MS = 86_400_000
EARLIEST = datetime(1971, 1, 1, tzinfo=UTC)
LATEST = datetime(9000, 1, 1, tzinfo=UTC)


def bounded_ms(instant: datetime, pointer: str) -> int:
    """Return the instant in milliseconds. Raises InvalidInput outside the years 1971 to 9000."""
    if not EARLIEST <= instant <= LATEST:
        raise InvalidInput.of(pointer, "must be between the years 1971 and 9000", instant.isoformat())
    return round(instant.timestamp() * 1000)


def require_order(from_ms: int, to_ms: int) -> None:
    if to_ms < from_ms:
        raise InvalidInput.of("/to", f"must not be before from ({text_of(from_ms)})", text_of(to_ms))
