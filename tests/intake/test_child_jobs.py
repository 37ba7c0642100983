"""The jobs that handlers enqueue: whether their attempt may settle, and their creation."""

from collections.abc import AsyncIterator

import msgspec
import pytest

from noonday.crypto.envelope import context_of
from noonday.crypto.keyring import Keyring
from noonday.intake.child_jobs import ROWS, ChildJobAdmission, ChildJobCreator
from noonday.intake.job_service import JobService
from noonday.intake.quotas import FRESH_FAR_FROM_FULL_SEC
from noonday.model.alert import AlertFilter, AlertKind
from noonday.model.child_job import child_of, encode_children
from noonday.model.errors import BadKey, StoreUnavailable
from noonday.model.execution import Outcome
from noonday.model.filters import JobFilter
from noonday.model.ids import PARTITIONS, TenantId
from noonday.model.job import JobSpec, Target
from noonday.model.message import Dispatch, HandlerInfo, Report
from noonday.model.retry import Backoff, RetryPolicy
from noonday.model.view import TenantSettings
from noonday.runtime.tracing import Tracing
from tests.intake.parts import ANN, Parts, parts_in_memory
from tests.support.factories import (
    HANDLER,
    HOUR,
    NOW_MS,
    POOL,
    SECOND,
    TENANT,
    audit,
    hello,
    instant,
    job_id,
    report,
    spec,
)

OTHER = TenantId("globex")
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
LATER = instant(NOW_MS + HOUR)
QUICK = RetryPolicy(max_attempts=3, backoff=Backoff.FIXED, initial_delay_ms=0)


class Rig:
    """An admission and a creator over parts in memory."""

    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        self.created: list[tuple[int, int]] = []
        self.service = JobService(
            jobs=parts.store.jobs,
            editor=parts.editor,
            sender=parts.sender,
            drafter=parts.drafter,
            quotas=parts.quotas,
            query_store=parts.store.query_store,
            receipts=parts.receipts,
            presenter=parts.presenter,
            clock=parts.clock,
            tracing=Tracing(None),
            new_id=job_id,
            on_created=lambda *counts: self.created.append(counts),
        )
        self.admission = ChildJobAdmission(parts.drafter, parts.quotas, parts.keyring, parts.clock)
        self.creator = self.new_creator()

    def new_creator(self, keyring: Keyring | None = None) -> ChildJobCreator:
        store = self.parts.store
        keyring = keyring or self.parts.keyring
        return ChildJobCreator(store.child_jobs, self.service, store.alerts, keyring, self.parts.clock)

    async def run(self, *specs: JobSpec, tenant: TenantId = TENANT) -> Report:
        """Return the report of a run that enqueued these jobs."""
        of = await self.parts.fire(await self.parts.add(spec(retry_policy=QUICK), tenant=tenant))
        return self.report(of, *specs, tenant=tenant)

    def report(self, of: Dispatch, *specs: JobSpec, tenant: TenantId = TENANT) -> Report:
        children = [child_of(of.execution_id, of.number, at, each, NOW_MS) for at, each in enumerate(specs)]
        sealed = self.parts.keyring.seal(encode_children(children), context_of(tenant, of.job_id))
        return report(of, tenant=tenant, job_id=of.job_id, children=sealed, result=b"result")

    async def settle(self, *specs: JobSpec, tenant: TenantId = TENANT) -> Report:
        made = await self.run(*specs, tenant=tenant)
        (admitted,) = await self.admission.admit([made])
        await self.parts.crank.settle(admitted)
        return admitted

    async def round(self) -> int:
        return await self.creator.run_once(self.parts.clock.now_ms())

    async def waiting_jobs(self, tenant: TenantId = TENANT) -> int:
        return await self.parts.store.query_store.jobs_waiting(tenant, 1_000)

    async def limit(self, most: int) -> None:
        await self.parts.store.settings_store.put_tenant(TENANT, TenantSettings(max_jobs=most), audit())
        self.parts.quotas.forget(TENANT)

    async def alerts(self) -> list[str]:
        found = await self.parts.store.alerts.list_alerts(TENANT, AlertFilter(), None, 10)
        return [f"{each.kind} {each.message}" for each in found]


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    async with parts_in_memory() as parts:
        await parts.crank.settle(signs=[hello("w-1", HandlerInfo(POOL, HANDLER), HandlerInfo(POOL, "typed", SCHEMA))])
        yield Rig(parts)


