"""Moves: occurrences of a schedule that a person has moved to another time."""

import msgspec

from noonday.model.instants import text_of

MOST_MOVES = 100
"""Maximum number of moves that a job has at a time."""


class Move(msgspec.Struct, frozen=True):
    """An occurrence that fires at another time than its own, and who decided so."""

    origin_ms: int
    """The time that the schedule has. The move ends if an edited schedule does not have it."""
    nominal_ms: int
    """The time at which the occurrence does not fire: its own, or the time that it was moved to before."""
    to_ms: int
    by: str
    at_ms: int
    """Time of the request."""
    reason: str | None = None

    @property
    def text(self) -> str:
        """The reason of the decision, for people."""
        return f"moved to {text_of(self.to_ms)} by {self.by}{self._because}"

    @property
    def text_at_new_time(self) -> str:
        """The reason why the job has an occurrence at the new time, for people."""
        return f"moved from {text_of(self.nominal_ms)} by {self.by}{self._because}"

    @property
    def _because(self) -> str:
        return f": {self.reason}" if self.reason else ""
