"""Conversion of instants: ISO 8601 with an offset on the wire, milliseconds inside."""

from datetime import UTC, datetime

from noonday.model.errors import InvalidInput
from noonday.model.job import text_of

DAY_MS = 86_400_000
EARLIEST = datetime(1971, 1, 1, tzinfo=UTC)
LATEST = datetime(9000, 1, 1, tzinfo=UTC)


def bounded_ms(instant: datetime, pointer: str) -> int:
    """Return the instant in milliseconds. Raises InvalidInput outside the years 1971 to 9000, and without a time zone."""
    if instant.tzinfo is None:
        raise InvalidInput.of(
            pointer, f"{pointer[1:]} needs a time zone, such as datetime(2030, 1, 31, tzinfo=UTC)", instant.isoformat()
        )
    if not EARLIEST <= instant <= LATEST:
        raise InvalidInput.of(pointer, "must be between the years 1971 and 9000", instant.isoformat())
    return round(instant.timestamp() * 1000)


def span_ms(from_: datetime | None, to: datetime | None, now_ms: int) -> tuple[int, int]:
    """Return a range in milliseconds. Without bounds, it is from one day before to one day after now. Raises InvalidInput."""
    from_ms = bounded_ms(from_, "/from") if from_ else None
    to_ms = bounded_ms(to, "/to") if to else max(now_ms, from_ms or 0) + DAY_MS
    if from_ms is None:
        return min(now_ms, to_ms) - DAY_MS, to_ms
    require_order(from_ms, to_ms)
    return from_ms, to_ms


def require_order(from_ms: int, to_ms: int) -> None:
    if to_ms < from_ms:
        raise InvalidInput.of("/to", f"must not be before from ({text_of(from_ms)})", text_of(to_ms))
