"""Queries of jobs, executions, occurrences, dead letters, pools, workers, audit and usage."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgspec

from noonday.intake.presenters import Presenter, usage_view
from noonday.intake.visits import Visits
from noonday.intake.waiting import UNCOUNTED_MS, Blocker, Waiter, Waiting, still_awaited, utc_text, why_paused
from noonday.model import cron
from noonday.model.caller import Caller
from noonday.model.errors import InvalidInput, NotFound
from noonday.model.execution import Execution, State
from noonday.model.filters import DeadFilter, DeadFilterQuery, JobFilter, PreviewRequest
from noonday.model.firing import Decision, Fire
from noonday.model.ids import ExecutionId, JobId, TenantId
from noonday.model.job import Concurrency, Job, JobState, JobType, instant_of, ms_of, rule_of, spread_ms
from noonday.model.pause import Pause
from noonday.model.recent import overview_of
from noonday.model.rows import JobRow, PoolRow, WorkerRow
from noonday.model.schedule import CronRule, IntervalRule, Occurrence, Rule, describe, local_text, zone
from noonday.model.view import (
    AuditPage,
    AuditView,
    DeadLetterPage,
    ExecutionPage,
    ExecutionView,
    HandlerView,
    JobPage,
    JobView,
    OccurrencePage,
    OccurrenceView,
    PauseList,
    PauseView,
    PoolView,
    Preview,
    PreviewTime,
    RunningView,
    TenantSettings,
    TenantView,
    UsageView,
    WorkerView,
)
from noonday.ports.aside import Aside, MayGoOn
from noonday.ports.clock import Clock
from noonday.ports.queries import QueryStore
from noonday.ports.settings import SettingsStore
from noonday.ports.workload import DUE_LOOKED_AT, Workload

T = TypeVar("T")
PAGE_BYTES = 4 * 1024 * 1024
"""Maximum size of the encrypted content of one page of a list. A single larger row is still returned."""
_YEAR_9999_MS = 253_370_764_800_000
"""Upper bound of previewed times: Python's dates end with the year 9999."""
_STATES = {"PENDING", "RUNNING", "SUCCEEDED", "CANCELLED", "EXPIRED", "DEAD"}


