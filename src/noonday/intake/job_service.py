"""Commands on jobs, executions, dead letters, pools and tenants, for the REST API and the SDK."""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

import msgspec

from noonday.crypto.envelope import context_of
from noonday.crypto.keyring import Keyring
from noonday.intake import edits
from noonday.intake.catalogue import Catalogue
from noonday.intake.idempotency import Answered, Idempotency
from noonday.intake.job_queries import JobQueries, dead_query
from noonday.intake.presenters import Presenter
from noonday.intake.quotas import Quotas, Room, Standing
from noonday.intake.receipts import Receipts
from noonday.model.audit import EVERY_TENANT, AuditEntry
from noonday.model.caller import TENANT_RULE, Caller, is_tenant_name
from noonday.model.change import Applied, Change, NewJob
from noonday.model.errors import (
    FLAWS_OF_BATCH,
    Conflict,
    Flaw,
    InvalidInput,
    NoondayError,
    NotFound,
    PayloadTooLarge,
    Unavailable,
    VersionMismatch,
    nearest,
)
from noonday.model.execution import State
from noonday.model.filters import DeadFilter, DeadFilterQuery
from noonday.model.firing import Entry, fire_entry
from noonday.model.ids import ExecutionId, JobId, TenantId, new_job_id, partition_of
from noonday.model.job import Job, JobSpec, JobState, anchor_of, check, instant_of, rule_of, with_default_spread
from noonday.model.limits import Sizes
from noonday.model.nesting import MOST_LEVELS, is_too_deep
from noonday.model.pause import Pause
from noonday.model.retry import flaws_of
from noonday.model.rows import JobRow
from noonday.model.snapshot import Scope, Snapshot
from noonday.model.tenancy import flaws_of_pool, flaws_of_pool_name, flaws_of_tenant
from noonday.model.view import (
    BackfillView,
    BulkView,
    DeadLetterView,
    ExecutionView,
    JobView,
    PauseList,
    PoolSettings,
    PoolView,
    TenantSettings,
    TenantView,
)
from noonday.ports.aside import Aside
from noonday.ports.clock import Clock
from noonday.ports.hot_index import HotIndex
from noonday.ports.jobs import Decide, Jobs
from noonday.ports.queries import QueryStore
from noonday.ports.settings import SettingsStore
from noonday.ports.signals import Signals
from noonday.runtime.tracing import Tracing

T = TypeVar("T")
DRAFTS_A_TURN = 50
"""Number of jobs of a batch that are checked before the event loop serves other requests."""
BACKFILL_PAGE = 500
"""Number of executions that one transaction of a backfill creates."""
MAX_BACKFILL = 100_000
"""Maximum number of occurrences of one backfill."""
BULK = 1000
"""Maximum number of dead letters that one request retries or archives."""
_encode_payload = msgspec.json.Encoder().encode


