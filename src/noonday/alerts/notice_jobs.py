"""Creation of the jobs that send notices."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import msgspec

from noonday.crypto.envelope import context_of
from noonday.crypto.keyring import Keyring
from noonday.intake.change_sender import ChangeSender
from noonday.intake.edits import first_fire
from noonday.intake.pool_service import PoolService
from noonday.model.audit import AuditEntry
from noonday.model.caller import Caller
from noonday.model.change import Change, NewJob
from noonday.model.ids import JobId, TenantId, new_job_id
from noonday.model.job import Job, JobSpec, JobState, anchor_of
from noonday.model.pool import NOTICES_POOL
from noonday.model.receipt import Receipt
from noonday.model.snapshot import Snapshot
from noonday.model.view import PoolSettings
from noonday.ports.clock import Clock
from noonday.ports.jobs import Jobs
from noonday.ports.settings import SettingsStore

SYSTEM_SUBJECT = "noonday"
_encode = msgspec.json.Encoder().encode


@dataclass(eq=False, kw_only=True)
class NoticeJobs:
    """Creates notice jobs as the job service does, but without a quota: a tenant over its quota still gets its notices."""

    jobs: Jobs
    settings_store: SettingsStore
    sender: ChangeSender
    pools: PoolService
    keyring: Keyring
    clock: Clock
    make_first_secret: Callable[[TenantId], Awaitable[None]]
    new_id: Callable[[], JobId] = new_job_id
    _has_pool: bool = False

    async def post(
        self,
        tenant: TenantId,
        spec: JobSpec,
        audit: AuditEntry | None = None,
        seal: Callable[[JobId], Receipt] | None = None,
    ) -> JobId:
        """Create the job, due at once, and return its id; if its unique key is taken, return that job's id instead.

        `seal` builds the idempotency receipt from the id. It is stored in the same transaction.
        """
        await self._make_pool(tenant)
        if spec.target.endpoint is not None:
            await self.make_first_secret(tenant)
        now_ms = self.clock.now_ms()
        job = self._job(tenant, spec, now_ms)
        new = NewJob(job, first_fire(job, now_ms))
        receipt = None if seal is None else (lambda found: seal(found[0].after.job.id if found[0] else job.id))
        (existing,) = await self.jobs.add([new], upsert=_keep_existing, audit=audit, seal=receipt)
        if existing is not None:
            return existing.after.job.id
        await self.sender.send_new([new], now_ms)
        return job.id

    def _job(self, tenant: TenantId, spec: JobSpec, now_ms: int) -> Job:
        job_id = self.new_id()
        return Job(
            id=job_id,
            tenant=tenant,
            revision=1,
            state=JobState.ACTIVE,
            spec=msgspec.structs.replace(spec, payload=None),
            anchor_ms=anchor_of(spec, now_ms),
            payload=self.keyring.seal(_encode(spec.payload), context_of(tenant, job_id)),
            created_ms=now_ms,
            updated_ms=now_ms,
        )

    async def _make_pool(self, tenant: TenantId) -> None:
        """Create the pool if it is missing, so that notices can wait there until a worker starts."""
        if not self._has_pool and NOTICES_POOL not in await self.settings_store.pool_names():
            caller = Caller(tenant, SYSTEM_SUBJECT, frozenset())
            await self.pools.put(caller, NOTICES_POOL, PoolSettings())
        self._has_pool = True


def _keep_existing(before: Snapshot, wanted: Job) -> Change:
    return Change()
