"""Jobs, executions, decisions and dead letters, and the jobs that a quota counts."""

import msgspec
import pytest

from noonday.intake.edits import archive_dead, retry_dead
from noonday.model.change import Change, NewExecution
from noonday.model.execution import Cause, Outcome, State
from noonday.model.filters import CallFilter, DeadFilterQuery, JobFilter
from noonday.model.firing import Decision, DecisionOutcome, Fire
from noonday.model.ids import ExecutionId, JobId, TenantId, execution_id
from noonday.model.job import Job, JobSpec, JobState, JobType, Target
from noonday.model.message import Dispatch
from noonday.model.retry import RetryPolicy
from noonday.ports.queries import QueryStore
from tests.support.crank import Crank
from tests.support.factories import (
    HANDLER,
    HOUR,
    MINUTE,
    NOW_MS,
    POOL,
    SECOND,
    TENANT,
    every,
    failure,
    job,
    report,
    spec,
)

OTHER = TenantId("other")
NO_RETRY = RetryPolicy(max_attempts=1)
EVERYTHING = JobFilter()
NOT_IDS = ["", "no such thing", "01900000", "{01900000-0000-7000-8000-000000000001}", "01900000\0", "é"]
NUL = "nul\0"


async def ids_of(query_store: QueryStore, where: JobFilter, tenant: TenantId = TENANT) -> list[JobId]:
    return [row.job.id for row in await query_store.list_jobs(tenant, where, None, 100)]


async def end(crank: Crank, one: Job, outcome: Outcome = Outcome.SUCCEEDED) -> Dispatch:
    """Add, fire and end a job."""
    await crank.add(one)
    dispatch = await crank.fire_one()
    await crank.settle(report(dispatch, outcome, failure=failure()))
    return dispatch


# Jobs


async def test_a_job_is_found_by_its_own_tenant_alone(crank: Crank, query_store: QueryStore) -> None:
    one = job(every())
    await crank.add(one)
    row = await query_store.find_job(TENANT, one.id)
    assert row is not None
    assert (row.job, row.fire, row.open) == (one, Fire(NOW_MS, NOW_MS), False)
    assert await query_store.find_job(OTHER, one.id) is None
    await crank.fire()
    row = await query_store.find_job(TENANT, one.id)
    assert row is not None
    assert (row.fire, row.open) == (Fire(NOW_MS + MINUTE, NOW_MS + MINUTE), True)


async def test_jobs_are_listed_newest_first_and_in_pages(crank: Crank, query_store: QueryStore) -> None:
    jobs = [job() for _ in range(5)]
    await crank.add(*jobs, job(tenant=OTHER))
    newest_first = [one.id for one in reversed(jobs)]
    assert await ids_of(query_store, EVERYTHING) == newest_first
    paged: list[JobId] = []
    while page := await query_store.list_jobs(TENANT, EVERYTHING, paged[-1] if paged else None, 2):
        paged += [row.job.id for row in page]
    assert paged == newest_first


