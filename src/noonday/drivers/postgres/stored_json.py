"""Decode a JSON value that a query returns."""

from typing import Any

from noonday.drivers.postgres.connection import Session
from noonday.model.stored import read_stored


async def decode(session: Session, kind: Any, query: str, *parameters: Any) -> Any:
    """Return the decoded JSON value of a query. None if the query returns no row."""
    text = await session.fetchval(query, *parameters)
    return None if text is None else read_stored(text, kind)


def can_be_stored(*texts: str | None) -> bool:
    """Return whether the texts can be in the database. PostgreSQL has no text with a NUL, and refuses it as a parameter."""
    return not any(text and "\0" in text for text in texts)
