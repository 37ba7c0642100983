"""Jobs as people read them."""

from collections.abc import AsyncIterator

import pytest

from noonday.intake import edits
from noonday.intake.job_queries import JobQueries
from noonday.model.errors import NotFound
from noonday.model.execution import Outcome
from noonday.model.ids import TenantId
from noonday.model.job import Target
from noonday.model.retry import RetryPolicy
from tests.intake.parts import ANN, STRANGER, Parts, parts_in_memory
from tests.support.factories import HANDLER, MINUTE, NOW_MS, audit, every, failure, instant, job, report, spec


@pytest.fixture
async def parts() -> AsyncIterator[Parts]:
    async with parts_in_memory() as parts:
        yield parts


@pytest.fixture
def jobs(parts: Parts) -> JobQueries:
    return JobQueries(parts.store.query_store, parts.presenter)


async def test_job_shows_its_definition_its_payload_and_its_next_time(parts: Parts, jobs: JobQueries) -> None:
    one = await parts.add(every(name="nightly"), payload={"table": "orders"})
    await parts.fire(one)
    view = await jobs.get_job(ANN, one.id)
    assert (view.name, view.payload, view.state, view.version) == ("nightly", {"table": "orders"}, "ACTIVE", 1)
    assert view.next_fire_at == instant(NOW_MS + MINUTE)


async def test_job_shows_its_latest_executions(parts: Parts, jobs: JobQueries) -> None:
    one = await parts.add(every())
    for minute in range(3):
        parts.crank.now_ms = NOW_MS + minute * MINUTE
        await parts.fire(one)
    view = await jobs.get_job(ANN, one.id, executions=2)
    assert [each.scheduled_at for each in view.executions] == [instant(NOW_MS + minute * MINUTE) for minute in (2, 1)]


async def test_one_shot_is_completed_once_its_execution_has_ended(parts: Parts, jobs: JobQueries) -> None:
    one = await parts.add()
    dispatch = await parts.fire(one)
    assert (await jobs.get_job(ANN, one.id)).state == "ACTIVE"
    await parts.crank.settle(report(dispatch))
    assert (await jobs.get_job(ANN, one.id)).state == "COMPLETED"


async def test_one_shot_is_dead_once_its_attempts_are_used_up(parts: Parts, jobs: JobQueries) -> None:
    one = await parts.add(spec(retry_policy=RetryPolicy(max_attempts=1)))
    dispatch = await parts.fire(one)
    await parts.crank.settle(report(dispatch, Outcome.FAILED, failure=failure()))
    assert (await jobs.get_job(ANN, one.id)).state == "DEAD"
    assert [(each.job_id, each.state) for each in (await jobs.list_jobs(ANN, state="DEAD")).jobs] == [(one.id, "DEAD")]
    assert (await jobs.list_jobs(ANN, state="COMPLETED")).jobs == ()


async def test_job_of_another_tenant_is_not_found(parts: Parts, jobs: JobQueries) -> None:
    one = await parts.add()
    with pytest.raises(NotFound):
        await jobs.get_job(STRANGER, one.id)


async def test_payload_that_cannot_be_decrypted_says_why(parts: Parts, jobs: JobQueries) -> None:
    """Such as one that was stored under a key that is gone. The job stays readable."""
    one = job(payload=b"sealed with another key")
    await parts.crank.add(one)
    assert set((await jobs.get_job(ANN, one.id)).payload) == {"unreadable"}


async def test_summary_has_no_payload(parts: Parts, jobs: JobQueries) -> None:
    one = await parts.add(payload={"table": "orders"})
    assert (await jobs.get_job(ANN, one.id, summary=True)).payload is None
    assert [each.payload for each in (await jobs.list_jobs(ANN, summary=True)).jobs] == [None]


async def test_list_has_payloads(parts: Parts, jobs: JobQueries) -> None:
    await parts.add(payload={"table": "orders"})
    assert [each.payload for each in (await jobs.list_jobs(ANN)).jobs] == [{"table": "orders"}]


async def test_pages_list_each_job_of_the_tenant_once(parts: Parts, jobs: JobQueries) -> None:
    added = [await parts.add() for _ in range(3)]
    await parts.add(tenant=TenantId("globex"))
    first = await jobs.list_jobs(ANN, limit=2)
    rest = await jobs.list_jobs(ANN, limit=2, cursor=first.next)
    assert sorted(each.job_id for each in (*first.jobs, *rest.jobs)) == [each.id for each in added]
    assert rest.next is None


@pytest.mark.parametrize(
    "where",
    [{"pool": "web"}, {"name": "nightly"}, {"tag": "slow"}, {"unique_key": "k"}, {"type": "INTERVAL"}],
    ids=lambda where: next(iter(where)),
)
async def test_list_has_only_jobs_that_match_every_condition(
    parts: Parts, jobs: JobQueries, where: dict[str, str]
) -> None:
    await parts.add()
    wanted = await parts.add(every(target=Target("web", HANDLER), name="nightly", tags=("slow",), unique_key="k"))
    assert [each.job_id for each in (await jobs.list_jobs(ANN, handler=HANDLER, **where)).jobs] == [wanted.id]


async def test_list_has_only_jobs_in_the_wanted_state(parts: Parts, jobs: JobQueries) -> None:
    active, paused = await parts.add(every()), await parts.add(every())
    await parts.crank.change(paused, lambda before: edits.pause(before, NOW_MS, audit()))
    assert [each.job_id for each in (await jobs.list_jobs(ANN, state="PAUSED")).jobs] == [paused.id]
    assert [each.job_id for each in (await jobs.list_jobs(ANN, state="ACTIVE")).jobs] == [active.id]