class JobService:
    """Validates commands, writes them to the store, then hints the hot index and signals workers."""

    def __init__(
        self,
        *,
        jobs: Jobs,
        query_store: QueryStore,
        settings_store: SettingsStore,
        queries: JobQueries,
        catalogue: Catalogue,
        index: HotIndex,
        signals: Signals,
        clock: Clock,
        keyring: Keyring,
        presenter: Presenter,
        aside: Aside,
        limits: Sizes,
        hint_ahead_ms: int,
        tracing: Tracing,
        new_id: Callable[[], JobId] = new_job_id,
    ) -> None:
        self._jobs = jobs
        self._query_store = query_store
        self._settings_store = settings_store
        self._aside = aside
        self._queries = queries
        self._catalogue = catalogue
        self._index = index
        self._signals = signals
        self._clock = clock
        self._keyring = keyring
        self._presenter = presenter
        self._limits = limits
        self._hint_ahead_ms = hint_ahead_ms
        self._tracing = tracing
        self._new_id = new_id
        self._quotas = Quotas(query_store, settings_store, clock)
        self.receipts = Receipts(jobs, keyring, clock)
        self.on_placed: Callable[[], None] = lambda: None
        self.on_created: Callable[[int, int], None] = lambda jobs, tasks: None

    # -- jobs ----------------------------------------------------------------------------------------------------------

    async def create(
        self,
        caller: Caller,
        spec: JobSpec,
        idem: Idempotency | None = None,
        *,
        traceparent: str | None = None,
        maker_of: str | None = None,
    ) -> JobView:
        """Store a job. Once this returns, the job fires. If its `unique_key` is taken, the job that has it is updated.

        `maker_of` names the built-in pool that the calling service makes jobs for. Users' requests never set it.
        """
        async with self.receipts.once(caller, idem):
            now_ms = self._clock.now_ms()
            with self._tracing.creating(1, traceparent) as trace:
                settings = await self._quotas.settings(caller.tenant)
                draft = await self._draft(caller, spec, now_ms, trace, settings, maker_of)
                if isinstance(draft, NoondayError):
                    raise draft
                with await self._room(caller, [draft], whole=True) as room:
                    answers = await self._add(
                        caller, [draft], now_ms, room, idem, lambda answers: self._view_of(draft, answers[0])
                    )
                view = self._view_of(draft, answers[0])
                self._tracing.created([view.job_id])
            return view

    async def create_many(
        self,
        caller: Caller,
        specs: Sequence[JobSpec | NoondayError],
        *,
        atomic: bool = False,
        idem: Idempotency | None = None,
        traceparent: str | None = None,
    ) -> list[JobView | NoondayError]:
        """Store the valid jobs in one transaction. Returns a job or an error for each spec, in order.

        With `atomic`, either all jobs are stored or none.
        """
        async with self.receipts.once(caller, idem):
            now_ms = self._clock.now_ms()
            with self._tracing.creating(len(specs), traceparent) as trace:
                settings = await self._quotas.settings(caller.tenant)
                drafts = await self._drafts(caller, specs, now_ms, trace, settings)
                good = _good(drafts)
                if atomic and len(good) < len(drafts):
                    raise _all_flaws(drafts)
                with await self._room(caller, good, whole=atomic) as room:
                    admitted = _admitted(drafts, room)

                    refused: dict[JobId, Conflict] | None = None if atomic else {}

                    def views(answers: Sequence[Applied | None]) -> list[JobView | NoondayError]:
                        stored = zip(_good(admitted), answers, strict=True)
                        of_good = iter([self._view_unless(refused, draft, answer) for draft, answer in stored])
                        return [draft if isinstance(draft, NoondayError) else next(of_good) for draft in admitted]

                    return views(await self._add(caller, _good(admitted), now_ms, room, idem, views, refused))

    async def create_ids(self, caller: Caller, specs: Sequence[JobSpec], *, maker_of: str | None = None) -> list[JobId]:
        """Store all jobs in one transaction, or none, and return their ids. `maker_of` is that of `create`."""
        now_ms = self._clock.now_ms()
        with self._tracing.creating(len(specs), None) as trace:
            settings = await self._quotas.settings(caller.tenant)
            drafts = await self._drafts(caller, specs, now_ms, trace, settings, maker_of)
            good = _good(drafts)
            if len(good) < len(drafts):
                raise _all_flaws(drafts)
            with await self._room(caller, good, whole=True) as room:
                answers = await self._add(caller, good, now_ms, room)
            ids = [
                draft.new.job.id if answer is None else answer.after.job.id
                for draft, answer in zip(good, answers, strict=True)
            ]
            self._tracing.created(ids)
        return ids

    def standing(self, caller: Caller) -> Standing | None:
        """Return how much of its job quota the caller's tenant uses. None if it has no quota, or created nothing here yet."""
        return self._quotas.standing(caller.tenant)

    async def _room(self, caller: Caller, drafts: "Sequence[_Draft]", *, whole: bool) -> Room:
        keys = [draft.new.job.spec.unique_key for draft in drafts]
        return await self._quotas.room(caller.tenant, keys, whole=whole)

    async def _drafts(
        self,
        caller: Caller,
        specs: Sequence[JobSpec | NoondayError],
        now_ms: int,
        trace: str | None,
        settings: TenantSettings,
        maker_of: str | None = None,
    ) -> "list[_Draft | NoondayError]":
        drafts = []
        for number, spec in enumerate(specs, 1):
            drafts.append(await self._draft(caller, spec, now_ms, trace, settings, maker_of))
            if number % DRAFTS_A_TURN == 0:
                await asyncio.sleep(0)
        return drafts

    async def _draft(
        self,
        caller: Caller,
        spec: JobSpec | NoondayError,
        now_ms: int,
        traceparent: str | None,
        settings: TenantSettings,
        maker_of: str | None = None,
    ) -> "_Draft | NoondayError":
        if isinstance(spec, NoondayError):
            return spec
        try:
            check(spec, now_ms, maker_of)
            plain = self._plain(spec.payload, caller.tenant, settings.max_payload_bytes)
            warnings = () if self._catalogue.is_simple(spec) else await self._catalogue.check(spec)
            job_id = self._new_id()
            with_spread = with_default_spread(spec, settings.default_spread_sec)
            job = Job(
                id=job_id,
                tenant=caller.tenant,
                revision=1,
                state=JobState.ACTIVE,
                spec=_without_payload(with_spread),
                anchor_ms=anchor_of(spec, now_ms),
                payload=self._seal(plain, caller.tenant, job_id),
                created_ms=now_ms,
                updated_ms=now_ms,
                trace=traceparent,
            )
            return _Draft(NewJob(job, edits.first_fire(job, now_ms)), warnings, spec.payload, with_spread is not spec)
        except Unavailable:
            raise  # the store failed; the job has no flaw
        except NoondayError as error:
            return error

    async def _add(
        self,
        caller: Caller,
        drafts: "Sequence[_Draft]",
        now_ms: int,
        room: Room,
        idem: Idempotency | None = None,
        view: Callable[[Sequence[Applied | None]], Any] = list,
        refused: "dict[JobId, Conflict] | None" = None,
    ) -> list[Applied | None]:
        """Store the drafts and the receipt in one transaction, then hint the entries that are due soon.

        A draft that cannot update the job with its unique key is added to `refused`. If `refused` is None, the Conflict is raised
        and nothing is stored.
        """
        audit = None
        if drafts:
            count: dict[str, object] = {"jobs": len(drafts)} if len(drafts) > 1 else {}
            audit = self._audit(caller, "job.create", drafts[0].new.job.id, count)
        seal = None
        if idem:
            seal = lambda answers: self.receipts.of(caller, idem, now_ms, view(answers))  # noqa: E731
        spread = frozenset(draft.new.job.id for draft in drafts if draft.has_default_spread)
        upsert = partial(self._upsert, now_ms=now_ms, spread_by_default=spread, refused=refused)
        answers = await self._jobs.add([draft.new for draft in drafts], upsert=upsert, audit=audit, seal=seal)
        room.made = answers.count(None)
        self._count_new(drafts, answers)
        await self._hint_new(drafts, answers, now_ms)
        return answers

    def _count_new(self, drafts: "Sequence[_Draft]", answers: Sequence[Applied | None]) -> None:
        new = [draft.new.job for draft, answer in zip(drafts, answers, strict=True) if answer is None]
        tasks = sum(job.spec.target.endpoint is not None for job in new)
        self.on_created(len(new) - tasks, tasks)

    def _view_unless(
        self, refused: "Mapping[JobId, Conflict] | None", draft: "_Draft", answer: Applied | None
    ) -> JobView | NoondayError:
        refusal = refused.get(draft.new.job.id) if refused else None
        return refusal or self._view_of(draft, answer)

    def _view_of(self, draft: "_Draft", answer: Applied | None) -> JobView:
        if answer is None:
            row = JobRow(draft.new.job, draft.new.fire, open=False)
            return self._presenter.job(row, warnings=draft.warnings, payload=draft.payload)
        reason = edits.why_no_next_fire(answer.after)
        return self._presenter.job(_row(answer.after), warnings=(*draft.warnings, *([reason] if reason else [])))

    async def _hint_new(self, drafts: "Sequence[_Draft]", answers: Sequence[Applied | None], now_ms: int) -> None:
        latest = now_ms + self._hint_ahead_ms
        entries = []
        for draft, answer in zip(drafts, answers, strict=True):
            if answer is not None:
                await self._after(answer)
            elif draft.new.fire and draft.new.fire.due_ms is not None and draft.new.fire.due_ms <= latest:
                entries.append(draft.entry())
        if entries:
            await self._index.hint(entries)
            self.on_placed()

    def _upsert(
        self,
        before: Snapshot,
        new: Job,
        now_ms: int,
        spread_by_default: Collection[JobId],
        refused: "dict[JobId, Conflict] | None",
    ) -> Change:
        """Update the existing job. The payload was encrypted for the id of the new job, so it is encrypted again."""
        new_id = new.id
        if new_id in spread_by_default:
            new = _keeping_spread(before.job, new)
        plain = self._presenter.open(new.payload, new.tenant, new_id)
        if plain == self._presenter.open(before.job.payload, before.job.tenant, before.job.id):
            new = msgspec.structs.replace(new, payload=before.job.payload)
        else:
            payload = self._seal(self._plain(plain, before.job.tenant), before.job.tenant, before.job.id)
            new = msgspec.structs.replace(new, payload=payload)
        try:
            return edits.upsert(before, new, lambda a, b: a == b, now_ms, None)
        except Conflict as refusal:
            if refused is None:
                raise
            refused[new_id] = refusal
            return Change()

    async def replace(
        self,
        caller: Caller,
        job_id: str,
        spec: JobSpec,
        *,
        if_version: int | None = None,
        idem: Idempotency | None = None,
        maker_of: str | None = None,
    ) -> JobView:
        """Give a job a new definition. `maker_of` is that of `create`.

        Raises VersionMismatch if the job is not at version `if_version`.
        """
        now_ms = self._clock.now_ms()
        check(spec, now_ms, maker_of)
        settings = await self._quotas.settings(caller.tenant)
        plain = self._plain(spec.payload, caller.tenant, settings.max_payload_bytes)
        warnings = await self._catalogue.check(spec)
        payload = self._seal(plain, caller.tenant, job_id)
        stored_spec = _without_payload(with_default_spread(spec, settings.default_spread_sec))

        def decide(before: Snapshot) -> Change:
            if if_version is not None and before.job.revision != if_version:
                raise VersionMismatch(
                    f"the job is at version {before.job.revision}, not {if_version}: read it again",
                    version=before.job.revision,
                )
            if spec.unique_key != before.job.spec.unique_key:
                raise InvalidInput.of("/uniqueKey", "the unique key of a job cannot be changed", spec.unique_key)
            audit = self._audit(caller, "job.replace", job_id, {"version": before.job.revision + 1})
            return edits.replace(before, stored_spec, payload, now_ms, audit)

        return await self._edit_job(caller, job_id, decide, now_ms, idem, warnings)

    async def pause(self, caller: Caller, job_id: str, idem: Idempotency | None = None) -> JobView:
        now_ms = self._clock.now_ms()
        audit = self._audit(caller, "job.pause", job_id)
        return await self._edit_job(caller, job_id, lambda before: edits.pause(before, now_ms, audit), now_ms, idem)

    async def resume(self, caller: Caller, job_id: str, idem: Idempotency | None = None) -> JobView:
        now_ms = self._clock.now_ms()
        audit = self._audit(caller, "job.resume", job_id)
        return await self._edit_job(caller, job_id, lambda before: edits.resume(before, now_ms, audit), now_ms, idem)

    async def halt(self, caller: Caller, job_id: str, reason: str) -> JobView:
        """Pause a job for a reason that no user gave. The job shows the reason until a user resumes it."""
        now_ms = self._clock.now_ms()
        audit = self._audit(caller, "job.halt", job_id, {"reason": reason})
        return await self._edit_job(
            caller, job_id, lambda before: edits.halt(before, reason, now_ms, audit), now_ms, None
        )

    async def delete(self, caller: Caller, job_id: str, idem: Idempotency | None = None) -> JobView:
        now_ms = self._clock.now_ms()
        audit = self._audit(caller, "job.cancel", job_id)
        return await self._edit_job(caller, job_id, lambda before: edits.delete(before, now_ms, audit), now_ms, idem)

    async def _edit_job(
        self,
        caller: Caller,
        job_id: str,
        decide: Decide,
        now_ms: int,
        idem: Idempotency | None,
        warnings: tuple[str, ...] = (),
    ) -> JobView:
        def view(applied: Applied) -> JobView:
            return self._presenter.job(_row(applied.after), warnings=warnings)

        return view(await self._edit(caller, job_id, decide, now_ms, idem, view))

    async def _edit(
        self,
        caller: Caller,
        job_id: str,
        decide: Decide,
        now_ms: int,
        idem: Idempotency | None,
        view: Callable[[Applied], Any],
        *,
        show: Sequence[ExecutionId] = (),
    ) -> Applied:
        """Apply one decision to one job, then signal and hint. `show`: executions that the view needs."""
        try:
            async with self.receipts.once(caller, idem):
                seal = None
                if idem:
                    seal = lambda applied: self.receipts.of(caller, idem, now_ms, view(applied))  # noqa: E731
                applied = await self._jobs.edit(caller.tenant, JobId(job_id), decide, show=show, seal=seal)
                await self._after(applied)
                return applied
        except Answered:
            await self._fence(caller, JobId(job_id))
            raise

    async def _fence(self, caller: Caller, job_id: JobId) -> None:
        """Fence a job before a stored response is repeated.

        The first request may have stored its change and failed to reach the signals. When the client repeats it, the response
        must not come before workers know of the change.
        """
        with suppress(NotFound):
            pools: set[str] = set()

            def collect_pools(before: Snapshot) -> Change:
                open_ = before.open_in(Scope.UNBUFFERED)
                pools.update([before.job.spec.target.pool], (e.pool for e in open_))
                return Change()

            await self._jobs.edit(caller.tenant, job_id, collect_pools)
            for pool in sorted(pools):
                await self._signals.fence(pool, job_id, self._clock.now_ms())

    async def _after(self, applied: Applied) -> None:
        """Send copies of stored changes: first revocations and fences, because the response waits for them, then hints."""
        for pool, execution, dispatch, reason in applied.revocations:
            await self._signals.revoke(pool, [(execution, dispatch, reason)])
        for pool in applied.fenced:
            await self._signals.fence(pool, applied.after.job.id, self._clock.now_ms())
        latest = self._clock.now_ms() + self._hint_ahead_ms
        entries = [entry for entry in applied.entries if entry.due_ms <= latest]
        if entries:
            await self._index.hint(entries)
            self.on_placed()

    # -- executions ----------------------------------------------------------------------------------------------------

    async def trigger(self, caller: Caller, job_id: str, idem: Idempotency | None = None) -> ExecutionView:
        """Run a job now, in addition to its schedule. Raises NotFound, and Conflict."""
        now_ms = self._clock.now_ms()
        key = idem.key if idem else self._new_id()
        audit = self._audit(caller, "job.trigger", job_id)
        new = edits.id_of_trigger(JobId(job_id), key, now_ms)

        def decide(before: Snapshot) -> Change:
            return edits.trigger(before, key, now_ms, audit)

        def view(applied: Applied) -> ExecutionView:
            return self._execution_in(applied, new)

        return view(await self._edit(caller, job_id, decide, now_ms, idem, view, show=[new]))

    def _execution_in(self, applied: Applied, execution: ExecutionId) -> ExecutionView:
        row = next(e for e in applied.after.executions if e.id == execution)
        return self._presenter.execution(row, applied.after.job.spec.name)

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
        async with self.receipts.once(caller, idem):
            now_ms = self._clock.now_ms()
            row = await self._query_store.find_job(caller.tenant, JobId(job_id))
            if row is None:
                raise NotFound(f"no job {job_id}")
            total, first = await self._aside.run(lambda _: _count_backfill(row.job, from_ms, to_ms, now_ms))
            created = 0
            if not preview:
                created = await self._backfill_pages(caller, row.job, from_ms, to_ms, backfill_id, now_ms)
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
            return await self.receipts.keep(caller, idem, view)

    async def _backfill_pages(
        self, caller: Caller, job: Job, from_ms: int, to_ms: int, backfill_id: str, now_ms: int
    ) -> int:
        """Create the missing executions of a backfill page by page. Returns their number."""
        rule = rule_of(job.spec, job.anchor_ms)
        after_ms, created, audited = from_ms - 1, 0, False
        while True:
            times = rule.take(after_ms, BACKFILL_PAGE, to_ms)
            if not times:
                return created
            audit = None
            if not audited:
                detail: dict[str, object] = {"backfillId": backfill_id, "fromMs": from_ms, "toMs": to_ms}
                audit, audited = self._audit(caller, "job.backfill", job.id, detail), True
            applied = await self._jobs.edit(
                caller.tenant,
                job.id,
                lambda before, t=times, a=audit: edits.backfill(before, t, backfill_id, now_ms, a),  # type: ignore[misc]
            )
            await self._after(applied)
            created += applied.created
            after_ms = times[-1]

    async def cancel_execution(
        self, caller: Caller, execution_id: str, idem: Idempotency | None = None
    ) -> ExecutionView:
        row = await self._queries.execution_row(caller, execution_id)
        now_ms = self._clock.now_ms()
        audit = self._audit(caller, "execution.cancel", execution_id)
        reason = f"cancelled by {caller.subject}"

        def decide(before: Snapshot) -> Change:
            return edits.cancel_execution(before, row.id, reason, audit)

        def view(applied: Applied) -> ExecutionView:
            return self._execution_in(applied, row.id)

        applied = await self._edit(caller, row.job_id, decide, now_ms, idem, view, show=[row.id])
        return view(applied)

    async def retry_dead(self, caller: Caller, execution_id: str, idem: Idempotency | None = None) -> ExecutionView:
        async with self.receipts.unless_answered(caller, idem):
            dead = await self._dead_row(caller, execution_id)
        now_ms = self._clock.now_ms()
        audit = self._audit(caller, "dead.retry", execution_id)
        new = edits.id_of_retry(dead)

        def decide(before: Snapshot) -> Change:
            return edits.retry_dead(before, dead, now_ms, audit)

        def view(applied: Applied) -> ExecutionView:
            return self._execution_in(applied, new)

        return view(await self._edit(caller, dead.job_id, decide, now_ms, idem, view, show=[new]))

    async def run_again(
        self, caller: Caller, job_id: JobId, resends: Sequence[edits.Resend], idem: Idempotency | None = None
    ) -> dict[ExecutionId, ExecutionView]:
        """Repeat ended executions of a job. Returns the new executions by id.

        An execution that exists already is not changed, and not returned if it has ended. Raises NotFound, and Conflict if the
        job was cancelled.
        """
        now_ms = self._clock.now_ms()
        single = resends[0].was.id if len(resends) == 1 else None
        audit = self._audit(
            caller, "execution.resend", single or job_id, {} if single else {"executions": len(resends)}
        )

        new = {each.new for each in resends}

        def view(applied: Applied) -> dict[ExecutionId, ExecutionView]:
            name = applied.after.job.spec.name
            return {row.id: self._presenter.execution(row, name) for row in applied.after.executions if row.id in new}

        def decide(before: Snapshot) -> Change:
            return edits.run_again(before, resends, now_ms, audit)

        return view(await self._edit(caller, job_id, decide, now_ms, idem, view, show=sorted(new)))

    async def archive_dead(self, caller: Caller, execution_id: str, idem: Idempotency | None = None) -> DeadLetterView:
        async with self.receipts.unless_answered(caller, idem):
            dead = await self._dead_row(caller, execution_id)
        found = await self._query_store.find_dead(caller.tenant, dead.id)
        assert found is not None
        audit = self._audit(caller, "dead.archive", execution_id)

        def view(applied: Applied) -> DeadLetterView:
            return self._presenter.dead_letter(dead, found[0], True, found[2], applied.after.job.spec.name)

        now_ms = self._clock.now_ms()
        return view(
            await self._edit(caller, dead.job_id, lambda before: edits.archive_dead(dead.id, audit), now_ms, idem, view)
        )

    async def retry_dead_where(
        self, caller: Caller, where: DeadFilter | DeadFilterQuery, idem: Idempotency | None = None
    ) -> BulkView:
        return await self._each_dead(caller, where, idem, self.retry_dead)

    async def archive_dead_where(
        self, caller: Caller, where: DeadFilter | DeadFilterQuery, idem: Idempotency | None = None
    ) -> BulkView:
        return await self._each_dead(caller, where, idem, self.archive_dead)

    async def _each_dead(
        self, caller: Caller, where: DeadFilter | DeadFilterQuery, idem: Idempotency | None, act: Any
    ) -> BulkView:
        query = where if isinstance(where, DeadFilterQuery) else dead_query(where)
        async with self.receipts.once(caller, idem):
            changed, after = 0, None
            while True:
                letters = await self._query_store.list_dead(caller.tenant, query, after, BULK + 1)
                for letter in letters[:BULK]:
                    try:
                        await act(caller, letter.execution.id)
                        changed += 1
                    except Conflict:
                        continue  # the job was cancelled, or another request was faster
                if changed or len(letters) <= BULK:
                    view = BulkView(changed=changed, more=len(letters) > BULK)
                    return await self.receipts.keep(caller, idem, view)
                after = letters[BULK - 1].execution.id

    async def _dead_row(self, caller: Caller, execution_id: str) -> Any:
        row = await self._queries.execution_row(caller, execution_id)
        if row.state is not State.DEAD:
            raise Conflict(f"the execution is {row.state.name}, not DEAD: it is no dead letter", state=row.state.name)
        found = await self._query_store.find_dead(caller.tenant, row.id)
        if found is None or found[2] is not None:
            raise Conflict("the dead letter was already retried", retriedAs=found[2] if found else None)
        return row

    # -- pools and tenants ---------------------------------------------------------------------------------------------

    async def put_pool(
        self, caller: Caller, name: str, settings: PoolSettings, idem: Idempotency | None = None
    ) -> PoolView:
        flaws = flaws_of_pool_name(name)
        flaws += flaws_of(settings.retry_policy, "/retryPolicy") if settings.retry_policy else []
        flaws += flaws_of_pool(settings)
        if flaws:
            raise InvalidInput(flaws[0].detail, flaws)
        async with self.receipts.once(caller, idem):
            await self._settings_store.put_pool(name, settings, self._audit_in(EVERY_TENANT, caller, "pool.put", name))
            self._catalogue.forget()
            view = await self._queries.get_pool(caller, name)
            return await self.receipts.keep(caller, idem, view)

    async def _check_pool(self, name: str) -> None:
        known = await self._catalogue.pools(name)
        if name not in known:
            guess = nearest(name, known)
            raise NotFound(f"no pool {name!r}" + (f"; did you mean {guess}?" if guess else ""), pool=name)

    async def add_pause(self, caller: Caller, kind: str, name: str, idem: Idempotency | None = None) -> PauseList:
        """Pause dispatch of a TENANT, of a POOL, or of everything (ALL). Raises Forbidden, and NotFound for an unknown pool."""
        tenant = _require_pausing(caller, kind, name)
        if kind == "POOL":
            await self._check_pool(name)
        pause = Pause(kind, name, self._clock.now_ms(), caller.subject)
        async with self.receipts.once(caller, idem):
            await self._settings_store.add_pause(pause, self._audit_in(tenant, caller, f"{kind.lower()}.pause", name))
            return await self.receipts.keep(caller, idem, await self._queries.pauses(caller))

    async def remove_pause(self, caller: Caller, kind: str, name: str, idem: Idempotency | None = None) -> PauseList:
        """Resume dispatch of a TENANT, of a POOL, or of everything (ALL). Raises Forbidden."""
        tenant = _require_pausing(caller, kind, name)
        async with self.receipts.once(caller, idem):
            await self._settings_store.remove_pause(
                kind, name, self._audit_in(tenant, caller, f"{kind.lower()}.resume", name)
            )
            return await self.receipts.keep(caller, idem, await self._queries.pauses(caller))

    async def put_tenant(
        self, caller: Caller, tenant: str, settings: TenantSettings, idem: Idempotency | None = None
    ) -> TenantView:
        _check_tenant(tenant, settings)
        async with self.receipts.once(caller, idem):
            audit = self._audit_in(TenantId(tenant), caller, "tenant.put", tenant, msgspec.to_builtins(settings))
            await self._settings_store.put_tenant(TenantId(tenant), settings, audit)
            self._quotas.forget(TenantId(tenant))
            view = await self._queries.get_tenant(caller, tenant)
            return await self.receipts.keep(caller, idem, view)

    # -- shared steps --------------------------------------------------------------------------------------------------

    def _plain(self, payload: Any, tenant: str, tenant_limit: int | None = None) -> bytes | None:
        """Encode a payload, before encryption. Raises PayloadTooLarge, and InvalidInput if it is nested too deeply."""
        if payload is None:
            return None
        try:
            plain = _encode_payload(payload)
        except RecursionError:
            raise _too_deep() from None
        if is_too_deep(plain):
            raise _too_deep()
        limit, source = self._limits.payload_bytes, ""
        if tenant_limit is not None and tenant_limit < limit:
            limit, source = tenant_limit, f" of tenant {tenant!r} (maxPayloadBytes)"
        if len(plain) > limit:
            raise PayloadTooLarge(
                f"the payload has {len(plain)} bytes, more than the limit{source} of {limit}: "
                "store it elsewhere and pass a reference",
                limit=limit,
                size=len(plain),
            )
        return plain

    def _seal(self, plain: bytes | None, tenant: str, job_id: str) -> bytes | None:
        return None if plain is None else self._keyring.seal(plain, context_of(tenant, job_id))

    def _audit(self, caller: Caller, action: str, target: str, detail: dict[str, object] | None = None) -> AuditEntry:
        return self._audit_in(caller.tenant, caller, action, target, detail)

    def _audit_in(
        self,
        tenant: TenantId,
        caller: Caller,
        action: str,
        target: str,
        detail: dict[str, object] | None = None,
    ) -> AuditEntry:
        """Build an entry for the audit log of a tenant. It names the caller's tenant if that is another one."""
        by = {} if caller.tenant == tenant else {"byTenant": caller.tenant}
        return AuditEntry(tenant, self._clock.now_ms(), caller.subject, action, target, {**(detail or {}), **by})


