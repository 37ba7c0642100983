"""Job service: commands on jobs, for the REST API and the SDK."""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any

from msgspec import UNSET

from noonday.intake import edits, triggers
from noonday.intake.audit import audit_entry
from noonday.intake.change_sender import ChangeSender
from noonday.intake.change_times import require_ahead
from noonday.intake.drafts import CreationContext, Draft, Drafter, admitted, all_flaws, valid_drafts
from noonday.intake.idempotency import Idempotency
from noonday.intake.job_editor import JobEditor
from noonday.intake.lookup import get_job_row
from noonday.intake.name_clashes import KnownNames, NameClashes
from noonday.intake.presenters import Presenter
from noonday.intake.quotas import QuotaReservation, Quotas
from noonday.intake.receipts import Receipts
from noonday.model.audit import AuditEntry
from noonday.model.caller import Caller
from noonday.model.change import Change, ChangeResult
from noonday.model.child_job import ChildJob
from noonday.model.errors import Conflict, InvalidInput, NoondayError, VersionMismatch
from noonday.model.filters import RunRequest
from noonday.model.ids import JobId
from noonday.model.job import Job, JobSpec, text_of
from noonday.model.rows import JobRow
from noonday.model.snapshot import Snapshot
from noonday.model.view import ExecutionView, JobView
from noonday.ports.child_jobs import CreateChildren
from noonday.ports.clock import Clock
from noonday.ports.jobs import Decide, Jobs, Upsert
from noonday.ports.queries import QueryStore
from noonday.runtime.tracing import Tracing

PLAIN_RUN = RunRequest()
"""Runs a job with its own payload, under its overlap rule."""
Refusals = dict[JobId, Conflict]
"""Refused updates of existing jobs, by the id that the new job would have got."""


