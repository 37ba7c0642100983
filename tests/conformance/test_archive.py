import msgspec
import pytest

from noonday.model.audit import EVERY_TENANT, AuditEntry
from noonday.model.change import Change, NewExecution
from noonday.model.execution import Cause, Outcome, State
from noonday.model.filters import DeadFilterQuery, JobFilter
from noonday.model.firing import Decided, Decision, Fire
from noonday.model.ids import ExecutionId, JobId, TenantId, WorkerId, execution_id
from noonday.model.job import Concurrency, Job, JobSpec, JobState, JobType, Target
from noonday.model.message import Bye, Dispatch, HandlerInfo
from noonday.model.pause import Pause
from noonday.model.retry import RetryPolicy
from noonday.model.rows import Ahead
from noonday.model.view import PoolSettings, TenantSettings
from noonday.ports.archive import Archive
from tests.support.crank import Crank
from tests.support.factories import (
    DAY,
    HANDLER,
    HOUR,
    MINUTE,
    NOW_MS,
    POOL,
    SECOND,
    TENANT,
    WORKER,
    audit,
    every,
    failure,
    hello,
    instant,
    job,
    report,
    spec,
)

OTHER = TenantId("other")
NO_RETRY = RetryPolicy(max_attempts=1)
EVERYTHING = JobFilter()


async def ids_of(archive: Archive, where: JobFilter, tenant: TenantId = TENANT) -> list[JobId]:
    return [row.job.id for row in await archive.list_jobs(tenant, where, None, 100)]


async def end(crank: Crank, one: Job, outcome: Outcome = Outcome.SUCCEEDED) -> Dispatch:
    """A job that is added, fires and ends."""
    await crank.add(one)
    dispatch = await crank.fire_one()
    await crank.settle(report(dispatch, outcome, failure=failure()))
    return dispatch


# Jobs


async def test_a_job_is_found_by_its_own_tenant_alone(crank: Crank, archive: Archive) -> None:
    one = job(every())
    await crank.add(one)
    row = await archive.find_job(TENANT, one.id)
    assert row is not None
    assert (row.job, row.fire, row.open) == (one, Fire(NOW_MS, NOW_MS), False)
    assert await archive.find_job(OTHER, one.id) is None
    await crank.fire()
    row = await archive.find_job(TENANT, one.id)
    assert row is not None
    assert (row.fire, row.open) == (Fire(NOW_MS + MINUTE, NOW_MS + MINUTE), True)


async def test_jobs_are_listed_newest_first_and_in_pages(crank: Crank, archive: Archive) -> None:
    jobs = [job() for _ in range(5)]
    await crank.add(*jobs, job(tenant=OTHER))
    newest_first = [one.id for one in reversed(jobs)]
    assert await ids_of(archive, EVERYTHING) == newest_first
    paged: list[JobId] = []
    while page := await archive.list_jobs(TENANT, EVERYTHING, paged[-1] if paged else None, 2):
        paged += [row.job.id for row in page]
    assert paged == newest_first


@pytest.mark.parametrize(
    ("where", "said"),
    [
        (JobFilter(type="INTERVAL"), every()),
        (JobFilter(pool="mail"), spec(target=Target("mail", HANDLER))),
        (JobFilter(handler="send"), spec(target=Target(POOL, "send"))),
        (JobFilter(name="nightly"), spec(name="nightly")),
        (JobFilter(tag="red"), spec(tags=("blue", "red"))),
        (JobFilter(unique_key="k"), spec(unique_key="k")),
        (
            JobFilter(type="CRON", pool="mail", name="n"),
            spec(type=JobType.CRON, schedule="0 0 * * *", name="n", target=Target("mail", "x")),
        ),
    ],
    ids=["type", "pool", "handler", "name", "tag", "unique key", "several"],
)
async def test_jobs_are_filtered(crank: Crank, archive: Archive, where: JobFilter, said: JobSpec) -> None:
    wanted = job(said)
    await crank.add(job(spec(tags=("blue",), name="other", unique_key="other")), wanted, job())
    assert await ids_of(archive, where) == [wanted.id]


