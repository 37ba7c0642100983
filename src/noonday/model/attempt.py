"""Records and log lines of attempts that handlers keep."""

import msgspec

from noonday.model.execution import Outcome


class AttemptRecord(msgspec.Struct, frozen=True):
    """The details of one attempt that were kept, such as the request and response of a webhook call."""

    dispatch: int
    attempt: int
    outcome: Outcome
    started_ms: int
    ended_ms: int
    details: bytes
    """The details, as ciphertext."""


class AttemptLogs(msgspec.Struct, frozen=True):
    """The last log lines of one attempt."""

    dispatch: int
    attempt: int
    outcome: int
    started_ms: int
    ended_ms: int
    logs: bytes
    """The lines, as ciphertext."""