class JobService:
    """Validates commands on jobs, writes them to the store, and sends the changes to workers and the hot index."""

    def __init__(
        self,
        *,
        jobs: Jobs,
        editor: JobEditor,
        sender: ChangeSender,
        drafter: Drafter,
        quotas: Quotas,
        query_store: QueryStore,
        receipts: Receipts,
        presenter: Presenter,
        clock: Clock,
        tracing: Tracing,
        new_id: Callable[[], JobId],
        on_created: Callable[[int, int], None] = lambda jobs, tasks: None,
    ) -> None:
        """`on_created` is called with the numbers of created jobs without and with an endpoint."""
        self._jobs = jobs
        self._editor = editor
        self._sender = sender
        self._drafter = drafter
        self._quotas = quotas
        self._query_store = query_store
        self._clashes = NameClashes(query_store)
        self._receipts = receipts
        self._presenter = presenter
        self._clock = clock
        self._tracing = tracing
        self._new_id = new_id
        self._on_created = on_created

    # -- create --------------------------------------------------------------------------------------------------------

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
        async with self._receipts.once(caller, idem):
            with self._tracing.creating(1, traceparent) as trace:
                context = await self._context(caller, trace, maker_of)
                draft = await self._drafter.draft(context, spec)
                if isinstance(draft, NoondayError):
                    raise draft
                names = await self._clashes.among(caller, [spec.name])
                with await self._room(caller, [draft], whole=True) as room:
                    answers = await self._add(
                        context, [draft], room, idem, lambda answers: self._view_of(draft, answers[0], names)
                    )
                view = self._view_of(draft, answers[0], names)
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
        async with self._receipts.once(caller, idem):
            with self._tracing.creating(len(specs), traceparent) as trace:
                context = await self._context(caller, trace)
                drafts = await self._drafter.draft_each(context, specs)
                valid = valid_drafts(drafts)
                if atomic and len(valid) < len(drafts):
                    raise all_flaws(drafts)
                names = await self._clashes.among(caller, [draft.new.job.spec.name for draft in valid])
                names = names.with_new(draft.new for draft in valid)
                with await self._room(caller, valid, whole=atomic) as room:
                    kept = admitted(drafts, room)
                    refused: Refusals | None = None if atomic else {}

                    def views(answers: Sequence[ChangeResult | None]) -> list[JobView | NoondayError]:
                        return self._views_of(kept, answers, names, refused or {})

                    return views(await self._add(context, valid_drafts(kept), room, idem, views, refused))

    async def create_ids(self, caller: Caller, specs: Sequence[JobSpec], *, maker_of: str | None = None) -> list[JobId]:
        """Store all jobs in one transaction, or none, and return their ids. `maker_of` is that of `create`."""
        with self._tracing.creating(len(specs), None) as trace:
            context = await self._context(caller, trace, maker_of)
            drafts = await self._drafter.draft_each(context, specs)
            valid = valid_drafts(drafts)
            if len(valid) < len(drafts):
                raise all_flaws(drafts)
            with await self._room(caller, valid, whole=True) as room:
                answers = await self._add(context, valid, room)
            ids = [
                draft.new.job.id if answer is None else answer.after.job.id
                for draft, answer in zip(valid, answers, strict=True)
            ]
            self._tracing.created(ids)
        return ids

    async def create_children(
        self, caller: Caller, children: Sequence[ChildJob], create: CreateChildren
    ) -> list[NoondayError]:
        """Create child jobs by `create`, in one transaction. Returns the errors of those that are refused.

        The admission of their attempt has counted them against the quota.
        """
        of_run = next((child.trace for child in children if child.trace), None)
        with self._tracing.creating(len(children), of_run) as trace:
            context = await self._context(caller, trace)
            drafts = await self._drafter.draft_children(context, children)
            valid, refused = valid_drafts(drafts), Refusals()
            audit = self._audit_of(context, valid)
            upsert = self._upsert_with(context, valid, refused)
            changes = await create([draft.new for draft in valid], upsert=upsert, audit=audit)
            if changes is None:
                return []
            self._on_created(len(valid) - len(changes), 0)
            for change in changes:
                await self._sender.send(change)
            await self._sender.send_new([draft.new for draft in valid], context.now_ms)
        return [*(draft for draft in drafts if isinstance(draft, NoondayError)), *refused.values()]

    async def _context(self, caller: Caller, trace: str | None, maker_of: str | None = None) -> CreationContext:
        now_ms = self._clock.now_ms()
        return CreationContext(caller, now_ms, trace, await self._quotas.settings(caller.tenant), maker_of)

    async def _room(self, caller: Caller, drafts: Sequence[Draft], *, whole: bool) -> QuotaReservation:
        keys = [draft.new.job.spec.unique_key for draft in drafts]
        return await self._quotas.room(caller.tenant, keys, whole=whole)

    async def _add(
        self,
        context: CreationContext,
        drafts: Sequence[Draft],
        room: QuotaReservation,
        idem: Idempotency | None = None,
        view: Callable[[Sequence[ChangeResult | None]], Any] = list,
        refused: Refusals | None = None,
    ) -> list[ChangeResult | None]:
        """Store the drafts and the receipt in one transaction, then hint the entries that are due soon.

        A draft that cannot update the job with its unique key is added to `refused`. If `refused` is None, the Conflict is raised
        and nothing is stored.
        """
        caller, now_ms, seal = context.caller, context.now_ms, None
        if idem:
            seal = lambda answers: self._receipts.of(caller, idem, now_ms, view(answers))  # noqa: E731
        audit, upsert = self._audit_of(context, drafts), self._upsert_with(context, drafts, refused)
        answers = await self._jobs.add([draft.new for draft in drafts], upsert=upsert, audit=audit, seal=seal)
        await self._after_adding(drafts, answers, room, now_ms)
        return answers

    def _audit_of(self, context: CreationContext, drafts: Sequence[Draft]) -> AuditEntry | None:
        if not drafts:
            return None
        count = {"jobs": len(drafts)} if len(drafts) > 1 else {}
        return audit_entry(context.caller, "job.create", drafts[0].new.job.id, self._clock.now_ms(), count)

    def _upsert_with(self, context: CreationContext, drafts: Sequence[Draft], refused: Refusals | None) -> Upsert:
        spread = frozenset(draft.new.job.id for draft in drafts if draft.has_default_spread)
        return partial(self._upsert, now_ms=context.now_ms, spread_by_default=spread, refused=refused)

    def _upsert(
        self,
        before: Snapshot,
        new: Job,
        now_ms: int,
        spread_by_default: Collection[JobId],
        refused: Refusals | None,
    ) -> Change:
        update = self._drafter.for_existing(before.job, new, has_default_spread=new.id in spread_by_default)
        try:
            return edits.upsert(before, update, lambda a, b: a == b, now_ms, None)
        except Conflict as refusal:
            if refused is None:
                raise
            refused[new.id] = refusal
            return Change()

    async def _after_adding(
        self, drafts: Sequence[Draft], answers: Sequence[ChangeResult | None], room: QuotaReservation, now_ms: int
    ) -> None:
        new = [draft.new for draft, answer in zip(drafts, answers, strict=True) if answer is None]
        room.made = len(new)
        with_endpoint = sum(each.job.spec.target.endpoint is not None for each in new)
        self._on_created(len(new) - with_endpoint, with_endpoint)
        for answer in answers:
            if answer is not None:
                await self._sender.send(answer)
        await self._sender.send_new(new, now_ms)

    def _views_of(
        self,
        drafts: Sequence[Draft | NoondayError],
        answers: Sequence[ChangeResult | None],
        names: KnownNames,
        refused: Refusals,
    ) -> list[JobView | NoondayError]:
        stored = zip(valid_drafts(drafts), answers, strict=True)
        views = iter([refused.get(draft.new.job.id) or self._view_of(draft, answer, names) for draft, answer in stored])
        return [draft if isinstance(draft, NoondayError) else next(views) for draft in drafts]

    def _view_of(self, draft: Draft, answer: ChangeResult | None, names: KnownNames) -> JobView:
        job = draft.new.job if answer is None else answer.after.job
        warnings = (*draft.warnings, *names.warnings(job.id, job.spec.name))
        if answer is None:
            row = JobRow(draft.new.job, draft.new.fire, open=False)
            return self._presenter.job(row, warnings=warnings, payload=draft.payload)
        reason = edits.why_no_next_fire(answer.after)
        return self._presenter.job_after(answer, warnings=(*warnings, *([reason] if reason else [])))

    # -- change --------------------------------------------------------------------------------------------------------

    async def replace(
        self,
        caller: Caller,
        job_id: str,
        spec: JobSpec,
        *,
        if_version: int | None = None,
        idem: Idempotency | None = None,
        maker_of: str | None = None,
        present: JobSpec | None = None,
        keeps_time: bool = False,
        read_only: Mapping[str, Any] = MappingProxyType({}),
    ) -> JobView:
        """Give a job a new definition. `maker_of` is that of `create`.

        `present` is a definition that the job has had: its `runAt` may be in the past. With `keeps_time`, a one-shot whose time
        is not changed keeps it. `read_only` has the read-only members of the request, which change nothing.

        Raises VersionMismatch if the job is not at version `if_version`.
        """
        now_ms = self._clock.now_ms()
        definition = await self._drafter.define(caller, job_id, spec, now_ms, maker_of, present)
        names = await self._clashes.among(caller, [spec.name])
        warnings = [*definition.warnings, *names.warnings(job_id, spec.name)]
        ignored: list[str] = []

        def decide(before: Snapshot) -> Change:
            _check_replacement(before.job, spec, if_version)
            ignored[:] = self._presenter.read_only_warnings(before, read_only) if read_only else ()
            detail = {"version": before.job.revision + 1}
            audit = audit_entry(caller, "job.replace", job_id, self._clock.now_ms(), detail)
            return edits.replace(before, definition.spec, definition.payload, now_ms, audit, keeps_time=keeps_time)

        def view(applied: ChangeResult) -> JobView:
            return self._presenter.job_after(applied, warnings=(*warnings, *ignored))

        return await self._editor.edit(caller, job_id, decide, view, now_ms, idem)

    async def pause(
        self, caller: Caller, job_id: str, idem: Idempotency | None = None, *, until_ms: int | None = None
    ) -> JobView:
        """Pause a job: it does not fire until it is resumed, by a user or at `until_ms`.

        Raises NotFound, Conflict, and InvalidInput if `until_ms` is not in the future.
        """
        now_ms = self._clock.now_ms()
        if until_ms is not None:
            require_ahead(until_ms, "/until", now_ms)
        audit = audit_entry(caller, "job.pause", job_id, now_ms, {"until": text_of(until_ms)} if until_ms else {})

        def decide(before: Snapshot) -> Change:
            return edits.pause(before, now_ms, audit, until_ms)

        return await self._edit(caller, job_id, decide, now_ms, idem)

    async def resume(self, caller: Caller, job_id: str, idem: Idempotency | None = None) -> JobView:
        """Resume a paused or halted job. Raises NotFound, and Conflict."""
        now_ms = self._clock.now_ms()
        audit = audit_entry(caller, "job.resume", job_id, now_ms)
        return await self._edit(caller, job_id, lambda before: edits.resume(before, now_ms, audit), now_ms, idem)

    async def halt(self, caller: Caller, job_id: str, reason: str) -> JobView:
        """Pause a job for a reason that no user gave. The job shows the reason until a user resumes it."""
        now_ms = self._clock.now_ms()
        audit = audit_entry(caller, "job.halt", job_id, now_ms, {"reason": reason})
        return await self._edit(caller, job_id, lambda before: edits.halt(before, reason, now_ms, audit), now_ms)

    async def delete(self, caller: Caller, job_id: str, idem: Idempotency | None = None) -> JobView:
        """Cancel a job: it does not fire again. Raises NotFound."""
        now_ms = self._clock.now_ms()
        audit = audit_entry(caller, "job.cancel", job_id, now_ms)
        return await self._edit(caller, job_id, lambda before: edits.delete(before, now_ms, audit), now_ms, idem)

    async def trigger(
        self,
        caller: Caller,
        job_id: str,
        idem: Idempotency | None = None,
        *,
        request: RunRequest = PLAIN_RUN,
    ) -> ExecutionView:
        """Run a job now, in addition to its schedule. Raises NotFound, Conflict, and InvalidInput for a wrong payload."""
        now_ms = self._clock.now_ms()
        key = idem.key if idem else self._new_id()
        payload = None
        if request.payload is not UNSET:
            async with self._receipts.unless_answered(caller, idem):
                job = (await get_job_row(self._query_store, caller, job_id)).job
                triggers.refuse_payload_of_built_in(job)
                payload = await self._drafter.payload_of_run(caller, job, request.payload)
        detail = {name: True for name, is_given in (("payload", payload), ("force", request.force)) if is_given}
        audit = audit_entry(caller, "job.trigger", job_id, now_ms, detail)
        new = triggers.id_of_trigger(JobId(job_id), key, now_ms)

        def decide(before: Snapshot) -> Change:
            return triggers.trigger(before, key, now_ms, audit, payload=payload, force=request.force)

        def view(applied: ChangeResult) -> ExecutionView:
            return self._presenter.execution_after(applied, new)

        return await self._editor.edit(caller, job_id, decide, view, now_ms, idem, show=[new])

    async def _edit(
        self,
        caller: Caller,
        job_id: str,
        decide: Decide,
        now_ms: int,
        idem: Idempotency | None = None,
    ) -> JobView:
        return await self._editor.edit(caller, job_id, decide, self._presenter.job_after, now_ms, idem)


def _check_replacement(present: Job, spec: JobSpec, if_version: int | None) -> None:
    if if_version is not None and present.revision != if_version:
        raise VersionMismatch(
            f"the job is at version {present.revision}, not {if_version}: read it again", version=present.revision
        )
    if spec.unique_key != present.spec.unique_key:
        raise InvalidInput.of("/uniqueKey", "the unique key of a job cannot be changed", spec.unique_key)
