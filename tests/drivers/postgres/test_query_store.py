"""What a caller can say that PostgreSQL would refuse to look for: it is not found."""

from collections.abc import AsyncIterator

import pytest

from noonday.model.filters import CallFilter, DeadFilterQuery, JobFilter
from noonday.model.ids import ExecutionId, JobId
from noonday.ports.queries import QueryStore
from tests.support.crank import Crank
from tests.support.factories import TENANT, job, spec
from tests.support.postgres import postgres_store

NOT_IDS = ["", "no such thing", "01900000", "{01900000-0000-7000-8000-000000000001}", "01900000\0", "é"]
NUL = "nul\0"


@pytest.fixture
async def crank() -> AsyncIterator[Crank]:
    async with postgres_store(0) as store:
        crank = Crank(store)
        await crank.own()
        yield crank


@pytest.fixture
def query_store(crank: Crank) -> QueryStore:
    return crank.store.query_store


@pytest.mark.parametrize("text", NOT_IDS)
async def test_what_cannot_be_an_id_is_not_found(query_store: QueryStore, text: str) -> None:
    job_id, execution_id = JobId(text), ExecutionId(text)
    assert await query_store.find_job(TENANT, job_id) is None
    assert await query_store.payload_of(TENANT, job_id, 1) is None
    assert await query_store.find_execution(TENANT, execution_id) is None
    assert await query_store.find_dead(TENANT, execution_id) is None
    assert await query_store.list_executions(TENANT, job_id, state=None, after=None, limit=10) == []
    assert await query_store.executions_between(job_id, 0, 2**60, 10) == []
    assert await query_store.decisions_between(job_id, 0, 2**60, 10) == []
    assert await query_store.list_dead(TENANT, DeadFilterQuery(job_id=text), None, 10) == []
    assert await query_store.list_calls(TENANT, CallFilter(job_id=text), None, 10, 10) == ([], None)
    assert await query_store.find_calls(TENANT, [text]) == {}


async def test_another_spelling_of_an_id_is_not_an_id(crank: Crank, query_store: QueryStore) -> None:
    one = job(id=JobId("01900000-0000-7000-8000-00000000000a"))
    await crank.add(one)
    assert await query_store.find_job(TENANT, one.id) is not None
    assert await query_store.find_job(TENANT, JobId(one.id.upper())) is None
    assert await query_store.find_job(TENANT, JobId(one.id.replace("-", ""))) is None


async def test_after_what_is_no_cursor_there_is_nothing(crank: Crank, query_store: QueryStore) -> None:
    one = job()
    await crank.add(one)
    assert len(await query_store.list_jobs(TENANT, JobFilter(), None, 10)) == 1
    for after in ("", "zzz"):
        assert await query_store.list_jobs(TENANT, JobFilter(), after, 10) == []
        assert await query_store.list_executions(TENANT, one.id, state=None, after=after, limit=10) == []
        assert await query_store.list_dead(TENANT, DeadFilterQuery(), after, 10) == []


async def test_nothing_has_a_text_with_a_nul(crank: Crank, query_store: QueryStore) -> None:
    await crank.add(job(spec(name="nul", unique_key="nul", tags=("nul",))))
    for where in (JobFilter(name=NUL), JobFilter(pool=NUL), JobFilter(tag=NUL), JobFilter(unique_key=NUL)):
        assert await query_store.list_jobs(TENANT, where, None, 10) == []
    for query in (DeadFilterQuery(pool=NUL), DeadFilterQuery(error=NUL), DeadFilterQuery(is_task=True, endpoint=NUL)):
        assert await query_store.list_dead(TENANT, query, None, 10) == []
    assert await query_store.list_calls(TENANT, CallFilter(endpoint=NUL), None, 10, 10) == ([], None)
    assert await crank.store.settings_store.list_audit(TENANT, target=NUL, subject=None, after=None, limit=10) == []


async def test_a_job_is_found_by_its_unique_key_on_its_own_page_alone(crank: Crank, query_store: QueryStore) -> None:
    first, keyed, last = job(), job(spec(unique_key="k")), job()
    await crank.add(first, keyed, last)

    async def found(after: JobId | None) -> list[JobId]:
        return [row.job.id for row in await query_store.list_jobs(TENANT, JobFilter(unique_key="k"), after, 10)]

    assert await found(None) == [keyed.id]
    assert await found(last.id) == [keyed.id]
    assert await found(keyed.id) == []
