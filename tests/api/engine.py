"""A desk and a reading in memory: as much of the real ones as routing, errors and the contract need.

Jobs are checked by the real rules and kept in dicts; nothing ever fires.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, TypeVar

import msgspec

from noonday.intake.filters import DeadFilter, PreviewRequest
from noonday.intake.idempotency import Answered, Idempotency
from noonday.model import job as jobs
from noonday.model import view as views
from noonday.model.caller import Caller
from noonday.model.errors import (
    Conflict,
    Flaw,
    IdempotencyInProgress,
    IdempotencyMismatch,
    InvalidInput,
    NoondayError,
    NotFound,
    PayloadTooLarge,
    Unauthorized,
    VersionMismatch,
    nearest,
)
from noonday.model.ids import JobId, TenantId, discriminator, execution_id, new_job_id
from noonday.model.job import JobSpec, JobType, Target, instant_of
from noonday.model.view import ExecutionView, JobView, PoolSettings, TenantSettings

MAX_PAYLOAD = 256 * 1024
T = TypeVar("T")


class Tokens:
    """Knows a token by the scope it is named after."""

    async def authenticate(self, header: str | None) -> Caller:
        scope = (header or "").removeprefix("Bearer ")
        if scope not in ("read", "write", "admin"):
            raise Unauthorized("no valid token")
        return Caller(TenantId("acme"), "somebody", frozenset({scope}))


@dataclass
class Pulse:
    reasons: list[str] = field(default_factory=list)
    alive: bool = True

    def ready(self) -> list[str]:
        return self.reasons

    def live(self) -> bool:
        return self.alive

    def metrics(self) -> bytes:
        return b"noonday_due 0\n"


@dataclass
class Memory:
    """What desk and reading share."""

    now_ms: int
    jobs: dict[str, JobView] = field(default_factory=dict)
    executions: dict[str, ExecutionView] = field(default_factory=dict)
    pools: dict[str, PoolSettings] = field(default_factory=lambda: {"demo": PoolSettings()})
    tenants: dict[str, TenantSettings] = field(default_factory=dict)
    answers: dict[str, tuple[str, int, bytes] | None] = field(default_factory=dict)
    trouble: Exception | None = None
    """What every call ends with, if anything."""

    def job(self, job_id: str) -> JobView:
        return _get(self.jobs, job_id, "job")

    def execution(self, execution_id: str) -> ExecutionView:
        return _get(self.executions, execution_id, "execution")


def _get(things: dict[str, T], name: str, noun: str) -> T:
    if name not in things:
        raise NotFound(f"there is no {noun} {name}")
    return things[name]


class FakeDesk:
    def __init__(self, memory: Memory) -> None:
        self.memory = memory

    async def create(self, caller: Caller, spec: JobSpec, idem: Idempotency | None = None) -> JobView:
        return self._once(idem, lambda: self._store(spec, new_job_id(), 1))

    async def create_many(
        self,
        caller: Caller,
        specs: Sequence[JobSpec | NoondayError],
        *,
        atomic: bool = False,
        idem: Idempotency | None = None,
    ) -> list[JobView | NoondayError]:
        return self._once(idem, lambda: self._store_many(specs, atomic))

    async def replace(
        self,
        caller: Caller,
        job_id: str,
        spec: JobSpec,
        *,
        if_version: int | None = None,
        idem: Idempotency | None = None,
    ) -> JobView:
        version = self.memory.job(job_id).version
        if if_version not in (None, version):
            raise VersionMismatch(f"the job has version {version}", version=version)
        return self._once(idem, lambda: self._store(spec, JobId(job_id), version + 1))

    async def pause(self, caller: Caller, job_id: str, idem: Idempotency | None = None) -> JobView:
        return self._once(idem, lambda: self._set_state(job_id, "PAUSED"))

    async def resume(self, caller: Caller, job_id: str, idem: Idempotency | None = None) -> JobView:
        return self._once(idem, lambda: self._set_state(job_id, "ACTIVE"))

    async def delete(self, caller: Caller, job_id: str, idem: Idempotency | None = None) -> JobView:
        return self._once(idem, lambda: self._set_state(job_id, "CANCELLED"))

    async def trigger(self, caller: Caller, job_id: str, idem: Idempotency | None = None) -> ExecutionView:
        return self._once(idem, lambda: self._execute(self.memory.job(job_id), str(new_job_id())))

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
    ) -> views.BackfillView:
        self.memory.job(job_id)
        return views.BackfillView(
            backfill_id=backfill_id,
            job_id=job_id,
            from_=_at(from_ms),
            to=_at(to_ms),
            total=0,
            created=0,
            first=(),
            preview=preview,
        )

    async def cancel_execution(
        self, caller: Caller, execution_id: str, idem: Idempotency | None = None
    ) -> ExecutionView:
        found = self.memory.execution(execution_id)
        return self._once(idem, lambda: msgspec.structs.replace(found, cancel_requested="by somebody"))

    async def retry_dead(self, caller: Caller, execution_id: str, idem: Idempotency | None = None) -> ExecutionView:
        found = self.memory.execution(execution_id)
        return self._once(idem, lambda: self._execute(self.memory.job(found.job_id), str(new_job_id())))

    async def archive_dead(
        self, caller: Caller, execution_id: str, idem: Idempotency | None = None
    ) -> views.DeadLetterView:
        found = self.memory.execution(execution_id)
        return views.DeadLetterView(
            execution=found, died_at=_at(self.memory.now_ms), archived=True, retried_as=None
        )

    async def retry_dead_where(
        self, caller: Caller, chosen: DeadFilter, idem: Idempotency | None = None
    ) -> views.BulkView:
        return self._once(idem, lambda: views.BulkView(changed=0, more=False))

    async def archive_dead_where(
        self, caller: Caller, chosen: DeadFilter, idem: Idempotency | None = None
    ) -> views.BulkView:
        return self._once(idem, lambda: views.BulkView(changed=0, more=False))

    async def put_pool(
        self, caller: Caller, name: str, settings: PoolSettings, idem: Idempotency | None = None
    ) -> views.PoolView:
        self.memory.pools[name] = settings
        return self._once(idem, lambda: pool_view(name, settings))

    async def put_tenant(
        self, caller: Caller, tenant: str, settings: TenantSettings, idem: Idempotency | None = None
    ) -> views.TenantView:
        self.memory.tenants[tenant] = settings
        return views.TenantView(tenant=tenant, settings=settings, updated_at=_at(self.memory.now_ms))

    def _once(self, idem: Idempotency | None, change: Callable[[], T]) -> T:
        if self.memory.trouble:
            raise self.memory.trouble
        if idem is None:
            return change()
        if idem.key in self.memory.answers:
            raise _before(idem, self.memory.answers[idem.key])
        result = change()
        self.memory.answers[idem.key] = (idem.fingerprint, idem.status, idem.encode(result))
        return result

    def _store_many(self, specs: Sequence[JobSpec | NoondayError], atomic: bool) -> list[JobView | NoondayError]:
        flaws = [self._flaw_of(spec) for spec in specs]
        if atomic and any(flaws):
            return [flaw for flaw in flaws if flaw]
        return [flaw or self._store(spec, new_job_id(), 1) for spec, flaw in zip(specs, flaws, strict=True)]

    def _flaw_of(self, spec: JobSpec | NoondayError) -> NoondayError | None:
        if isinstance(spec, NoondayError):
            return spec
        try:
            self._check(spec)
        except NoondayError as flaw:
            return flaw
        return None

    def _store(self, spec: JobSpec, job_id: JobId, version: int) -> JobView:
        self._check(spec)
        view = JobView(
            **msgspec.structs.asdict(spec),
            job_id=job_id,
            tenant="acme",
            state="ACTIVE",
            version=version,
            created_at=_at(self.memory.now_ms),
            updated_at=_at(self.memory.now_ms),
            next_fire_at=None,
            next_fire_at_local=None,
        )
        self.memory.jobs[job_id] = view
        return view

    def _check(self, spec: JobSpec) -> None:
        jobs.check(spec, self.memory.now_ms)
        if spec.target.pool not in self.memory.pools:
            raise InvalidInput.of(
                "/target/pool",
                "there is no such pool",
                spec.target.pool,
                allowed=list(self.memory.pools),
                nearest=nearest(spec.target.pool, self.memory.pools),
            )
        if len(msgspec.json.encode(spec.payload)) > MAX_PAYLOAD:
            raise PayloadTooLarge("the payload is larger than 256 KB; pass a reference", limitBytes=MAX_PAYLOAD)

    def _set_state(self, job_id: str, state: str) -> JobView:
        view = self.memory.job(job_id)
        if view.state == "CANCELLED" and state != "CANCELLED":
            raise Conflict("the job is cancelled")
        self.memory.jobs[job_id] = msgspec.structs.replace(view, state=state, version=view.version + 1)
        return self.memory.jobs[job_id]

    def _execute(self, job: JobView, key: str) -> ExecutionView:
        made = execution_view(job, self.memory.now_ms, key)
        self.memory.executions[made.execution_id] = made
        return made


class FakeReading:
    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self.asked: dict[str, Any] = {}
        """The arguments of the last call that takes many."""

    async def get_job(self, caller: Caller, job_id: str, *, executions: int = 10) -> JobView:
        if self.memory.trouble:
            raise self.memory.trouble
        return self.memory.job(job_id)

    async def list_jobs(self, caller: Caller, **asked: Any) -> views.JobPage:
        self.asked = asked
        return views.JobPage(jobs=tuple(self.memory.jobs.values())[: asked["limit"]])

    async def get_execution(self, caller: Caller, execution_id: str) -> ExecutionView:
        return self.memory.execution(execution_id)

    async def list_executions(self, caller: Caller, job_id: str, **asked: Any) -> views.ExecutionPage:
        self.memory.job(job_id)
        return views.ExecutionPage(executions=())

    async def occurrences(self, caller: Caller, job_id: str, **asked: Any) -> views.OccurrencePage:
        self.asked = asked
        self.memory.job(job_id)
        return views.OccurrencePage(occurrences=())

    async def preview(self, wanted: PreviewRequest) -> views.Preview:
        spec = JobSpec(
            type=wanted.type,
            target=Target("demo", "demo.echo"),
            schedule=wanted.schedule,
            timezone=wanted.timezone,
            dst=wanted.dst,
            every_sec=wanted.every_sec,
            phase_sec=wanted.phase_sec,
        )
        if spec.one_shot:
            raise InvalidInput.of("/type", "only CRON and INTERVAL repeat", wanted.type.value)
        jobs.check(spec, self.memory.now_ms)
        return views.Preview(description="at times", timezone=wanted.timezone, times=())

    async def dead_letters(self, caller: Caller, chosen: DeadFilter, **asked: Any) -> views.DeadLetterPage:
        return views.DeadLetterPage(dead_letters=())

    async def pools(self, caller: Caller) -> list[views.PoolView]:
        return [pool_view(name, settings) for name, settings in self.memory.pools.items()]

    async def get_pool(self, caller: Caller, name: str) -> views.PoolView:
        return pool_view(name, _get(self.memory.pools, name, "pool"))

    async def workers(self, caller: Caller) -> list[views.WorkerView]:
        return []

    async def audit(self, caller: Caller, **asked: Any) -> views.AuditPage:
        return views.AuditPage(entries=())

    async def get_tenant(self, caller: Caller, tenant: str) -> views.TenantView:
        return views.TenantView(
            tenant=tenant, settings=_get(self.memory.tenants, tenant, "tenant"), updated_at=None
        )

    async def overview(self, caller: Caller) -> dict[str, Any]:
        return {
            "ratePerSec": 0.0,
            "latenessMs": {"p50": None, "p95": None, "p99": None},
            "due": 0,
            "running": 0,
            "queued": 0,
            "deadLetters": 0,
            "workers": 0,
            "oldestDueAgeMs": None,
            "tickAgeMs": 4,
        }


def _before(idem: Idempotency, kept: tuple[str, int, bytes] | None) -> NoondayError:
    if kept is None:
        return IdempotencyInProgress("the first request is still being answered")
    fingerprint, status, body = kept
    if fingerprint != idem.fingerprint:
        return IdempotencyMismatch("this key was used for a different request")
    return Answered(status, body)


def pool_view(name: str, settings: PoolSettings) -> views.PoolView:
    return views.PoolView(
        name=name, settings=settings, handlers=(), workers=0, capacity=0, queued=0, running=0, due=0
    )


def execution_view(job: JobView, now_ms: int, key: str) -> ExecutionView:
    return ExecutionView(
        execution_id=execution_id(JobId(job.job_id), now_ms, discriminator("trigger", key)),
        job_id=job.job_id,
        job_name=job.name,
        state="PENDING",
        attempt=1,
        dispatch=1,
        cause="TRIGGER",
        pool=job.target.pool,
        handler=job.target.handler,
        scheduled_at=_at(now_ms),
        due_at=_at(now_ms),
        next_attempt_at=None,
        started_at=None,
        finished_at=None,
        worker_id=None,
        error=None,
        progress=None,
        result=None,
        trace_id=None,
        logs_url=None,
        cancel_requested=None,
        retry_of=None,
        waiting_for=None,
        version=job.version,
    )


def _at(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)
