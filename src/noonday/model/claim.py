"""Claims of dispatches, and the reasons for which one must not start."""

from enum import Enum

from noonday.model.ids import ExecutionId

DispatchRef = tuple[ExecutionId, int]
"""(execution, dispatch number)."""

Revocation = tuple[ExecutionId, int, str]
"""(execution, dispatch number, reason)."""

FENCED = "FENCED"
"""The reason why a dispatch must not start that was fired before its job's fence, or before the present generation began. It may
have run already, and its definition may have changed. It returns to the timeline if it is still wanted."""


class ClaimRefused(Enum):
    """Reason why a delivered dispatch must not run."""

    ACKED = "the log has its start or end: drop it"
    CLAIMED = "another delivery of it is claimed: park it, and try again when that claim has lapsed"
