"""Makes the jobs that send notices."""

from collections.abc import Awaitable, Callable

import msgspec

from noonday.crypto.envelope import context_of
from noonday.crypto.keyring import Keyring
from noonday.intake.desk import Desk
from noonday.intake.edits import first_fire
from noonday.model.caller import Caller
from noonday.model.firing import fire_entry
from noonday.model.ids import JobId, TenantId, new_job_id, partition_of
from noonday.model.job import Job, JobSpec, JobState, anchor_of
from noonday.model.pool import NOTICES_POOL
from noonday.model.view import PoolSettings
from noonday.ports.archive import Archive
from noonday.ports.clock import Clock
from noonday.ports.hot_index import HotIndex
from noonday.ports.jobs import AuditEntry, Change, Jobs, NewJob, Receipt, Snapshot

OURSELVES = "noonday"
_encode = msgspec.json.Encoder().encode


class Post:
    """Stores a job as the desk does, but asks for no quota: whoever has too many jobs has to be told all the same."""

    def __init__(
        self,
        *,
        jobs: Jobs,
        archive: Archive,
        index: HotIndex,
        desk: Desk,
        keyring: Keyring,
        clock: Clock,
        make_first_secret: Callable[[TenantId], Awaitable[None]],
        new_id: Callable[[], JobId] = new_job_id,
    ) -> None:
        self._jobs = jobs
        self._archive = archive
        self._index = index
        self._desk = desk
        self._keyring = keyring
        self._clock = clock
        self._make_first_secret = make_first_secret
        self._new_id = new_id
        self._has_pool = False

    async def post(
        self,
        tenant: TenantId,
        spec: JobSpec,
        audit: AuditEntry | None = None,
        seal: Callable[[JobId], Receipt] | None = None,
    ) -> JobId:
        """Make the job, due at once; if there is one of its unique key, answer that one. What `seal` makes of the job's id is
        kept with it."""
        await self._make_pool(tenant)
        if spec.target.endpoint is not None:
            await self._make_first_secret(tenant)
        now_ms = self._clock.now_ms()
        job = self._job(tenant, spec, now_ms)
        new = NewJob(job, first_fire(job, now_ms))
        kept = None if seal is None else (lambda answers: seal(answers[0].after.job.id if answers[0] else job.id))
        (answer,) = await self._jobs.add([new], upsert=_leave, audit=audit, seal=kept)
        if answer is not None:
            return answer.after.job.id
        assert new.fire is not None
        await self._index.hint([fire_entry(job, new.fire.nominal_ms, partition_of(job.id))])
        self._desk.on_placed()
        return job.id

    def _job(self, tenant: TenantId, spec: JobSpec, now_ms: int) -> Job:
        name = self._new_id()
        return Job(
            id=name,
            tenant=tenant,
            revision=1,
            state=JobState.ACTIVE,
            spec=msgspec.structs.replace(spec, payload=None),
            anchor_ms=anchor_of(spec, now_ms),
            payload=self._keyring.seal(_encode(spec.payload), context_of(tenant, name)),
            created_ms=now_ms,
            updated_ms=now_ms,
        )

    async def _make_pool(self, tenant: TenantId) -> None:
        """Notices wait for a worker if there is none yet."""
        if not self._has_pool and NOTICES_POOL not in await self._archive.pool_names():
            caller = Caller(tenant, OURSELVES, frozenset())
            await self._desk.put_pool(caller, NOTICES_POOL, PoolSettings())
        self._has_pool = True


def _leave(before: Snapshot, wanted: Job) -> Change:
    return Change()