class _Draft:
    """A valid job that is not stored yet."""

    __slots__ = ("has_default_spread", "new", "payload", "warnings")

    def __init__(self, new: NewJob, warnings: tuple[str, ...], payload: Any, has_default_spread: bool) -> None:
        self.new = new
        self.warnings = warnings
        self.payload = payload
        self.has_default_spread = has_default_spread

    def entry(self) -> Entry:
        assert self.new.fire is not None
        return fire_entry(self.new.job, self.new.fire.nominal_ms, partition_of(self.new.job.id))


def _good(drafts: "Sequence[_Draft | NoondayError]") -> list[_Draft]:
    return [draft for draft in drafts if isinstance(draft, _Draft)]


def _admitted(drafts: "Sequence[_Draft | NoondayError]", room: Room) -> "Sequence[_Draft | NoondayError]":
    """Replace the drafts that exceed the quota by its refusal."""
    if room.why is None:
        return drafts
    numbers = iter(range(len(drafts)))
    return [room.why if isinstance(each, _Draft) and next(numbers) in room.refused else each for each in drafts]


def _keeping_spread(present: Job, new: Job) -> Job:
    """Keep the spread of a job that is unchanged but for the tenant's default spread, so that its times do not move."""
    same = msgspec.structs.replace(new.spec, spread_sec=present.spec.spread_sec)
    return msgspec.structs.replace(new, spec=same) if same == present.spec else new


