"""Times of changes: when a change of a job takes effect, and whether it still can."""

from noonday.model.errors import Conflict, InvalidInput
from noonday.model.job import YEAR_SEC, Job, JobState, text_of

SAME_MOMENT_MS = 1_000
"""Clock step, backwards, below which an edit still takes effect after the previous one."""
LONGEST_AHEAD_MS = 10 * YEAR_SEC * 1000
"""How far ahead the end of a pause and the new time of an occurrence may lie."""


def effective_ms(job: Job, now_ms: int) -> int:
    """Return when an edit takes effect: after the previous one, because two edits in one millisecond would both decide it.

    A clock that was set back by `SAME_MOMENT_MS` or more is trusted.
    """
    return job.updated_ms + 1 if 0 <= job.updated_ms - now_ms < SAME_MOMENT_MS else now_ms


def refuse_if_cancelled(job: Job) -> None:
    """Raise Conflict if a job was cancelled."""
    if job.state is JobState.CANCELLED:
        raise Conflict("the job was cancelled and cannot be changed: create a new one", state="CANCELLED")


def require_ahead(at_ms: int, pointer: str, now_ms: int) -> None:
    """Raise InvalidInput for an instant that is not in the future, or too far ahead."""
    if now_ms < at_ms <= now_ms + LONGEST_AHEAD_MS:
        return
    is_past = at_ms <= now_ms
    detail = "must be in the future" if is_past else "must be at most 10 years ahead"
    raise InvalidInput.of(pointer, f"{detail}; the server's time is {text_of(now_ms)}", text_of(at_ms))
