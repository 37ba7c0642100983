"""Executions of all jobs, as people see them."""

from collections.abc import AsyncIterator

import pytest

from noonday.intake.execution_queries import ExecutionQueries
from noonday.model.execution import Outcome
from noonday.model.found_executions import ExecutionFilter
from noonday.model.retry import RetryPolicy
from tests.intake.parts import ANN, STRANGER, Parts, parts_in_memory
from tests.support.factories import failure, report, spec


@pytest.fixture
async def parts() -> AsyncIterator[Parts]:
    async with parts_in_memory() as parts:
        yield parts


async def test_executions_of_all_jobs_are_summaries(parts: Parts) -> None:
    queries = ExecutionQueries(parts.store.execution_search, parts.presenter, parts.clock)
    good = await parts.add(spec(name="good"))
    await parts.crank.settle(report(await parts.fire(good), result=parts.sealed("secret", good)))
    bad = await parts.add(spec(name="bad", retry_policy=RetryPolicy(max_attempts=1)))
    await parts.crank.settle(report(await parts.fire(bad), Outcome.FAILED, failure=failure("boom")))
    page = await queries.search(ANN, ExecutionFilter())
    assert {(one.job_name, one.state) for one in page.executions} == {("good", "SUCCEEDED"), ("bad", "DEAD")}
    assert all((one.result, one.progress, one.attempts) == (None, None, ()) for one in page.executions)
    assert {one.error.message for one in page.executions if one.error} == {"boom"}
    assert (await queries.search(STRANGER, ExecutionFilter())).executions == ()
