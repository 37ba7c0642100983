"""Skip service: commands that skip occurrences of a job, and undo that."""

from noonday.intake import skips
from noonday.intake.audit import audit_entry
from noonday.intake.idempotency import Idempotency
from noonday.intake.job_editor import JobEditor
from noonday.intake.presenters import Presenter
from noonday.intake.reasons import flaw_of_reason
from noonday.model.caller import Caller
from noonday.model.errors import Flaw, InvalidInput
from noonday.model.filters import SkipRequest
from noonday.model.job import ms_of, text_of
from noonday.model.skip import MOST_SKIPS
from noonday.model.view import JobView
from noonday.ports.clock import Clock


class SkipService:
    """Commands on the skips of a job. Their result is the job, whose `skips` are the occurrences to come that are skipped."""

    def __init__(self, *, editor: JobEditor, presenter: Presenter, clock: Clock) -> None:
        self._editor = editor
        self._presenter = presenter
        self._clock = clock

    async def skip(self, caller: Caller, job_id: str, request: SkipRequest, idem: Idempotency | None = None) -> JobView:
        """Skip occurrences. Raises NotFound, InvalidInput and Conflict."""
        _check(request)
        now_ms, at_ms, count = self._clock.now_ms(), ms_of(request.at), request.next or 1
        detail = {"at": text_of(at_ms)} if at_ms is not None else {"next": count}
        audit = audit_entry(caller, "job.skip", job_id, now_ms, detail)
        return await self._editor.edit(
            caller,
            job_id,
            lambda before: skips.skip(before, at_ms, count, caller.subject, request.reason, now_ms, audit),
            self._presenter.job_after,
            now_ms,
            idem,
        )

    async def undo(self, caller: Caller, job_id: str, at_ms: int | None, idem: Idempotency | None = None) -> JobView:
        """Undo the skip of the occurrence at an instant, or all skips. Raises NotFound and Conflict."""
        now_ms = self._clock.now_ms()
        audit = audit_entry(caller, "job.unskip", job_id, now_ms, {} if at_ms is None else {"at": text_of(at_ms)})
        return await self._editor.edit(
            caller,
            job_id,
            lambda before: skips.undo(before, at_ms, now_ms, audit),
            self._presenter.job_after,
            now_ms,
            idem,
        )


def _check(request: SkipRequest) -> None:
    flaws = []
    if (request.at is None) == (request.next is None):
        flaws.append(Flaw("/at", "pass exactly one of at and next"))
    if request.next is not None and not 1 <= request.next <= MOST_SKIPS:
        flaws.append(Flaw("/next", f"must be from 1 to {MOST_SKIPS}", request.next))
    if flaw := flaw_of_reason(request.reason):
        flaws.append(flaw)
    if flaws:
        raise InvalidInput(flaws[0].detail, flaws)