async def test_jobs_are_filtered_by_the_state_people_see(crank: Crank, archive: Archive) -> None:
    done = job()
    await end(crank, done)
    running, active, paused, cancelled = job(), job(every()), job(every()), job(every())
    await crank.add(running)
    await crank.fire()
    await crank.add(active, paused, cancelled)
    off = Fire(NOW_MS, None)
    await crank.change(paused, Change(job=msgspec.structs.replace(paused, state=JobState.PAUSED), fire=off))
    await crank.change(cancelled, Change(job=msgspec.structs.replace(cancelled, state=JobState.CANCELLED), fire=off))
    assert await ids_of(archive, JobFilter(state="COMPLETED")) == [done.id]
    assert await ids_of(archive, JobFilter(state="ACTIVE")) == [active.id, running.id]
    assert await ids_of(archive, JobFilter(state="PAUSED")) == [paused.id]
    assert await ids_of(archive, JobFilter(state="CANCELLED")) == [cancelled.id]


async def test_declared_jobs_are_the_live_ones_whose_key_has_the_prefix(crank: Crank, archive: Archive) -> None:
    keys = ["app:a", "app:b", "apq:", "ap", "app:é", "app:gone"]
    jobs = {key: job(spec(unique_key=key)) for key in keys}
    await crank.add(*jobs.values())
    await crank.add(job(spec(unique_key="app:a"), tenant=OTHER))
    gone = jobs.pop("app:gone")
    await crank.change(gone, Change(job=msgspec.structs.replace(gone, state=JobState.CANCELLED)))
    found = await archive.declared_keys(TENANT, "app:")
    assert sorted(found) == sorted((key, jobs[key].id) for key in ("app:a", "app:b", "app:é"))


# Executions


async def test_an_execution_is_found_by_its_own_tenant_alone(crank: Crank, archive: Archive) -> None:
    dispatch = await end(crank, job())
    found = await archive.find_execution(TENANT, dispatch.execution_id)
    assert found is not None
    assert found.state is State.SUCCEEDED
    assert await archive.find_execution(OTHER, dispatch.execution_id) is None
    assert await archive.find_execution(TENANT, ExecutionId("no such execution")) is None


async def test_executions_are_listed_newest_first_in_pages_and_by_state(crank: Crank, archive: Archive) -> None:
    one = job(every())
    await crank.add(one, job(every()))
    made = [execution_id(one.id, NOW_MS + at * MINUTE) for at in range(4)]
    for at in range(4):
        (dispatch,) = [d for d in (await crank.fire(at_ms=NOW_MS + at * MINUTE)).dispatches if d.job_id == one.id]
        if at % 2:
            await crank.settle(report(dispatch))

    async def listed(state: str | None = None, after: str | None = None, limit: int = 100) -> list[ExecutionId]:
        found = await archive.list_executions(TENANT, one.id, state=state, after=after, limit=limit)
        return [each.id for each in found]

    assert await listed() == made[::-1]
    assert await listed(limit=3) == made[:0:-1]
    assert await listed(after=made[1]) == [made[0]]
    assert await listed("SUCCEEDED") == [made[3], made[1]]
    assert await listed("DEAD") == []
    assert await archive.list_executions(OTHER, one.id, state=None, after=None, limit=10) == []