class JobQueries:
    """The read side of intake. Queries of one tenant see only rows of that tenant."""

    def __init__(
        self,
        *,
        query_store: QueryStore,
        settings_store: SettingsStore,
        workload: Workload,
        clock: Clock,
        presenter: Presenter,
        waiting: Waiting,
        aside: Aside,
        live: Callable[[], dict[str, Any]] = dict,
    ) -> None:
        """`aside` computes fire times off the event loop. `live` returns figures that only the running engine has."""
        self._aside = aside
        self._query_store = query_store
        self._settings_store = settings_store
        self._workload = workload
        self._clock = clock
        self._presenter = presenter
        self._waiting = waiting
        self._live = live
        self.visits = Visits(settings_store, clock)

    async def get_job(self, caller: Caller, job_id: str, *, executions: int = 10, summary: bool = False) -> JobView:
        row = await self._job_row(caller, job_id)
        latest = await self._query_store.list_executions(
            caller.tenant, row.job.id, state=None, after=None, limit=executions
        )
        return self._presenter.job(row, executions=latest, summary=summary)

    async def list_jobs(
        self,
        caller: Caller,
        *,
        state: str | None = None,
        pool: str | None = None,
        handler: str | None = None,
        type: str | None = None,
        tag: str | None = None,
        name: str | None = None,
        unique_key: str | None = None,
        cursor: str | None = None,
        limit: int = 50,
        summary: bool = False,
    ) -> JobPage:
        """List jobs. A page ends early if its payloads are large. With `summary` nothing is decrypted."""
        where = JobFilter(state, type, pool, handler, name, tag, unique_key)
        rows = await self._query_store.list_jobs(caller.tenant, where, cursor, limit + 1)
        shown = rows[:limit] if summary else _within_page(rows[:limit], lambda row: row.payload_bytes)
        if summary:
            views = tuple(self._presenter.job(row, payload=None) for row in shown)
        else:
            with_payload = [row.job.id for row in shown if row.payload_bytes]
            payloads = await self._query_store.payloads(caller.tenant, with_payload) if with_payload else {}
            views = tuple(self._presenter.job(_with_payload(row, payloads.get(row.job.id))) for row in shown)
        return JobPage(jobs=views, next=views[-1].job_id if len(rows) > len(shown) else None)

    async def get_execution(self, caller: Caller, execution_id: str, *, summary: bool = False) -> ExecutionView:
        row = await self.execution_row(caller, execution_id)
        job = await self._query_store.find_job(caller.tenant, row.job_id)
        spec = job.job.spec if job else None
        waiting_for = await self._waiting_for(row, spec.concurrency if spec else None)
        return self._presenter.execution(row, spec.name if spec else None, waiting_for, summary=summary)

    async def execution_row(self, caller: Caller, execution_id: str) -> Execution:
        row = await self._query_store.find_execution(caller.tenant, ExecutionId(execution_id))
        if row is None:
            raise NotFound(f"no execution {execution_id}", executionId=execution_id)
        return row

    async def list_executions(
        self,
        caller: Caller,
        job_id: str,
        *,
        state: str | None = None,
        cursor: str | None = None,
        limit: int = 50,
        summary: bool = False,
    ) -> ExecutionPage:
        """List executions of a job. A page ends early if results and progress are large. With `summary` nothing is decrypted."""
        if state is not None and state not in _STATES:
            raise InvalidInput.of("/state", f"unknown state {state!r}", state, allowed=sorted(_STATES))
        job = await self._job_row(caller, job_id)
        rows = await self._query_store.list_executions(
            caller.tenant, job.job.id, state=state, after=cursor, limit=limit + 1
        )
        shown = rows[:limit] if summary else _within_page(rows[:limit], _bytes_of)
        views = tuple(self._presenter.execution(row, job.job.spec.name, summary=summary) for row in shown)
        return ExecutionPage(executions=views, next=views[-1].execution_id if len(rows) > len(shown) else None)

    async def occurrences(
        self, caller: Caller, job_id: str, *, from_ms: int, to_ms: int, limit: int = 500
    ) -> OccurrencePage:
        """List all occurrences of a job between two instants: fired, decided against, due, or planned."""
        if to_ms < from_ms:
            raise InvalidInput.of("/to", "`to` is before `from`", to_ms)
        row = await self._job_row(caller, job_id)
        job = row.job
        fired = await self._query_store.executions_between(job.id, from_ms, to_ms, limit + 1)
        decided = await self._query_store.decisions_between(job.id, from_ms, to_ms, limit + 1)
        views = [_fired(job, e) for e in fired] + [_decided(job, d) for d in decided]
        to_come, is_least = await self._to_come(row, from_ms, to_ms, limit)
        views += to_come
        views.sort(key=lambda view: view.scheduled_at)
        return OccurrencePage(occurrences=tuple(views[:limit]), next=None, is_least=is_least)

    async def _to_come(self, row: JobRow, from_ms: int, to_ms: int, limit: int) -> tuple[list[OccurrenceView], bool]:
        """Return the due and planned occurrences from the fire row on, and whether there may be more of them."""
        job, fire = row.job, row.fire
        if fire is None or job.state is JobState.CANCELLED:
            return [], False
        rule = rule_of(job.spec, job.anchor_ms)
        spread, now_ms = spread_ms(job.spec, job.id), self._clock.now_ms()
        first = max(fire.nominal_ms, from_ms)
        most = limit if fire.runs_left is None else min(limit, fire.runs_left)
        if fire.due_ms is None and job.state is not JobState.PAUSED:
            return [], False
        times, is_least = await self._aside.run(lambda may: rule.take_while(first - 1, most, to_ms, may))
        is_due = job.state is not JobState.PAUSED and any(time + spread <= now_ms for time in times)
        blocker = await self._waiting.of(_waiter(job, fire)) if is_due else None
        views = []
        for time in times:
            if job.state is JobState.PAUSED:
                views.append(_view(job, "PAUSED" if time <= now_ms else "PLANNED", time, "the job is paused"))
            elif blocker and time + spread <= now_ms:
                views.append(_due(job, time, blocker))
            else:
                reason = "planned" if not spread else f"planned; starts {spread / 1000:g} s later (spread)"
                views.append(_view(job, "PLANNED", time, reason))
        return views, is_least

    async def _waiting_for(self, row: Execution, concurrency: Concurrency | None) -> str | None:
        if row.state is not State.PENDING:
            return None
        if row.buffered:
            return "an earlier open execution of the job (overlap)"
        if row.fired_ms is None:
            return await self._waiting_on_timeline(row, concurrency)
        pools = await self._workload.list_pools(UNCOUNTED_MS, row.pool)
        if not pools or not pools[0].workers:
            return f"pool {row.pool!r} has no workers"
        return f"a free slot in pool {row.pool!r}: {pools[0].running} of {pools[0].capacity} running"

    async def _waiting_on_timeline(self, row: Execution, concurrency: Concurrency | None) -> str:
        due_ms = row.waits_until_ms
        if due_ms is not None and due_ms <= self._clock.now_ms():
            awaited = still_awaited(concurrency, row.slots)
            waiter = Waiter(row.tenant, row.pool, row.job_id, (due_ms, row.id), awaited)
            return _blocker_text(await self._waiting.of(waiter))
        pause = await self._waiting.find_pause(row.tenant, row.pool)
        if pause:
            return pause
        if due_ms is None:
            return "its job is paused"
        if "HANDED_BACK" in row.transitions.rpartition("[0,")[2]:
            return f"a worker with handler {row.handler!r} in pool {row.pool!r}: no worker has this handler"
        when = utc_text(due_ms)
        return f"its next attempt at {when}" if row.attempt > 1 else f"its due time: {when}"

    async def preview(self, request: PreviewRequest) -> Preview:
        """Describe a schedule and list its next times, without creating a job."""
        rule, text = _preview_rule(request)
        from_ms = ms_of(request.from_)
        after_ms = self._clock.now_ms() if from_ms is None else from_ms
        occurrences, is_least = await self._aside.run(lambda may: _described(rule, after_ms, request.count, may))
        return Preview(
            description=text,
            timezone=request.timezone or ("UTC" if request.type is JobType.CRON else None),
            times=tuple(
                PreviewTime(utc=instant_of(each.at_ms), local=each.local, dst=each.dst) for each in occurrences
            ),
            is_least=is_least,
        )

    async def dead_letters(
        self, caller: Caller, where: DeadFilter, *, cursor: str | None = None, limit: int = 50
    ) -> DeadLetterPage:
        letters = await self._query_store.list_dead(caller.tenant, dead_query(where), cursor, limit + 1)
        views = tuple(
            self._presenter.dead_letter(
                letter.execution, letter.died_ms, letter.archived, letter.retried_as, letter.job_name
            )
            for letter in _within_page(letters[:limit], lambda letter: _bytes_of(letter.execution))
        )
        return DeadLetterPage(
            dead_letters=views, next=views[-1].execution.execution_id if len(letters) > len(views) else None
        )

    async def pools(self, caller: Caller, *, all_tenants: bool = False) -> list[PoolView]:
        pauses = await self._settings_store.pauses()
        rows = await self._workload.list_pools(self._clock.now_ms(), None, _tenant_of(caller, all_tenants))
        return [_pool(row, pauses) for row in rows]

    async def get_pool(self, caller: Caller, name: str, *, all_tenants: bool = False) -> PoolView:
        rows = await self._workload.list_pools(self._clock.now_ms(), name, _tenant_of(caller, all_tenants))
        if not rows:
            raise NotFound(f"no pool {name!r}", pool=name)
        return _pool(rows[0], await self._settings_store.pauses())

    async def workers(self, caller: Caller) -> list[WorkerView]:
        return [_worker(row, caller) for row in await self._workload.list_workers()]

    async def audit(
        self,
        caller: Caller,
        *,
        target: str | None = None,
        subject: str | None = None,
        cursor: str | None = None,
        limit: int = 50,
    ) -> AuditPage:
        after = _audit_cursor(cursor)
        rows = await self._settings_store.list_audit(
            caller.tenant, target=target, subject=subject, after=after, limit=limit + 1
        )
        views = tuple(
            AuditView(
                at=instant_of(entry.at_ms),
                subject=entry.subject,
                action=entry.action,
                target=entry.target,
                detail=entry.detail,
            )
            for _, entry in rows[:limit]
        )
        return AuditPage(entries=views, next=str(rows[limit - 1][0]) if len(rows) > limit else None)

    async def get_tenant(self, caller: Caller, tenant: str) -> TenantView:
        caller.require_for(tenant, "read")
        found = await self._settings_store.find_tenant(TenantId(tenant))
        settings, updated_ms = found or (TenantSettings(), None)
        return TenantView(tenant=tenant, settings=settings, updated_at=instant_of(updated_ms))

    async def usage(self, caller: Caller, tenant: str, from_day: int, to_day: int) -> UsageView:
        caller.require_for(tenant, "read")
        days = await self._workload.usage(TenantId(tenant), from_day, to_day)
        return usage_view(tenant, from_day, to_day, days)

    async def pauses(self, caller: Caller) -> PauseList:
        """List what is paused. Only operators see pauses of other tenants."""
        pauses = (
            PauseView(kind=pause.kind, name=pause.name, since=instant_of(pause.since_ms), by=pause.subject)
            for pause in await self._settings_store.pauses()
            if pause.kind != "TENANT" or pause.name == caller.tenant or caller.may("operator")
        )
        return PauseList(pauses=tuple(pauses))

    async def overview(self, caller: Caller, *, all_tenants: bool = False) -> dict[str, Any]:
        """Return figures of the caller's tenant, or of all tenants, which requires the scope operator.

        Rate and lateness are measured for the whole server only, so they are None for one tenant.
        """
        now_ms = self._clock.now_ms()
        counts = await self._workload.counts(now_ms, _tenant_of(caller, all_tenants))
        oldest = counts["oldest_due_ms"]
        figures = overview_of(await self._workload.figures(), now_ms) if all_tenants else _UNKNOWN_FOR_ONE_TENANT
        return {
            "due": counts["due"],
            "running": counts["running"],
            "queued": counts["queued"],
            "deadLetters": counts["dead"],
            "workers": counts["workers"],
            "oldestDueAgeMs": max(0, now_ms - oldest) if oldest else 0,
            "dueIsLeast": counts["due_looked_at"] >= DUE_LOOKED_AT,
            **figures,
            "tickAgeMs": None,
            **self._live(),
        }

    async def _job_row(self, caller: Caller, job_id: str) -> JobRow:
        row = await self._query_store.find_job(caller.tenant, JobId(job_id))
        if row is None:
            raise NotFound(f"no job {job_id}", jobId=job_id)
        return row