def _without_payload(spec: JobSpec) -> JobSpec:
    return spec if spec.payload is None else msgspec.structs.replace(spec, payload=None)


def _row(snapshot: Snapshot) -> JobRow:
    return JobRow(snapshot.job, snapshot.fire, snapshot.has_open)


def _too_deep() -> InvalidInput:
    return InvalidInput.of("/payload", f"the payload is nested more than {MOST_LEVELS} levels deep")


def _all_flaws(drafts: Sequence[Any]) -> InvalidInput:
    flaws, left_out = [], 0
    for at, draft in enumerate(drafts):
        if isinstance(draft, InvalidInput):
            flaws += [
                Flaw(f"/jobs/{at}{flaw.pointer}", flaw.detail, flaw.value, flaw.allowed, flaw.nearest)
                for flaw in draft.flaws
            ]
            left_out += draft.context.get("leftOut", 0)
        elif isinstance(draft, NoondayError):
            flaws.append(Flaw(f"/jobs/{at}", draft.detail))
    more = {"leftOut": left_out} if left_out else {}
    detail = f"{len(flaws) + left_out} values are not valid; nothing was stored"
    return InvalidInput(detail, flaws, most_flaws=FLAWS_OF_BATCH, **more)


def _count_backfill(job: Job, from_ms: int, to_ms: int, now_ms: int) -> tuple[int, list[int]]:
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
    return total, rule.take(from_ms - 1, 5, to_ms)


def _require_pausing(caller: Caller, kind: str, name: str) -> TenantId:
    """Return the tenant that a pause concerns. Raises Forbidden: only an operator pauses pools, everything, or other tenants."""
    if kind == "TENANT":
        caller.require_for(name, "admin")
        return TenantId(name)
    caller.require("operator")
    return EVERY_TENANT


def _check_tenant(tenant: str, settings: TenantSettings) -> None:
    flaws = []
    if not is_tenant_name(tenant):
        flaws.append(Flaw("", f"a tenant's name has {TENANT_RULE}", tenant))
    flaws += flaws_of_tenant(settings)
    if flaws:
        raise InvalidInput(flaws[0].detail, flaws)