async def test_scheduled_executions_are_found_by_nominal_time(crank: Crank, archive: Archive) -> None:
    one = job(every())
    await crank.add(one)
    for at in range(5):
        await crank.fire(at_ms=NOW_MS + at * MINUTE)
    by_hand = NewExecution(execution_id(one.id, NOW_MS + MINUTE, "trigger:1"), NOW_MS + MINUTE, NOW_MS, Cause.TRIGGER)
    await crank.change(one, Change(executions=(by_hand,)))

    async def between(first: int, last: int, limit: int = 10) -> list[int]:
        found = await archive.executions_between(one.id, first, last, limit)
        return [(each.nominal_ms - NOW_MS) // MINUTE for each in found]

    assert await between(NOW_MS + MINUTE, NOW_MS + 3 * MINUTE) == [1, 2, 3]
    assert await between(NOW_MS + MINUTE + 1, NOW_MS + 3 * MINUTE - 1) == [2]
    assert await between(0, 2**47, 2) == [0, 1]
    assert await archive.executions_between(job().id, 0, 2**47, 10) == []


async def test_decisions_are_found_if_they_touch_an_interval(crank: Crank, archive: Archive) -> None:
    one = job(every())
    await crank.add(one)
    made = [
        Decision(one.id, NOW_MS + at * HOUR, NOW_MS + at * HOUR + MINUTE, 2, Decided.MISSED, f"reason {at}")
        for at in range(3)
    ]
    await crank.change(one, Change(decisions=tuple(reversed(made))))
    assert await archive.decisions_between(one.id, 0, 2**60, 10) == made
    assert await archive.decisions_between(one.id, NOW_MS + MINUTE, NOW_MS + HOUR, 10) == made[:2]
    assert await archive.decisions_between(one.id, NOW_MS + MINUTE + 1, NOW_MS + HOUR - 1, 10) == []
    assert await archive.decisions_between(one.id, 0, 2**60, 1) == made[:1]
    assert await archive.decisions_between(job().id, 0, 2**60, 10) == []


async def test_the_payload_of_a_revision_is_its_tenants_alone(crank: Crank, archive: Archive) -> None:
    one = job(payload=b"sealed")
    await crank.add(one)
    assert await archive.payload_of(TENANT, one.id, 1) == b"sealed"
    assert await archive.payload_of(OTHER, one.id, 1) is None
    assert await archive.payload_of(TENANT, job().id, 1) is None


# Dead letters


async def test_dead_letters_are_listed_newest_first_and_in_pages(crank: Crank, archive: Archive) -> None:
    dead = []
    for at in range(3):
        crank.now_ms = NOW_MS + at * MINUTE
        dead.append(await end(crank, job(spec(retry_policy=NO_RETRY), now_ms=crank.now_ms), Outcome.FAILED))
    listed = await archive.list_dead(TENANT, DeadFilterQuery(), None, 10)
    assert [letter.execution.id for letter in listed] == [d.execution_id for d in reversed(dead)]
    assert [letter.died_ms for letter in listed] == [NOW_MS + at * MINUTE + SECOND for at in (2, 1, 0)]
    assert listed[0].execution == await crank.look(dead[2])
    following = await archive.list_dead(TENANT, DeadFilterQuery(), dead[1].execution_id, 10)
    assert [letter.execution.id for letter in following] == [dead[0].execution_id]
    assert await archive.list_dead(OTHER, DeadFilterQuery(), None, 10) == []


async def test_dead_letters_are_filtered(crank: Crank, archive: Archive) -> None:
    first = await end(crank, job(spec(retry_policy=NO_RETRY)), Outcome.FAILED)
    crank.now_ms = NOW_MS + HOUR
    mail = spec(retry_policy=NO_RETRY, target=Target("mail", "send"))
    second = await end(crank, job(mail, now_ms=crank.now_ms), Outcome.FAILED)
    died = crank.now_ms
    for where, expected in [
        (DeadFilterQuery(job_id=first.job_id), [first]),
        (DeadFilterQuery(pool="mail"), [second]),
        (DeadFilterQuery(handler=HANDLER), [first]),
        (DeadFilterQuery(since_ms=died), [second]),
        (DeadFilterQuery(until_ms=died), [first]),
        (DeadFilterQuery(pool="mail", handler=HANDLER), []),
    ]:
        listed = await archive.list_dead(TENANT, where, None, 10)
        assert [letter.execution.id for letter in listed] == [d.execution_id for d in expected], where


async def test_retried_letters_are_not_listed_and_archived_ones_only_on_demand(crank: Crank, archive: Archive) -> None:
    jobs = [job(spec(retry_policy=NO_RETRY)) for _ in range(3)]
    left, archived, retried = [await end(crank, one, Outcome.FAILED) for one in jobs]
    await crank.change(jobs[1], Change(dead=((archived.execution_id, None),)))
    await crank.change(jobs[2], Change(dead=((retried.execution_id, ExecutionId(left.execution_id)),)))

    async def listed(*, archived: bool) -> list[str]:
        found = await archive.list_dead(TENANT, DeadFilterQuery(archived=archived), None, 10)
        return [letter.execution.id for letter in found]

    assert await listed(archived=False) == [left.execution_id]
    assert await listed(archived=True) == [archived.execution_id]


async def test_a_dead_letter_is_found_by_its_own_tenant_alone(crank: Crank, archive: Archive) -> None:
    dead = await end(crank, job(spec(retry_policy=NO_RETRY)), Outcome.FAILED)
    alive = await end(crank, job(now_ms=crank.now_ms))
    assert await archive.find_dead(TENANT, dead.execution_id) == (NOW_MS + SECOND, False, None)
    assert await archive.find_dead(OTHER, dead.execution_id) is None
    assert await archive.find_dead(TENANT, alive.execution_id) is None


# Pools and workers


@pytest.mark.also_threaded
async def test_a_pool_shows_its_handlers_workers_and_work(crank: Crank, archive: Archive) -> None:
    load, copy = HandlerInfo(POOL, HANDLER), HandlerInfo(POOL, "copy")
    await crank.settle(
        signs=[
            hello("w-1", load, copy, concurrency={POOL: 4}),
            hello("w-2", load, concurrency={POOL: 2, "mail": 1}),
            hello("w-3", load, concurrency={POOL: 8}),
            Bye(WorkerId("w-3"), NOW_MS),
        ]
    )
    await crank.add(job(), job(), job())
    running, _, ended = (await crank.fire()).dispatches
    await crank.settle(report(running, Outcome.STARTED), report(ended))
    await crank.add(job(), job(now_ms=NOW_MS + 1))
    etl, mail = sorted(await archive.list_pools(NOW_MS), key=lambda pool: pool.name)
    assert (etl.name, etl.workers, etl.capacity) == (POOL, 2, 6)
    assert (etl.queued, etl.running, etl.due) == (1, 1, 1)
    assert sorted(etl.handlers, key=lambda pair: pair[0].name) == [(copy, 1), (load, 2)]
    assert (mail.workers, mail.capacity, mail.queued, mail.running, mail.due) == (1, 1, 0, 0, 0)
    assert await archive.list_pools(NOW_MS, "mail") == [mail]
    assert await archive.list_pools(NOW_MS, POOL, TENANT) == [etl]
    (of_other,) = await archive.list_pools(NOW_MS, POOL, OTHER)
    assert (of_other.queued, of_other.running, of_other.due, of_other.capacity) == (0, 0, 0, 6)
    assert await archive.list_pools(NOW_MS, "unknown") == []


async def test_a_pool_stays_with_what_was_set_for_it(crank: Crank, archive: Archive) -> None:
    settings = PoolSettings(retry_policy=RetryPolicy(max_attempts=7), timeout_sec=30, description="Loads.")
    await archive.put_pool(POOL, PoolSettings(), audit("pool.put"))
    await archive.put_pool(POOL, settings, audit("pool.put", NOW_MS + 1))
    await crank.settle(signs=[hello("w-1"), Bye(WORKER, NOW_MS)])
    (pool,) = await archive.list_pools(NOW_MS)
    assert (pool.settings, pool.workers) == (settings, 0)
    assert await archive.pool_names() == [POOL]
    assert len(await archive.list_audit(TENANT, target=None, subject=None, after=None, limit=10)) == 2


async def test_the_newest_worker_says_what_a_handler_is(crank: Crank, archive: Archive) -> None:
    assert await archive.find_handler(POOL, HANDLER) is None
    await crank.settle(signs=[hello("w-1", HandlerInfo(POOL, HANDLER, doc="old"))])
    newer = HandlerInfo(POOL, HANDLER, {"type": "object"}, doc="new")
    await crank.settle(signs=[hello("w-2", newer)])
    assert await archive.find_handler(POOL, HANDLER) == newer
    assert await archive.find_handler("mail", HANDLER) is None


async def test_a_worker_shows_what_it_runs(crank: Crank, archive: Archive) -> None:
    await crank.add(job(), job())
    mine, _ = (await crank.fire()).dispatches
    await crank.settle(report(mine, Outcome.STARTED), signs=[hello(WORKER), hello("w-2", at_ms=NOW_MS + 1)])
    newest, oldest = await archive.list_workers()
    assert (newest.id, newest.running) == ("w-2", ())
    assert [(each.id, each.started_ms) for each in oldest.running] == [(mine.execution_id, NOW_MS)]


# Tenants, audit, totals


async def test_a_tenants_settings_are_kept_with_the_time_they_were_set(archive: Archive) -> None:
    assert await archive.find_tenant(TENANT) is None
    await archive.put_tenant(TENANT, TenantSettings(weight=2), audit("tenant.put"))
    settings = TenantSettings(weight=3, rate_per_sec=1.5, max_jobs=10)
    await archive.put_tenant(TENANT, settings, audit("tenant.put", NOW_MS + 1))
    assert await archive.find_tenant(TENANT) == (settings, NOW_MS + 1)
    assert len(await archive.list_audit(TENANT, target=None, subject=None, after=None, limit=10)) == 2


async def test_settings_are_found_in_the_order_in_which_they_were_put(archive: Archive) -> None:
    first, second = TenantSettings(weight=2), TenantSettings(weight=3)
    await archive.put_tenant(TENANT, first, audit("tenant.put", NOW_MS))
    await archive.put_tenant(OTHER, first, audit("tenant.put", NOW_MS + 5))
    rows = await archive.tenants_after(0)
    assert [(tenant, settings) for tenant, settings, _ in rows] == [(TENANT, first), (OTHER, first)]
    await archive.put_tenant(TENANT, second, audit("tenant.put", NOW_MS + 6))
    ((tenant, settings, seq),) = await archive.tenants_after(rows[-1][2])
    assert (tenant, settings) == (TENANT, second)
    assert await archive.tenants_after(seq) == []


async def test_settings_put_while_the_clock_was_ahead_hide_no_later_ones(archive: Archive) -> None:
    await archive.put_tenant(TENANT, TenantSettings(weight=2), audit("tenant.put", NOW_MS + DAY))
    ((_, _, seen),) = await archive.tenants_after(0)
    await archive.put_tenant(TENANT, TenantSettings(weight=3), audit("tenant.put", NOW_MS))
    ((_, settings, _),) = await archive.tenants_after(seen)
    assert settings.weight == 3


async def test_what_is_held_is_held_once_since_it_was_first_and_until_it_is_let_go(archive: Archive) -> None:
    assert await archive.pauses() == []
    first = Pause("POOL", "mail", NOW_MS, "ann")
    await archive.add_pause(first, audit("pool.pause"))
    await archive.add_pause(Pause("POOL", "mail", NOW_MS + 9, "bob"), audit("pool.pause"))
    await archive.add_pause(Pause("ALL", "", NOW_MS + 1, "bob"), audit("all.pause"))
    assert sorted(await archive.pauses()) == [("ALL", "", NOW_MS + 1, "bob"), first]
    await archive.remove_pause("POOL", "mail", audit("pool.resume"))
    await archive.remove_pause("TENANT", "mail", audit("tenant.resume"))
    assert await archive.pauses() == [("ALL", "", NOW_MS + 1, "bob")]
    actions = [
        entry.action for _, entry in await archive.list_audit(TENANT, target=None, subject=None, after=None, limit=9)
    ]
    assert actions == ["tenant.resume", "pool.resume", "all.pause", "pool.pause", "pool.pause"]


@pytest.mark.also_threaded
async def test_the_audit_is_listed_newest_first_filtered_and_in_pages(archive: Archive) -> None:
    entries = [
        audit("tenant.put", NOW_MS + at, subject=("ann", "bob")[at % 2], target=f"t-{at}", detail={"at": at})
        for at in range(5)
    ]
    for entry in entries:
        await archive.put_tenant(OTHER, TenantSettings(), entry)

    async def listed(
        target: str | None = None, subject: str | None = None, after: int | None = None, limit: int = 10
    ) -> list[tuple[int, object]]:
        found = await archive.list_audit(TENANT, target=target, subject=subject, after=after, limit=limit)
        return [(number, entry) for number, entry in found]

    everything = await listed()
    assert [entry for _, entry in everything] == entries[::-1]
    assert [entry for _, entry in await listed(subject="bob")] == [entries[3], entries[1]]
    assert [entry for _, entry in await listed(target="t-2")] == [entries[2]]
    assert await listed(limit=2) == everything[:2]
    assert await listed(after=everything[1][0]) == everything[2:]
    assert await archive.list_audit(OTHER, target=None, subject=None, after=None, limit=10) == []


async def test_an_entry_that_concerns_every_tenant_is_in_the_audit_of_each(archive: Archive) -> None:
    for_all = msgspec.structs.replace(audit("all.pause"), tenant=EVERY_TENANT)
    own = audit("tenant.pause", NOW_MS + 1)
    await archive.add_pause(Pause("ALL", "", NOW_MS, "ops"), for_all)
    await archive.add_pause(Pause("TENANT", TENANT, NOW_MS, "ops"), own)
    found = [entry for _, entry in await archive.list_audit(TENANT, target=None, subject=None, after=None, limit=10)]
    assert found == [own, for_all]
    (other,) = await archive.list_audit(OTHER, target=None, subject=None, after=None, limit=10)
    assert other[1] == for_all
    ((last, _),) = await archive.list_audit(TENANT, target=None, subject=None, after=None, limit=1)
    assert await archive.list_audit(TENANT, target=None, subject=None, after=last, limit=10) == [other]


async def test_a_visit_is_noted_once_a_day(archive: Archive) -> None:
    def visit(subject: str, at_ms: int) -> AuditEntry:
        return AuditEntry(TENANT, at_ms, subject, "OPERATOR_READ", TENANT)

    day_ms = NOW_MS // 86_400_000 * 86_400_000
    visits = [visit("ann", day_ms), visit("ann", day_ms + 86_399_999), visit("bob", day_ms), visit("ann", day_ms - 1)]
    for each in visits:
        await archive.note_visit(each)
    found = [entry for _, entry in await archive.list_audit(TENANT, target=None, subject=None, after=None, limit=10)]
    assert found == [visits[3], visits[2], visits[0]]


async def test_a_list_has_the_size_of_payloads_and_they_are_read_by_themselves(crank: Crank, archive: Archive) -> None:
    small, large, none = (msgspec.structs.replace(job(), payload=payload) for payload in (b"ab", b"x" * 100_000, None))
    await crank.add(small, large, none)
    rows = {row.job.id: row for row in await archive.list_jobs(TENANT, JobFilter(), None, 10)}
    assert {row.job.payload for row in rows.values()} == {None}
    assert rows[none.id].payload_bytes == 0
    assert 2 <= rows[small.id].payload_bytes < 100
    assert 100_000 <= rows[large.id].payload_bytes < 140_000
    found = await archive.payloads(TENANT, [small.id, large.id, none.id])
    assert found == {small.id: b"ab", large.id: b"x" * 100_000, none.id: None}
    assert await archive.payloads(OTHER, [small.id]) == {}
    assert await archive.payloads(TENANT, []) == {}


async def test_the_totals_add_up(crank: Crank, archive: Archive) -> None:
    empty = {"running": 0, "queued": 0, "due": 0, "due_looked_at": 0, "oldest_due_ms": 0, "dead": 0, "workers": 0}
    assert await archive.counts(NOW_MS) == empty
    assert await archive.counts(NOW_MS, TENANT) == empty
    await end(crank, job(spec(retry_policy=NO_RETRY)), Outcome.FAILED)
    await crank.add(job(), job())
    running, _ = (await crank.fire()).dispatches
    await crank.settle(report(running, Outcome.STARTED), signs=[hello("w-1"), hello("w-2"), Bye(WorkerId("w-2"), 0)])
    await crank.add(job(now_ms=NOW_MS - 5), job(), job(now_ms=NOW_MS + HOUR))
    expected = {
        "running": 1,
        "queued": 1,
        "due": 2,
        "due_looked_at": 2,
        "oldest_due_ms": NOW_MS - 5,
        "dead": 1,
        "workers": 1,
    }
    assert await archive.counts(NOW_MS) == expected
    assert await archive.counts(NOW_MS, TENANT) == expected
    assert await archive.counts(NOW_MS, OTHER) == {**empty, "due_looked_at": 2, "workers": 1}


# What is due before something


async def test_what_is_due_before_a_mark_is_counted_by_tenant_and_by_pool(crank: Crank, archive: Archive) -> None:
    mail = spec(target=Target("mail", HANDLER))
    jobs = [job(), job(), job(mail), job(tenant=OTHER), job(mail, tenant=OTHER), job(tenant=TenantId("third"))]
    await crank.add(*jobs, job(spec(run_at=instant(NOW_MS + SECOND))))
    mark = (NOW_MS + SECOND, jobs[0].id)
    assert await archive.due_before(mark, 100) == Ahead(6, 3, False)
    assert await archive.due_before(mark, 100, tenant=TENANT) == Ahead(3, 1, False)
    assert await archive.due_before(mark, 100, tenant=TENANT, pool=POOL) == Ahead(2, 1, False)
    assert await archive.due_before(mark, 100, pool="mail") == Ahead(2, 2, False)
    assert await archive.due_before(mark, 100, pool="no such pool") == Ahead(0, 0, False)


async def test_of_what_is_due_at_the_same_instant_that_of_a_smaller_key_is_before(
    crank: Crank, archive: Archive
) -> None:
    jobs = [job() for _ in range(4)]
    await crank.add(*jobs, job(tenant=OTHER))
    for number, each in enumerate(jobs):
        assert (await archive.due_before((NOW_MS, each.id), 100)).entries == number
        assert (await archive.due_before((NOW_MS, each.id), 100, tenant=TENANT)).entries == number


async def test_what_has_no_time_is_before_nothing(crank: Crank, archive: Archive) -> None:
    paused = job(every())
    await crank.add(paused)
    await crank.change(paused, Change(fire=Fire(NOW_MS, None)))
    for tenant in (None, TENANT):
        assert await archive.due_before((2**50, paused.id), 100, tenant=tenant) == Ahead(0, 0, False)


@pytest.mark.parametrize("tenant", [None, TENANT], ids=["of all", "of one"])
async def test_no_more_is_looked_at_than_asked_for(crank: Crank, archive: Archive, tenant: TenantId | None) -> None:
    jobs = [job() for _ in range(6)]
    await crank.add(*jobs)
    after = (NOW_MS + 1, jobs[0].id)
    assert await archive.due_before(after, 4, tenant=tenant) == Ahead(4, 1, True)
    assert await archive.due_before(after, 4, tenant=tenant, pool="mail") == Ahead(0, 0, True)
    assert await archive.due_before(after, 7, tenant=tenant) == Ahead(6, 1, False)


async def test_what_shares_a_key_is_counted_whether_it_waits_to_fire_or_to_be_handed_out(
    crank: Crank, archive: Archive
) -> None:
    shared = spec(concurrency=Concurrency("k", 9), retry_policy=RetryPolicy(initial_delay_ms=1_000))
    retried = job(shared)
    await crank.add(retried)
    await crank.settle(report(await crank.fire_one(), Outcome.FAILED, failure=failure()))
    await crank.add(job(shared), job(spec(concurrency=Concurrency("l", 9))), job(), job(shared, tenant=OTHER))
    mark = (NOW_MS + MINUTE, retried.id)
    assert len(await crank.timeline()) == 5
    assert (await archive.due_before_with_key(mark, 100, TENANT, "k")).entries == 2
    assert await archive.due_before_with_key(mark, 100, TENANT, "l") == Ahead(1, 1, False)
    assert await archive.due_before_with_key(mark, 100, OTHER, "k") == Ahead(1, 1, False)
    assert await archive.due_before_with_key(mark, 100, TENANT, "no such key") == Ahead(0, 0, False)
    assert (await archive.due_before_with_key(mark, 2, TENANT, "k")).is_least


# What a tenant has waiting


async def test_jobs_that_wait_for_a_time_are_counted_and_paused_ones_with_them(crank: Crank, archive: Archive) -> None:
    done = job()
    await end(crank, done)
    waiting, paused, cancelled, over = job(every()), job(every()), job(every()), job(every())
    await crank.add(waiting, paused, cancelled, over, job(every(), tenant=OTHER))
    off = Fire(NOW_MS, None)
    await crank.change(paused, Change(job=msgspec.structs.replace(paused, state=JobState.PAUSED), fire=off))
    await crank.change(cancelled, Change(job=msgspec.structs.replace(cancelled, state=JobState.CANCELLED), fire=off))
    await crank.change(over, Change(fire=off))
    assert await archive.jobs_waiting(TENANT, 100) == 2
    assert await archive.jobs_waiting(OTHER, 100) == 1
    assert await archive.jobs_waiting(TenantId("nobody"), 100) == 0


async def test_an_execution_that_waits_is_not_a_job_that_waits(crank: Crank, archive: Archive) -> None:
    one = job(spec(retry_policy=RetryPolicy(max_attempts=3)))
    await crank.add(one)
    await crank.settle(report(await crank.fire_one(), Outcome.FAILED, failure=failure()))
    assert await crank.states_of(one) == ["PENDING"]
    assert await archive.jobs_waiting(TENANT, 100) == 0


async def test_jobs_that_wait_are_counted_no_further_than_asked(crank: Crank, archive: Archive) -> None:
    paused = [job(every()) for _ in range(3)]
    await crank.add(*[job(every()) for _ in range(3)], *paused)
    for one in paused:
        held = msgspec.structs.replace(one, state=JobState.PAUSED)
        await crank.change(one, Change(job=held, fire=Fire(NOW_MS, None)))
    assert [await archive.jobs_waiting(TENANT, most) for most in (0, 2, 3, 5, 6, 7)] == [0, 2, 3, 5, 6, 6]


async def test_the_next_one_shot_is_neither_a_schedule_nor_somebody_elses(crank: Crank, archive: Archive) -> None:
    assert await archive.next_one_shot_ms(TENANT) is None
    soon, later = (spec(type=JobType.DELAYED, delay_sec=seconds) for seconds in (60, 90))
    await crank.add(job(every(5)), job(later), job(soon, tenant=OTHER))
    assert await archive.next_one_shot_ms(TENANT) == NOW_MS + 90 * SECOND
    await crank.add(job(msgspec.structs.replace(soon, start_deadline_sec=5)))
    assert await archive.next_one_shot_ms(TENANT) == NOW_MS + 60 * SECOND


async def test_unique_keys_are_taken_within_a_tenant(crank: Crank, archive: Archive) -> None:
    await crank.add(job(spec(unique_key="a")), job(spec(unique_key="b"), tenant=OTHER), job())
    assert await archive.keys_taken(TENANT, ["a", "b", "c"]) == {"a"}
    assert await archive.keys_taken(TENANT, []) == set()
