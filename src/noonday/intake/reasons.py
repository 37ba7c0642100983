"""Reasons that people give for what they decide about an occurrence."""

from noonday.model.errors import Flaw, InvalidInput
from noonday.model.skip import LONGEST_REASON


def flaw_of_reason(reason: str | None) -> Flaw | None:
    """Return why a reason is refused, or None."""
    if reason is None or (len(reason) <= LONGEST_REASON and "\0" not in reason):
        return None
    detail = f"must have at most {LONGEST_REASON} characters, without NUL"
    return Flaw("/reason", detail, reason[:LONGEST_REASON])


def require_reason(reason: str | None) -> None:
    """Raise InvalidInput if a reason is too long or cannot be stored."""
    if flaw := flaw_of_reason(reason):
        raise InvalidInput(flaw.detail, [flaw])
