"""Ends of pauses: when a paused job is resumed without a request.

The end is part of the row of the job. A resumer finds it when it has come, and resumes the job as of that instant, however late
that is: what is due since then is late, not paused. A user who resumes the job, halts it or pauses it again before then takes
the end back or replaces it, because both change the same locked row.
"""

import msgspec

from noonday.intake.change_times import effective_ms
from noonday.model.audit import AuditEntry
from noonday.model.change import Change
from noonday.model.errors import Conflict
from noonday.model.job import Job, text_of


def with_end_of_pause(job: Job, until_ms: int | None, now_ms: int, audit: AuditEntry) -> Change:
    """Give a paused job another end of its pause. None: a user resumes it. Raises Conflict if it was halted."""
    if job.paused_until_ms == until_ms:
        return Change()
    if job.halted is not None and until_ms is not None:
        raise Conflict(
            f"job {job.id} is PAUSED because {job.halted}: it is not resumed at {text_of(until_ms)} by itself; "
            f"POST /v1/jobs/{job.id}/resume resumes it"
        )
    job = msgspec.structs.replace(job, paused_until_ms=until_ms, updated_ms=effective_ms(job, now_ms))
    return Change(job=job, audit=audit)
