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
    """Counts the notes, and refuses them while it is away."""

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


class Scenario:
    def __init__(self, endpoints: CountedEndpoints) -> None:
        self.endpoints = endpoints
        self.clock = ManualClock()
        self.keeper = HealthKeeper(endpoints, self.clock)

    async def health(self) -> EndpointHealth:
        row = await self.endpoints.find(THERE)
        assert row is not None
        return row.health


@pytest.fixture
async def scenario() -> AsyncIterator[Scenario]:
    store = open_store(MEMORY, FileOptions(), lead_ms=0)
    yield Scenario(CountedEndpoints(store.database))
    await store.close()


def ended(outcome: Outcome = Outcome.SUCCEEDED, why: str = "answered 500") -> Report:
    failed = None if outcome is Outcome.SUCCEEDED else failure(why)
    return report(dispatch(), outcome, endpoint=THERE[1], tenant=THERE[0], failure=failed)


async def test_reports_without_an_endpoint_note_nothing(scenario: Scenario) -> None:
    await scenario.keeper.note([report(dispatch()) for _ in range(9)])
    await scenario.keeper.note([])
    assert scenario.endpoints.noted == 0


async def test_repeated_successes_of_a_healthy_endpoint_are_not_noted(scenario: Scenario) -> None:
    for _ in range(9):
        await scenario.keeper.note([ended() for _ in range(9)])
    assert scenario.endpoints.noted == 1
    scenario.clock.advance(CACHE_SEC)
    await scenario.keeper.note([ended()])
    assert scenario.endpoints.noted == 2


async def test_a_success_after_a_failure_is_news(scenario: Scenario) -> None:
    await scenario.keeper.note([ended()])
    await scenario.keeper.note([ended(Outcome.FAILED)])
    assert (await scenario.health()).failures == 1
    await scenario.keeper.note([ended()])
    assert (await scenario.health()).failing_since_ms is None


async def test_the_order_of_a_batch_counts(scenario: Scenario) -> None:
    await scenario.keeper.note(
        [ended(Outcome.FAILED), ended(), ended(Outcome.TIMED_OUT), ended(Outcome.FAILED, "last")]
    )
    found = await scenario.health()
    assert (found.failing_since_ms, found.failures, found.last_error) == (NOW_MS, 2, "last")
    await scenario.keeper.note([ended(Outcome.FAILED), ended()])
    assert (await scenario.health()).failures == 0


async def test_calls_that_could_not_be_noted_are_noted_with_the_next_batch(scenario: Scenario) -> None:
    scenario.endpoints.away = True
    with pytest.raises(StoreUnavailable):
        await scenario.keeper.note([ended(Outcome.FAILED)])
    scenario.endpoints.away = False
    await scenario.keeper.note([ended(Outcome.FAILED)])
    assert (await scenario.health()).failures == 2