async def test_the_jobs_of_a_settled_attempt_are_created_due_and_readable(rig: Rig) -> None:
    await rig.settle(spec(payload={"n": 1}), spec(payload={"n": 2}, run_at=instant(NOW_MS + HOUR)))
    assert await rig.round() == 1
    assert await rig.round() == 0
    rows = await rig.parts.store.query_store.list_jobs(TENANT, JobFilter(), None, 10)
    sealed = await rig.parts.store.query_store.payloads(TENANT, [row.job.id for row in rows])
    opened = [rig.parts.presenter.open(text, TENANT, job) for job, text in sealed.items()]
    assert {"n": 1} in opened
    assert {"n": 2} in opened
    assert await rig.waiting_jobs() == 2
    assert rig.created == [(2, 0)]
    (due,) = await rig.parts.crank.due()
    claimed = await rig.parts.index.claim(NOW_MS, range(PARTITIONS), {POOL: 10}, 10)
    assert [entry.key for entry in claimed] == [due.key]


async def test_an_admitted_attempt_settles_as_it_was_reported(rig: Rig) -> None:
    made = await rig.run(spec())
    plain = msgspec.structs.replace(made, children=None)
    assert await rig.admission.admit([plain, made]) == [plain, msgspec.structs.replace(made, children_count=1)]


async def test_an_attempt_with_an_invalid_job_fails_and_is_not_retried(rig: Rig) -> None:
    admitted = await rig.settle(spec(), spec(target=Target(POOL, "typed"), payload={"n": "one"}))
    assert (admitted.outcome, admitted.result, admitted.children) == (Outcome.FAILED, None, None)
    assert admitted.failure is not None
    assert (admitted.failure.type, admitted.failure.retryable) == ("EnqueueRefused", False)
    assert admitted.failure.message.startswith("the jobs that this attempt enqueued were refused: the payload does not")
    assert await rig.round() == 0
    assert await rig.waiting_jobs() == 0


async def test_an_attempt_whose_jobs_exceed_the_quota_fails_and_is_retried(rig: Rig) -> None:
    await rig.limit(2)
    admitted = await rig.settle(spec(run_at=LATER), spec(run_at=LATER), spec(run_at=LATER))
    assert admitted.failure is not None
    assert (admitted.failure.type, admitted.failure.retryable) == ("EnqueueRefused", True)
    assert "2" in admitted.failure.message
    assert await rig.round() == 0


async def test_admitted_jobs_count_against_the_quota_before_they_are_created(rig: Rig) -> None:
    await rig.limit(3)
    runs = [await rig.run(spec(run_at=LATER), spec(run_at=LATER)) for _ in range(2)]
    first, second = await rig.admission.admit(runs)
    assert first.failure is None
    assert second.failure is not None
    await rig.parts.crank.settle(first, second)
    rig.parts.clock.advance(FRESH_FAR_FROM_FULL_SEC)
    (third,) = await rig.admission.admit([await rig.run(spec(run_at=LATER), spec(run_at=LATER))])
    assert third.failure is not None
    await rig.round()
    assert await rig.waiting_jobs() == 2


async def test_an_attempt_is_judged_again_if_the_store_fails_meanwhile(rig: Rig) -> None:
    made = await rig.run(spec(target=Target("unknown", "h")))

    async def fail() -> list[str]:
        raise StoreUnavailable("away")

    rig.parts.catalogue._settings_store.pool_names = fail  # type: ignore[method-assign]
    with pytest.raises(StoreUnavailable):
        await rig.admission.admit([made])


