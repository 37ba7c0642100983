"""Move service: the command that moves an occurrence of a job to another time."""

from noonday.intake import moves
from noonday.intake.audit import audit_entry
from noonday.intake.idempotency import Idempotency
from noonday.intake.job_editor import JobEditor
from noonday.intake.presenters import Presenter
from noonday.intake.reasons import require_reason
from noonday.model.caller import Caller
from noonday.model.filters import MoveRequest
from noonday.model.job import ms_of, text_of
from noonday.model.view import JobView
from noonday.ports.clock import Clock


class MoveService:
    """Moves occurrences of a job. The result is the job, whose `moves` are those of occurrences to come."""

    def __init__(self, *, editor: JobEditor, presenter: Presenter, clock: Clock) -> None:
        self._editor = editor
        self._presenter = presenter
        self._clock = clock

    async def move(self, caller: Caller, job_id: str, request: MoveRequest, idem: Idempotency | None = None) -> JobView:
        """Move an occurrence. Raises NotFound, InvalidInput and Conflict."""
        require_reason(request.reason)
        now_ms, at_ms, to_ms = self._clock.now_ms(), ms_of(request.at), ms_of(request.to)
        audit = audit_entry(caller, "job.move", job_id, now_ms, {"at": text_of(at_ms), "to": text_of(to_ms)})
        return await self._editor.edit(
            caller,
            job_id,
            lambda before: moves.move(before, at_ms, to_ms, caller.subject, request.reason, now_ms, audit),
            self._presenter.job_after,
            now_ms,
            idem,
        )