def _tenant_of(caller: Caller, all_tenants: bool) -> TenantId | None:
    """Return the tenant of the requested figures, or None for all tenants. Raises Forbidden."""
    if not all_tenants:
        return caller.tenant
    caller.require("operator")
    return None


_UNKNOWN_FOR_ONE_TENANT = {"ratePerSec": None, "latenessMs": {"p50": None, "p95": None, "p99": None}}


def _within_page(rows: Sequence[T], size_of: Callable[[T], int]) -> Sequence[T]:
    """Return the first rows that have at most PAGE_BYTES together, and at least one."""
    total = 0
    for number, row in enumerate(rows):
        total += size_of(row)
        if total > PAGE_BYTES and number:
            return rows[:number]
    return rows


def _bytes_of(row: Execution) -> int:
    return len(row.progress or b"") + len(row.result or b"") + len(row.failure or "")


def _with_payload(row: JobRow, payload: bytes | None) -> JobRow:
    return msgspec.structs.replace(row, job=msgspec.structs.replace(row.job, payload=payload))


def dead_query(where: DeadFilter) -> DeadFilterQuery:
    return DeadFilterQuery(
        where.job_id, where.pool, where.handler, ms_of(where.since), ms_of(where.until), where.archived
    )


def _local(job: Job, ms: int) -> str | None:
    return local_text(ms, job.spec.timezone or "UTC") if job.spec.type is JobType.CRON else None


