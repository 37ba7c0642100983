"""Skips: occurrences of a schedule that a person does not want to run."""

import msgspec

MOST_SKIPS = 100
"""Maximum number of occurrences of a job that are skipped in advance."""
LONGEST_REASON = 500
"""Maximum number of characters of the reason of a skip or a move."""


class Skip(msgspec.Struct, frozen=True):
    """An occurrence that will not fire, and who decided so."""

    nominal_ms: int
    by: str
    at_ms: int
    """Time of the request."""
    reason: str | None = None

    @property
    def text(self) -> str:
        """The reason of the decision, for people."""
        return f"skipped by {self.by}" + (f": {self.reason}" if self.reason else "")