async def test_a_time_that_has_passed_since_the_job_was_enqueued_is_allowed(rig: Rig) -> None:
    made = await rig.run(spec(run_at=instant(NOW_MS + SECOND)))
    rig.parts.clock.advance(3_600)
    (admitted,) = await rig.admission.admit([made])
    assert admitted.failure is None
    await rig.parts.crank.settle(admitted)
    assert await rig.round() == 1
    assert await rig.waiting_jobs() == 1


async def test_a_crash_before_the_row_is_deleted_creates_nothing_twice(rig: Rig) -> None:
    admitted = await rig.settle(spec())
    (waiting,) = await rig.parts.store.child_jobs.waiting(TENANT, 10)
    assert await rig.round() == 1
    await rig.creator._create(waiting)
    assert await rig.waiting_jobs() == 1
    assert admitted.failure is None


async def test_a_job_that_is_refused_after_the_settlement_is_an_alert_and_the_others_are_created(rig: Rig) -> None:
    await rig.settle(spec(), spec(target=Target(POOL, "typed"), payload={"n": 1}))
    await rig.parts.crank.settle(signs=[hello("w-2", HandlerInfo(POOL, "typed", {"type": "string"}))])
    rig.parts.catalogue.forget()
    assert await rig.round() == 1
    assert await rig.waiting_jobs() == 1
    (alert,) = await rig.alerts()
    assert alert.startswith(f"{AlertKind.MISSED} 1 jobs that this execution enqueued were not created: the payload")


async def test_a_taken_unique_key_updates_its_job_and_a_refusal_of_it_is_an_alert(rig: Rig) -> None:
    await rig.service.create(ANN, spec(unique_key="waits", run_at=LATER, payload=1))
    fired = await rig.service.create(ANN, spec(unique_key="fired"))
    await rig.parts.crank.fire()
    assert fired.job_id
    await rig.settle(
        spec(unique_key="waits", run_at=LATER, payload=2), spec(unique_key="fired", run_at=instant(NOW_MS), payload=2)
    )
    assert await rig.round() == 1
    (alert,) = await rig.alerts()
    assert "has already fired" in alert
    assert await rig.waiting_jobs() == 1


async def test_tenants_take_turns(rig: Rig) -> None:
    for _ in range(ROWS + 1):
        await rig.settle(spec(run_at=LATER))
    await rig.settle(spec(run_at=LATER), tenant=OTHER)
    assert await rig.round() == ROWS + 1
    assert await rig.waiting_jobs(OTHER) == 1
    assert await rig.round() == 1
    assert await rig.waiting_jobs() == ROWS + 1


async def test_jobs_that_cannot_be_decrypted_wait_and_do_not_stop_those_of_others(rig: Rig) -> None:
    await rig.settle(spec())
    (waiting,) = await rig.parts.store.child_jobs.waiting(TENANT, 10)
    with pytest.raises(BadKey):
        await rig.new_creator(Keyring.generate()).run_once(NOW_MS)
    assert await rig.parts.store.child_jobs.waiting(TENANT, 10) == [waiting]
    assert await rig.round() == 1


async def test_a_child_job_keeps_the_trace_of_the_run_that_enqueued_it(rig: Rig) -> None:
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    made = await rig.run()
    child = child_of(made.execution_id, 1, 0, spec(run_at=LATER), NOW_MS, trace)
    sealed = rig.parts.keyring.seal(encode_children([child]), context_of(TENANT, made.job_id))
    await rig.parts.crank.settle(msgspec.structs.replace(made, children=sealed))
    await rig.round()
    rows = await rig.parts.store.query_store.list_jobs(TENANT, JobFilter(), None, 10)
    assert [row.job.trace for row in rows if row.job.id == child.job_id] == [trace]


async def test_the_audit_log_names_the_execution_that_enqueued(rig: Rig) -> None:
    admitted = await rig.settle(spec(), spec())
    await rig.round()
    entries = await rig.parts.store.settings_store.list_audit(TENANT, target=None, subject=None, after=None, limit=10)
    assert [(entry.subject, entry.action, entry.detail) for _, entry in entries] == [
        (f"execution {admitted.execution_id}", "job.create", {"jobs": 2})
    ]
