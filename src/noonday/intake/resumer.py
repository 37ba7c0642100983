"""Resumer: resumes jobs whose pause has an end, when it has come.

Each resume is one edit of one locked job, and happens only while the job is paused until that very instant. So several processes
may try it, and a process that dies leaves the rest to any other. The job is resumed as of the instant, not as of the round: a
process that comes an hour late finds occurrences that are late, not paused.
"""

from functools import partial

import msgspec
import structlog

from noonday.intake.audit import SYSTEM_SUBJECT, audit_entry
from noonday.intake.edits import resumed_at
from noonday.intake.job_editor import JobEditor
from noonday.intake.job_service import JobService
from noonday.model.audit import AuditEntry
from noonday.model.caller import Caller
from noonday.model.change import Change
from noonday.model.errors import InvalidInput, NotFound
from noonday.model.job import JobState, text_of
from noonday.model.pause import DueResume
from noonday.model.snapshot import Snapshot
from noonday.ports.clock import Clock
from noonday.ports.jobs import Jobs

log = structlog.get_logger("noonday.pauses")
PER_TENANT = 20
"""Maximum number of jobs of one tenant that one round resumes."""
PER_ROUND = 500
"""Maximum number of jobs that one round resumes."""
LONGEST_WAIT_SEC = 1.0
"""Time after which a round looks for ends of pauses that another process has stored."""


class Resumer:
    """Resumes paused jobs at the ends of their pauses. Several processes may run it."""

    def __init__(self, jobs: Jobs, editor: JobEditor, job_service: JobService, clock: Clock) -> None:
        self._jobs = jobs
        self._editor = editor
        self._job_service = job_service
        self._clock = clock
        self._next_ms: int | None = None

    async def run_once(self, now_ms: int) -> int:
        """Return the number of jobs that were due. If it is positive, there may be more."""
        self._next_ms = await self._jobs.next_resume_ms()
        if self._next_ms is None or self._next_ms > now_ms:
            return 0
        due = await self._jobs.due_resumes(now_ms, PER_TENANT, PER_ROUND)
        for each in due:
            await self._resume(each, now_ms)
        return len(due)

    async def wait(self) -> float:
        """Return the seconds until the next end of a pause, or until one that another process stores may be due."""
        if self._next_ms is None:
            return LONGEST_WAIT_SEC
        return min(LONGEST_WAIT_SEC, max(0.0, (self._next_ms - self._clock.now_ms()) / 1000))

    async def _resume(self, due: DueResume, now_ms: int) -> None:
        caller = Caller(due.tenant, SYSTEM_SUBJECT, frozenset())
        audit = audit_entry(caller, "job.resume", due.job_id, now_ms, {"pausedUntil": text_of(due.until_ms)})
        try:
            await self._editor.apply(caller, due.job_id, partial(resume_on_time, until_ms=due.until_ms, audit=audit))
        except NotFound:
            log.info("paused job deleted before its end", job=due.job_id)
        except InvalidInput as error:
            # The schedule cannot be computed any more. Without an end the pause stays until a user has changed the job.
            log.warning("paused job not resumed", job=due.job_id, error=error.detail)
            await self._job_service.halt(caller, due.job_id, f"it could not be resumed: {error.detail}"[:500])


def resume_on_time(before: Snapshot, *, until_ms: int, audit: AuditEntry) -> Change:
    """Resume a job as of the end of its pause. Nothing changes if the pause has another end by now."""
    job = before.job
    if job.paused_until_ms != until_ms:
        return Change()
    if job.state is not JobState.PAUSED:
        # A process of a former release has resumed or deleted the job, and does not know of the end.
        return Change(job=msgspec.structs.replace(job, paused_until_ms=None))
    return resumed_at(before, max(until_ms, job.updated_ms + 1), audit)
