"""Backfill service: creates executions for past times of a schedule."""

from noonday.intake import edits
from noonday.intake.audit import audit_entry
from noonday.intake.idempotency import Idempotency
from noonday.intake.job_editor import JobEditor
from noonday.intake.lookup import get_job_row
from noonday.intake.receipts import Receipts
from noonday.model.audit import AuditEntry
from noonday.model.caller import Caller
from noonday.model.change import Change
from noonday.model.errors import InvalidInput
from noonday.model.job import Job, instant_of, rule_of
from noonday.model.snapshot import Snapshot
from noonday.model.view import BackfillView
from noonday.ports.clock import Clock
from noonday.ports.offload import Offload
from noonday.ports.queries import QueryStore

PAGE = 500
"""Number of executions that one transaction of a backfill creates."""
MAX_BACKFILL = 100_000
"""Maximum number of occurrences of one backfill."""
SHOWN = 5
"""Number of times that the view of a backfill shows."""


class BackfillService:
    """Commands of backfills."""

    def __init__(
        self, *, editor: JobEditor, receipts: Receipts, query_store: QueryStore, offload: Offload, clock: Clock
    ) -> None:
        """`offload` computes fire times off the event loop."""
        self._editor = editor
        self._receipts = receipts
        self._query_store = query_store
        self._offload = offload
        self._clock = clock

    async def backfill(
        self,
        caller: Caller,
        job_id: str,
        *,
        from_ms: int,
        to_ms: int,
        backfill_id: str,
        preview: bool,
        idem: Idempotency | None = None,
    ) -> BackfillView:
        """Create executions for a past range, in pages. A repeated call with the same id creates only the missing ones."""
        async with self._receipts.once(caller, idem):
            now_ms = self._clock.now_ms()
            row = await get_job_row(self._query_store, caller, job_id)
            total, first = await self._offload.run(lambda _: _count(row.job, from_ms, to_ms, now_ms))
            created = 0
            if not preview:
                created = await self._create_pages(caller, row.job, from_ms, to_ms, backfill_id, now_ms)
            view = BackfillView(
                backfill_id=backfill_id,
                job_id=job_id,
                from_=instant_of(from_ms),
                to=instant_of(to_ms),
                total=total,
                created=created,
                first=tuple(instant_of(ms) for ms in first),
                preview=preview,
            )
            return await self._receipts.keep(caller, idem, view)

    async def _create_pages(
        self, caller: Caller, job: Job, from_ms: int, to_ms: int, backfill_id: str, now_ms: int
    ) -> int:
        """Create the missing executions of a backfill page by page. Returns their number."""
        rule = rule_of(job.spec, job.anchor_ms)
        detail = {"backfillId": backfill_id, "fromMs": from_ms, "toMs": to_ms}
        audit: AuditEntry | None = audit_entry(caller, "job.backfill", job.id, self._clock.now_ms(), detail)
        after_ms, created = from_ms - 1, 0
        while times := rule.take(after_ms, PAGE, to_ms):
            created += await self._create_page(caller, job, times, backfill_id, now_ms, audit)
            audit, after_ms = None, times[-1]
        return created

    async def _create_page(
        self, caller: Caller, job: Job, times: list[int], backfill_id: str, now_ms: int, audit: AuditEntry | None
    ) -> int:
        def decide(before: Snapshot) -> Change:
            return edits.backfill(before, times, backfill_id, now_ms, audit)

        return (await self._editor.apply(caller, job.id, decide)).created


def _count(job: Job, from_ms: int, to_ms: int, now_ms: int) -> tuple[int, list[int]]:
    """Return the number of occurrences in a range, and the first of them. Raises InvalidInput."""
    if job.spec.one_shot:
        raise InvalidInput.of("/type", "only jobs of type CRON and INTERVAL can be backfilled", job.spec.type.value)
    if to_ms < from_ms:
        raise InvalidInput.of("/to", "`to` is before `from`", to_ms)
    if to_ms > now_ms:
        raise InvalidInput.of("/to", "a backfill covers past times only: `to` is in the future", to_ms)
    rule = rule_of(job.spec, job.anchor_ms)
    total = rule.count(from_ms - 1, to_ms)
    if total > MAX_BACKFILL:
        raise InvalidInput.of("/from", f"the range has {total} occurrences, more than {MAX_BACKFILL}: split it", total)
    return total, rule.take(from_ms - 1, SHOWN, to_ms)