@pytest.mark.parametrize(
    ("where", "definition"),
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
async def test_jobs_are_filtered(crank: Crank, query_store: QueryStore, where: JobFilter, definition: JobSpec) -> None:
    wanted = job(definition)
    await crank.add(job(spec(tags=("blue",), name="other", unique_key="other")), wanted, job())
    assert await ids_of(query_store, where) == [wanted.id]


async def test_jobs_are_filtered_by_the_state_people_see(crank: Crank, query_store: QueryStore) -> None:
    done = job()
    await end(crank, done)
    running, active, paused, cancelled = job(), job(every()), job(every()), job(every())
    await crank.add(running)
    await crank.fire()
    await crank.add(active, paused, cancelled)
    off = Fire(NOW_MS, None)
    await crank.change(paused, Change(job=msgspec.structs.replace(paused, state=JobState.PAUSED), fire=off))
    await crank.change(cancelled, Change(job=msgspec.structs.replace(cancelled, state=JobState.CANCELLED), fire=off))
    assert await ids_of(query_store, JobFilter(state="COMPLETED")) == [done.id]
    assert await ids_of(query_store, JobFilter(state="ACTIVE")) == [active.id, running.id]
    assert await ids_of(query_store, JobFilter(state="PAUSED")) == [paused.id]
    assert await ids_of(query_store, JobFilter(state="CANCELLED")) == [cancelled.id]


async def test_a_one_shot_whose_execution_died_is_dead_and_not_completed(crank: Crank, query_store: QueryStore) -> None:
    done, dead, recurring = job(), job(spec(retry_policy=NO_RETRY)), job(every(retry_policy=NO_RETRY))
    await end(crank, recurring, Outcome.FAILED)
    await end(crank, done)
    await end(crank, dead, Outcome.FAILED)
    assert await ids_of(query_store, JobFilter(state="DEAD")) == [dead.id]
    assert await ids_of(query_store, JobFilter(state="COMPLETED")) == [done.id]
    assert await ids_of(query_store, JobFilter(state="DEAD"), OTHER) == []
    rows = await query_store.list_jobs(TENANT, EVERYTHING, None, 10)
    assert {row.job.id: row.died for row in rows} == {done.id: False, dead.id: True, recurring.id: True}
    row = await query_store.find_job(TENANT, dead.id)
    assert row is not None
    assert row.died


@pytest.mark.parametrize("then", [Outcome.SUCCEEDED, Outcome.FAILED])
async def test_the_retry_of_a_dead_letter_decides_whether_its_job_is_dead(
    crank: Crank, query_store: QueryStore, then: Outcome
) -> None:
    one = job(spec(retry_policy=NO_RETRY))
    dispatch = await end(crank, one, Outcome.FAILED)
    dead = await crank.look(dispatch)
    crank.now_ms += MINUTE
    await crank.change(one, lambda before: retry_dead(before, dead, crank.now_ms, None))
    assert await ids_of(query_store, JobFilter(state="DEAD")) == []
    assert await ids_of(query_store, JobFilter(state="ACTIVE")) == [one.id]
    again = await crank.fire_one()
    ended = report(again, then, started_ms=crank.now_ms, ended_ms=crank.now_ms + 1, failure=failure())
    await crank.settle(ended)
    expected, other = ("DEAD", "COMPLETED") if then is Outcome.FAILED else ("COMPLETED", "DEAD")
    assert await ids_of(query_store, JobFilter(state=expected)) == [one.id]
    assert await ids_of(query_store, JobFilter(state=other)) == []


async def test_an_archived_dead_letter_leaves_its_job_dead(crank: Crank, query_store: QueryStore) -> None:
    one = job(spec(retry_policy=NO_RETRY))
    dispatch = await end(crank, one, Outcome.FAILED)
    answer = await crank.change(one, archive_dead(dispatch.execution_id, None))
    assert answer.after.died
    assert await ids_of(query_store, JobFilter(state="DEAD")) == [one.id]


async def test_dead_jobs_are_filtered_and_paged_newest_first(crank: Crank, query_store: QueryStore) -> None:
    jobs = [job(spec(name=f"n-{number % 2}", retry_policy=NO_RETRY)) for number in range(4)]
    for one in jobs:
        await end(crank, one, Outcome.FAILED)
    newest_first = sorted((one.id for one in jobs), reverse=True)
    assert await ids_of(query_store, JobFilter(state="DEAD")) == newest_first
    first = await query_store.list_jobs(TENANT, JobFilter(state="DEAD"), None, 3)
    assert [row.job.id for row in first] == newest_first[:3]
    rest = await query_store.list_jobs(TENANT, JobFilter(state="DEAD"), first[-1].job.id, 3)
    assert [row.job.id for row in rest] == newest_first[3:]
    named = await ids_of(query_store, JobFilter(state="DEAD", name="n-1"))
    assert named == sorted((one.id for one in jobs if one.spec.name == "n-1"), reverse=True)


async def test_declared_jobs_are_the_live_ones_whose_key_has_the_prefix(crank: Crank, query_store: QueryStore) -> None:
    keys = ["app:a", "app:b", "apq:", "ap", "app:é", "app:gone"]
    jobs = {key: job(spec(unique_key=key)) for key in keys}
    await crank.add(*jobs.values())
    await crank.add(job(spec(unique_key="app:a"), tenant=OTHER))
    gone = jobs.pop("app:gone")
    await crank.change(gone, Change(job=msgspec.structs.replace(gone, state=JobState.CANCELLED)))
    found = await query_store.declared_keys(TENANT, "app:")
    assert sorted(found) == sorted((key, jobs[key].id) for key in ("app:a", "app:b", "app:é"))


async def test_a_list_has_the_size_of_payloads_and_they_are_read_by_themselves(
    crank: Crank, query_store: QueryStore
) -> None:
    small, large, none = (msgspec.structs.replace(job(), payload=payload) for payload in (b"ab", b"x" * 100_000, None))
    await crank.add(small, large, none)
    rows = {row.job.id: row for row in await query_store.list_jobs(TENANT, JobFilter(), None, 10)}
    assert {row.job.payload for row in rows.values()} == {None}
    assert rows[none.id].payload_bytes == 0
    assert 2 <= rows[small.id].payload_bytes < 100
    assert 100_000 <= rows[large.id].payload_bytes < 140_000
    found = await query_store.payloads(TENANT, [small.id, large.id, none.id])
    assert found == {small.id: b"ab", large.id: b"x" * 100_000, none.id: None}
    assert await query_store.payloads(OTHER, [small.id]) == {}
    assert await query_store.payloads(TENANT, []) == {}


# Executions


async def test_an_execution_is_found_by_its_own_tenant_alone(crank: Crank, query_store: QueryStore) -> None:
    dispatch = await end(crank, job())
    found = await query_store.find_execution(TENANT, dispatch.execution_id)
    assert found is not None
    assert found.state is State.SUCCEEDED
    assert await query_store.find_execution(OTHER, dispatch.execution_id) is None
    assert await query_store.find_execution(TENANT, ExecutionId("no such execution")) is None


async def test_executions_are_listed_newest_first_in_pages_and_by_state(crank: Crank, query_store: QueryStore) -> None:
    one = job(every())
    await crank.add(one, job(every()))
    made = [execution_id(one.id, NOW_MS + at * MINUTE) for at in range(4)]
    for at in range(4):
        (dispatch,) = [d for d in (await crank.fire(at_ms=NOW_MS + at * MINUTE)).dispatches if d.job_id == one.id]
        if at % 2:
            await crank.settle(report(dispatch))

    async def listed(state: str | None = None, after: str | None = None, limit: int = 100) -> list[ExecutionId]:
        found = await query_store.list_executions(TENANT, one.id, state=state, after=after, limit=limit)
        return [each.id for each in found]

    assert await listed() == made[::-1]
    assert await listed(limit=3) == made[:0:-1]
    assert await listed(after=made[1]) == [made[0]]
    assert await listed("SUCCEEDED") == [made[3], made[1]]
    assert await listed("DEAD") == []
    assert await query_store.list_executions(OTHER, one.id, state=None, after=None, limit=10) == []


async def test_scheduled_executions_are_found_by_nominal_time(crank: Crank, query_store: QueryStore) -> None:
    one = job(every())
    await crank.add(one)
    for at in range(5):
        await crank.fire(at_ms=NOW_MS + at * MINUTE)
    by_hand = NewExecution(execution_id(one.id, NOW_MS + MINUTE, "trigger:1"), NOW_MS + MINUTE, NOW_MS, Cause.TRIGGER)
    await crank.change(one, Change(executions=(by_hand,)))

    async def between(first: int, last: int, limit: int = 10) -> list[int]:
        found = await query_store.executions_between(one.id, first, last, limit)
        return [(each.nominal_ms - NOW_MS) // MINUTE for each in found]

    assert await between(NOW_MS + MINUTE, NOW_MS + 3 * MINUTE) == [1, 2, 3]
    assert await between(NOW_MS + MINUTE + 1, NOW_MS + 3 * MINUTE - 1) == [2]
    assert await between(0, 2**47, 2) == [0, 1]
    assert await query_store.executions_between(job().id, 0, 2**47, 10) == []


async def test_decisions_are_found_if_they_touch_an_interval(crank: Crank, query_store: QueryStore) -> None:
    one = job(every())
    await crank.add(one)
    made = [
        Decision(one.id, NOW_MS + at * HOUR, NOW_MS + at * HOUR + MINUTE, 2, DecisionOutcome.MISSED, f"reason {at}")
        for at in range(3)
    ]
    await crank.change(one, Change(decisions=tuple(reversed(made))))
    assert await query_store.decisions_between(one.id, 0, 2**60, 10) == made
    assert await query_store.decisions_between(one.id, NOW_MS + MINUTE, NOW_MS + HOUR, 10) == made[:2]
    assert await query_store.decisions_between(one.id, NOW_MS + MINUTE + 1, NOW_MS + HOUR - 1, 10) == []
    assert await query_store.decisions_between(one.id, 0, 2**60, 1) == made[:1]
    assert await query_store.decisions_between(job().id, 0, 2**60, 10) == []


async def test_the_payload_of_a_revision_is_its_tenants_alone(crank: Crank, query_store: QueryStore) -> None:
    one = job(payload=b"sealed")
    await crank.add(one)
    found = await query_store.definitions(TENANT, [(one.id, 1), (job().id, 1)])
    assert {whose: definition.payload for whose, definition in found.items()} == {(one.id, 1): b"sealed"}
    assert await query_store.definitions(OTHER, [(one.id, 1)]) == {}


# Dead letters


async def test_dead_letters_are_listed_newest_first_and_in_pages(crank: Crank, query_store: QueryStore) -> None:
    dead = []
    for at in range(3):
        crank.now_ms = NOW_MS + at * MINUTE
        dead.append(await end(crank, job(spec(retry_policy=NO_RETRY), now_ms=crank.now_ms), Outcome.FAILED))
    listed = await query_store.list_dead(TENANT, DeadFilterQuery(), None, 10)
    assert [letter.execution.id for letter in listed] == [d.execution_id for d in reversed(dead)]
    assert [letter.died_ms for letter in listed] == [NOW_MS + at * MINUTE + SECOND for at in (2, 1, 0)]
    assert listed[0].execution == await crank.look(dead[2])
    following = await query_store.list_dead(TENANT, DeadFilterQuery(), dead[1].execution_id, 10)
    assert [letter.execution.id for letter in following] == [dead[0].execution_id]
    assert await query_store.list_dead(OTHER, DeadFilterQuery(), None, 10) == []


async def test_dead_letters_are_filtered(crank: Crank, query_store: QueryStore) -> None:
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
        listed = await query_store.list_dead(TENANT, where, None, 10)
        assert [letter.execution.id for letter in listed] == [d.execution_id for d in expected], where


async def test_retried_letters_are_not_listed_and_archived_ones_only_on_demand(
    crank: Crank, query_store: QueryStore
) -> None:
    jobs = [job(spec(retry_policy=NO_RETRY)) for _ in range(3)]
    left, archived, retried = [await end(crank, one, Outcome.FAILED) for one in jobs]
    await crank.change(jobs[1], Change(dead=((archived.execution_id, None),)))
    await crank.change(jobs[2], Change(dead=((retried.execution_id, ExecutionId(left.execution_id)),)))

    async def listed(*, archived: bool) -> list[str]:
        found = await query_store.list_dead(TENANT, DeadFilterQuery(archived=archived), None, 10)
        return [letter.execution.id for letter in found]

    assert await listed(archived=False) == [left.execution_id]
    assert await listed(archived=True) == [archived.execution_id]


async def test_a_dead_letter_is_found_by_its_own_tenant_alone(crank: Crank, query_store: QueryStore) -> None:
    dead = await end(crank, job(spec(retry_policy=NO_RETRY)), Outcome.FAILED)
    alive = await end(crank, job(now_ms=crank.now_ms))
    assert await query_store.find_dead(TENANT, dead.execution_id) == (NOW_MS + SECOND, False, None)
    assert await query_store.find_dead(OTHER, dead.execution_id) is None
    assert await query_store.find_dead(TENANT, alive.execution_id) is None


# Quotas


async def test_jobs_that_wait_for_a_time_are_counted_and_paused_ones_with_them(
    crank: Crank, query_store: QueryStore
) -> None:
    done = job()
    await end(crank, done)
    waiting, paused, cancelled, over = job(every()), job(every()), job(every()), job(every())
    await crank.add(waiting, paused, cancelled, over, job(every(), tenant=OTHER))
    off = Fire(NOW_MS, None)
    await crank.change(paused, Change(job=msgspec.structs.replace(paused, state=JobState.PAUSED), fire=off))
    await crank.change(cancelled, Change(job=msgspec.structs.replace(cancelled, state=JobState.CANCELLED), fire=off))
    await crank.change(over, Change(fire=off))
    assert await query_store.jobs_waiting(TENANT, 100) == 2
    assert await query_store.jobs_waiting(OTHER, 100) == 1
    assert await query_store.jobs_waiting(TenantId("nobody"), 100) == 0


async def test_an_execution_that_waits_is_not_a_job_that_waits(crank: Crank, query_store: QueryStore) -> None:
    one = job(spec(retry_policy=RetryPolicy(max_attempts=3)))
    await crank.add(one)
    await crank.settle(report(await crank.fire_one(), Outcome.FAILED, failure=failure()))
    assert await crank.states_of(one) == ["PENDING"]
    assert await query_store.jobs_waiting(TENANT, 100) == 0


async def test_jobs_that_wait_are_counted_no_further_than_asked(crank: Crank, query_store: QueryStore) -> None:
    paused = [job(every()) for _ in range(3)]
    await crank.add(*[job(every()) for _ in range(3)], *paused)
    for one in paused:
        held = msgspec.structs.replace(one, state=JobState.PAUSED)
        await crank.change(one, Change(job=held, fire=Fire(NOW_MS, None)))
    assert [await query_store.jobs_waiting(TENANT, most) for most in (0, 2, 3, 5, 6, 7)] == [0, 2, 3, 5, 6, 6]


async def test_next_one_shot_is_no_schedule_and_of_the_same_tenant(crank: Crank, query_store: QueryStore) -> None:
    assert await query_store.next_one_shot_ms(TENANT) is None
    soon, later = (spec(type=JobType.DELAYED, delay_sec=seconds) for seconds in (60, 90))
    await crank.add(job(every(5)), job(later), job(soon, tenant=OTHER))
    assert await query_store.next_one_shot_ms(TENANT) == NOW_MS + 90 * SECOND
    await crank.add(job(msgspec.structs.replace(soon, start_deadline_sec=5)))
    assert await query_store.next_one_shot_ms(TENANT) == NOW_MS + 60 * SECOND


async def test_unique_keys_are_taken_within_a_tenant(crank: Crank, query_store: QueryStore) -> None:
    await crank.add(job(spec(unique_key="a")), job(spec(unique_key="b"), tenant=OTHER), job())
    assert await query_store.keys_taken(TENANT, ["a", "b", "c"]) == {"a"}
    assert await query_store.keys_taken(TENANT, []) == set()


async def test_first_two_jobs_of_a_name_are_found_without_cancelled_ones(crank: Crank, query_store: QueryStore) -> None:
    cancelled, first, second, third = [job(spec(name="nightly")) for _ in range(4)]
    await crank.add(cancelled, first, second, third, job(spec(name="hourly")), job(spec(name="nightly"), tenant=OTHER))
    await crank.change(cancelled, Change(job=msgspec.structs.replace(cancelled, state=JobState.CANCELLED)))
    assert await query_store.jobs_named(TENANT, ["nightly", "weekly", NUL]) == {"nightly": [first.id, second.id]}
    assert await query_store.jobs_named(TENANT, []) == {}


# Ids, cursors and texts that no database can store


@pytest.mark.parametrize("text", NOT_IDS)
async def test_text_that_is_no_id_finds_nothing(query_store: QueryStore, text: str) -> None:
    job_id, execution_id = JobId(text), ExecutionId(text)
    assert await query_store.find_job(TENANT, job_id) is None
    assert await query_store.find_execution(TENANT, execution_id) is None
    assert await query_store.find_dead(TENANT, execution_id) is None
    assert await query_store.list_executions(TENANT, job_id, state=None, after=None, limit=10) == []
    assert await query_store.executions_between(job_id, 0, 2**60, 10) == []
    assert await query_store.decisions_between(job_id, 0, 2**60, 10) == []
    assert await query_store.list_dead(TENANT, DeadFilterQuery(job_id=text), None, 10) == []
    assert await query_store.list_calls(TENANT, CallFilter(job_id=text), None, 10, 10) == ([], None)
    assert await query_store.find_calls(TENANT, [text]) == {}


async def test_other_spelling_of_an_id_finds_nothing(crank: Crank, query_store: QueryStore) -> None:
    one = job(id=JobId("01900000-0000-7000-8000-00000000000a"))
    await crank.add(one)
    assert await query_store.find_job(TENANT, one.id) is not None
    assert await query_store.find_job(TENANT, JobId(one.id.upper())) is None
    assert await query_store.find_job(TENANT, JobId(one.id.replace("-", ""))) is None


async def test_text_that_is_no_cursor_finds_nothing(crank: Crank, query_store: QueryStore) -> None:
    one = job()
    await crank.add(one)
    assert len(await query_store.list_jobs(TENANT, JobFilter(), None, 10)) == 1
    for after in ("", "zzz"):
        assert await query_store.list_jobs(TENANT, JobFilter(), after, 10) == []
        assert await query_store.list_executions(TENANT, one.id, state=None, after=after, limit=10) == []
        assert await query_store.list_dead(TENANT, DeadFilterQuery(), after, 10) == []


async def test_filter_with_a_nul_finds_nothing(crank: Crank, query_store: QueryStore) -> None:
    await crank.add(job(spec(name="nul", unique_key="nul", tags=("nul",))))
    for where in (JobFilter(name=NUL), JobFilter(pool=NUL), JobFilter(tag=NUL), JobFilter(unique_key=NUL)):
        assert await query_store.list_jobs(TENANT, where, None, 10) == []
    for query in (DeadFilterQuery(pool=NUL), DeadFilterQuery(error=NUL), DeadFilterQuery(is_task=True, endpoint=NUL)):
        assert await query_store.list_dead(TENANT, query, None, 10) == []
    assert await query_store.list_calls(TENANT, CallFilter(endpoint=NUL), None, 10, 10) == ([], None)
    assert await crank.store.settings_store.list_audit(TENANT, target=NUL, subject=None, after=None, limit=10) == []


async def test_job_is_found_by_its_unique_key_only_on_its_page(crank: Crank, query_store: QueryStore) -> None:
    first, keyed, last = job(), job(spec(unique_key="k")), job()
    await crank.add(first, keyed, last)

    async def found(after: JobId | None) -> list[JobId]:
        return [row.job.id for row in await query_store.list_jobs(TENANT, JobFilter(unique_key="k"), after, 10)]

    assert await found(None) == [keyed.id]
    assert await found(last.id) == [keyed.id]
    assert await found(keyed.id) == []