def _view(job: Job, outcome: str, ms: int, reason: str) -> OccurrenceView:
    at = instant_of(ms)
    return OccurrenceView(outcome=outcome, scheduled_at=at, until=at, count=1, reason=reason, local=_local(job, ms))


def _due(job: Job, ms: int, blocker: Blocker) -> OccurrenceView:
    return msgspec.structs.replace(
        _view(job, "DUE", ms, blocker.reason),
        blocked_by=blocker.by,
        position=blocker.position,
        position_is_least=blocker.position_is_least,
        expected_at=instant_of(blocker.expected_ms),
    )


def _blocker_text(blocker: Blocker) -> str:
    least = "at least " if blocker.position_is_least else ""
    before = f"; {least}{blocker.position} before it" if blocker.position else ""
    return (
        blocker.reason
        + before
        + (f"; expected to start at {utc_text(blocker.expected_ms)}" if blocker.expected_ms else "")
    )


def _waiter(job: Job, fire: Fire) -> Waiter:
    due_ms = fire.nominal_ms if fire.due_ms is None else fire.due_ms
    return Waiter(job.tenant, job.spec.target.pool, job.id, (due_ms, job.id), job.spec.concurrency)


def _fired(job: Job, execution: Execution) -> OccurrenceView:
    at = instant_of(execution.nominal_ms)
    return OccurrenceView(
        outcome="FIRED",
        scheduled_at=at,
        until=at,
        count=1,
        reason=f"execution {execution.state.name}",
        execution_id=execution.id,
        state=execution.state.name,
        local=_local(job, execution.nominal_ms),
    )


