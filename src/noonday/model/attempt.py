"""Records of attempts that handlers keep."""

from collections.abc import Sequence

import msgspec

from noonday.model.execution import Outcome
from noonday.model.ids import ExecutionId
from noonday.model.message import Report


class AttemptRecord(msgspec.Struct, frozen=True):
    """The details of one attempt that were kept, such as the request and response of a webhook call."""

    dispatch: int
    attempt: int
    outcome: Outcome
    started_ms: int
    ended_ms: int
    account: bytes
    """The details, as ciphertext."""


def attempt_rows(reports: Sequence[Report]) -> list[tuple[ExecutionId, int, int, int, int, int, bytes]]:
    """Return (execution, dispatch, started, ended, attempt, outcome, record) of each report that has an attempt record."""
    return [
        (r.execution_id, r.dispatch, r.started_ms, r.ended_ms, r.attempt, r.outcome, r.account)
        for r in reports
        if r.account is not None
    ]
