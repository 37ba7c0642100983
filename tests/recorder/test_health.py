from collections.abc import AsyncIterator, Collection, Mapping

import pytest

from noonday.drivers.sql.endpoints import SqlEndpoints
from noonday.drivers.sqlite.connection import MEMORY, FileOptions, SqliteDatabase
from noonday.drivers.sqlite.sessions import SqliteSessions
from noonday.drivers.sqlite.store import open_store
from noonday.model.endpoint import EndpointHealth, Failures
from noonday.model.errors import StoreUnavailable
from noonday.model.execution import Outcome
from noonday.model.message import Report
from noonday.model.secret import EndpointKey
from noonday.recorder.health import CACHE_SEC, HealthKeeper
from tests.support.clock import ManualClock
from tests.support.factories import NOW_MS, TENANT, dispatch, failure, report

THERE: EndpointKey = (TENANT, "https://a.example:443")


class CountedEndpoints(SqlEndpoints):
    """Counts how often something is noted, and refuses while it is away."""

    def __init__(self, database: SqliteDatabase) -> None:
        super().__init__(SqliteSessions(database))
        self.noted = 0
        self.away = False

    async def note_calls(
        self, succeeded: Collection[EndpointKey], failed: Mapping[EndpointKey, Failures], now_ms: int
    ) -> None:
        if self.away:
            raise StoreUnavailable("away")
        self.noted += 1
        await super().note_calls(succeeded, failed, now_ms)


class Story:
    def __init__(self, endpoints: CountedEndpoints) -> None:
        self.endpoints = endpoints
        self.clock = ManualClock()
        self.keeper = HealthKeeper(endpoints, self.clock)

    async def health(self) -> EndpointHealth:
        row = await self.endpoints.find(THERE)
        assert row is not None
        return row.health


@pytest.fixture
async def story() -> AsyncIterator[Story]:
    store = open_store(MEMORY, FileOptions(), lead_ms=0)
    yield Story(CountedEndpoints(store.database))
    await store.close()


def ended(outcome: Outcome = Outcome.SUCCEEDED, why: str = "answered 500") -> Report:
    failed = None if outcome is Outcome.SUCCEEDED else failure(why)
    return report(dispatch(), outcome, endpoint=THERE[1], tenant=THERE[0], failure=failed)


async def test_what_calls_nobody_costs_nothing(story: Story) -> None:
    await story.keeper.note([report(dispatch()) for _ in range(9)])
    await story.keeper.note([])
    assert story.endpoints.noted == 0


async def test_more_successes_of_somebody_who_is_well_are_no_news(story: Story) -> None:
    for _ in range(9):
        await story.keeper.note([ended() for _ in range(9)])
    assert story.endpoints.noted == 1
    story.clock.advance(CACHE_SEC)
    await story.keeper.note([ended()])
    assert story.endpoints.noted == 2


async def test_a_success_after_a_failure_is_news(story: Story) -> None:
    await story.keeper.note([ended()])
    await story.keeper.note([ended(Outcome.FAILED)])
    assert (await story.health()).failures == 1
    await story.keeper.note([ended()])
    assert (await story.health()).failing_since_ms is None


async def test_the_order_of_a_batch_counts(story: Story) -> None:
    await story.keeper.note([ended(Outcome.FAILED), ended(), ended(Outcome.TIMED_OUT), ended(Outcome.FAILED, "last")])
    found = await story.health()
    assert (found.failing_since_ms, found.failures, found.last_error) == (NOW_MS, 2, "last")
    await story.keeper.note([ended(Outcome.FAILED), ended()])
    assert (await story.health()).failures == 0


async def test_what_could_not_be_noted_is_noted_with_the_next_batch(story: Story) -> None:
    story.endpoints.away = True
    with pytest.raises(StoreUnavailable):
        await story.keeper.note([ended(Outcome.FAILED)])
    story.endpoints.away = False
    await story.keeper.note([ended(Outcome.FAILED)])
    assert (await story.health()).failures == 2
