"""Waiting for the ends of executions."""

import asyncio
from collections.abc import AsyncIterator, Collection

import pytest

from noonday.drivers.sql.execution_search import SqlExecutionSearch
from noonday.intake.execution_ends import ROUND_SEC, ExecutionEnds
from noonday.model.errors import Busy, NotFound, StoreUnavailable
from noonday.model.execution import Outcome
from noonday.model.ids import ExecutionId
from noonday.model.job import JobSpec
from noonday.ports.execution_search import ExecutionSearch
from tests.intake.parts import ANN, STRANGER, Parts, parts_in_memory
from tests.support.eventually import eventually
from tests.support.factories import report, spec


class CountedSearch(SqlExecutionSearch):
    """The search of the store, which counts its rounds and may be out of order."""

    def __init__(self, search: SqlExecutionSearch) -> None:
        self.__dict__ = search.__dict__
        self.rounds = 0
        self.trouble: Exception | None = None

    async def open_among(self, executions: Collection[ExecutionId]) -> set[ExecutionId]:
        self.rounds += 1
        if self.trouble:
            raise self.trouble
        return await super().open_among(executions)


@pytest.fixture
async def parts() -> AsyncIterator[Parts]:
    async with parts_in_memory() as parts:
        yield parts


@pytest.fixture
def search(parts: Parts) -> CountedSearch:
    return CountedSearch(parts.store.execution_search)


def ends_of(parts: Parts, search: ExecutionSearch, **bounds: int) -> ExecutionEnds:
    return ExecutionEnds(parts.store.query_store, search, parts.clock, **bounds)


async def fired(parts: Parts, of: JobSpec | None = None) -> ExecutionId:
    return (await parts.fire(await parts.add(of))).execution_id


def begin(ends: ExecutionEnds, execution: ExecutionId, seconds: float = 60) -> "asyncio.Task[None]":
    return asyncio.create_task(ends.wait(ANN, execution, seconds))


async def waiting(parts: Parts, number: int) -> None:
    """Wait until that many waiters sleep until their timeouts, and one of them until its next round."""
    await eventually(lambda: parts.clock.sleepers == number + 1)


async def test_a_wait_ends_with_the_execution(parts: Parts, search: CountedSearch) -> None:
    dispatch = await parts.fire(await parts.add())
    wait = begin(ends_of(parts, search), dispatch.execution_id)
    await waiting(parts, 1)
    parts.clock.advance(ROUND_SEC)
    await eventually(lambda: search.rounds == 1)
    assert not wait.done()
    await parts.crank.settle(report(dispatch))
    await waiting(parts, 1)
    parts.clock.advance(ROUND_SEC)
    await wait
    assert parts.clock.sleepers == 0


async def test_a_wait_ends_after_its_time(parts: Parts, search: CountedSearch) -> None:
    wait = begin(ends_of(parts, search), await fired(parts), seconds=ROUND_SEC / 2)
    await waiting(parts, 1)
    parts.clock.advance(ROUND_SEC / 2)
    await wait
    assert search.rounds == 0


async def test_an_ended_execution_is_not_waited_for(parts: Parts, search: CountedSearch) -> None:
    dispatch = await parts.fire(await parts.add())
    await parts.crank.settle(report(dispatch, Outcome.CANCELLED))
    await ends_of(parts, search).wait(ANN, dispatch.execution_id, 60)
    assert search.rounds == 0


async def test_an_execution_of_another_tenant_is_not_found(parts: Parts, search: CountedSearch) -> None:
    with pytest.raises(NotFound):
        await ends_of(parts, search).wait(STRANGER, await fired(parts), 60)


async def test_many_waiters_share_one_query_per_round(parts: Parts, search: CountedSearch) -> None:
    ends, execution, other = ends_of(parts, search), await fired(parts), await fired(parts, spec())
    waits = [begin(ends, each) for each in (execution, other) for _ in range(20)]
    await waiting(parts, 40)
    parts.clock.advance(ROUND_SEC)
    await eventually(lambda: search.rounds == 1)
    await waiting(parts, 40)
    assert search.rounds == 1
    ends.close()
    await asyncio.gather(*waits)


async def test_another_waiter_makes_the_rounds_when_the_first_has_left(parts: Parts, search: CountedSearch) -> None:
    ends, dispatch = ends_of(parts, search), await parts.fire(await parts.add())
    first = begin(ends, await fired(parts, spec()))
    await waiting(parts, 1)
    second = begin(ends, dispatch.execution_id)
    await waiting(parts, 2)
    first.cancel()
    await asyncio.wait({first})
    await waiting(parts, 1)
    await parts.crank.settle(report(dispatch))
    parts.clock.advance(ROUND_SEC)
    await second


async def test_waiters_beyond_the_limits_are_refused(parts: Parts, search: CountedSearch) -> None:
    ends, execution = ends_of(parts, search, most_of_tenant=1), await fired(parts)
    wait = begin(ends, execution)
    await waiting(parts, 1)
    with pytest.raises(Busy, match="1 requests of this tenant wait"):
        await ends.wait(ANN, execution, 60)
    ends.close()
    await wait
    narrow = ends_of(parts, search, most=0)
    with pytest.raises(Busy, match="0 requests of this process wait"):
        await narrow.wait(ANN, execution, 60)


async def test_an_error_of_the_store_ends_the_waits(parts: Parts, search: CountedSearch) -> None:
    wait = begin(ends_of(parts, search), await fired(parts))
    await waiting(parts, 1)
    search.trouble = StoreUnavailable("away")
    parts.clock.advance(ROUND_SEC)
    await wait


async def test_nothing_waits_in_a_process_that_stops(parts: Parts, search: CountedSearch) -> None:
    ends = ends_of(parts, search)
    ends.close()
    await ends.wait(ANN, await fired(parts), 60)