def _decided(job: Job, decision: Decision) -> OccurrenceView:
    return OccurrenceView(
        outcome=decision.outcome,
        scheduled_at=instant_of(decision.from_ms),
        until=instant_of(decision.to_ms),
        count=decision.count,
        reason=decision.reason,
        local=_local(job, decision.from_ms),
    )


def _described(rule: Rule, after_ms: int, count: int, may_go_on: MayGoOn) -> tuple[list[Occurrence], bool]:
    times, is_least = rule.take_while(after_ms, count, _YEAR_9999_MS - 1, may_go_on)
    return [describe(time, rule) for time in times], is_least


def _preview_rule(request: PreviewRequest) -> tuple[Rule, str]:
    if request.type is JobType.CRON:
        if request.schedule is None:
            raise InvalidInput.of("/schedule", "a preview of type CRON needs schedule")
        cron.parse(request.schedule)
        timezone = request.timezone or "UTC"
        zone(timezone)
        rule = CronRule(request.schedule, timezone, request.dst.gap, request.dst.repeat)
        return rule, cron.explain(request.schedule)
    if request.type is JobType.INTERVAL:
        if request.every_sec is None or not 1 <= request.every_sec <= 10**9:
            raise InvalidInput.of(
                "/everySec", "a preview of type INTERVAL needs everySec from 1 to 1e9", request.every_sec
            )
        if not 0 <= request.phase_sec <= 10**9:
            raise InvalidInput.of("/phaseSec", "must be from 0 to 1e9", request.phase_sec)
        every = IntervalRule(round(request.every_sec * 1000), round(request.phase_sec * 1000))
        return every, f"Every {request.every_sec:g} seconds"
    raise InvalidInput.of("/type", "only schedules of type CRON and INTERVAL can be previewed", request.type.value)


def _audit_cursor(cursor: str | None) -> int | None:
    if cursor is None:
        return None
    if not (cursor.isascii() and cursor.isdigit() and len(cursor) < 19):
        raise InvalidInput.of("/cursor", "not a cursor of this list: use `next` of its previous page", cursor)
    return int(cursor)


def _pool(row: PoolRow, pauses: Sequence[Pause]) -> PoolView:
    note = why_paused(pauses, ("POOL", row.name))
    if note is None and not row.workers:
        note = f"no workers: {row.due} due entries wait on the timeline" if row.due else "no workers"
    return PoolView(
        name=row.name,
        settings=row.settings,
        handlers=tuple(
            HandlerView(
                name=info.name,
                schema=info.schema,
                retry_policy=info.retry_policy,
                timeout_sec=info.timeout_sec,
                workers=workers,
                doc=info.doc,
            )
            for info, workers in row.handlers
        ),
        workers=row.workers,
        capacity=row.capacity,
        queued=row.queued,
        running=row.running,
        due=row.due,
        note=note,
    )


def _worker(row: WorkerRow, caller: Caller) -> WorkerView:
    mine: Sequence[Execution] = [e for e in row.running if e.tenant == caller.tenant]
    own = {e.id for e in mine}
    is_operator = caller.may("operator")
    return WorkerView(
        worker_id=row.id,
        host=row.host if is_operator else None,
        pid=row.pid if is_operator else None,
        pools=row.concurrency,
        started_at=instant_of(row.started_ms),
        last_seen_at=instant_of(row.seen_ms),
        state=row.state,
        running=tuple(
            RunningView(
                execution_id=e.id,
                job_id=e.job_id,
                handler=e.handler,
                started_at=instant_of(e.started_ms or e.due_ms),
            )
            for e in mine
        ),
        stuck=row.stuck if is_operator else tuple(each for each in row.stuck if each in own),
    )
