"""`client.alerts`, against a server with prepared answers."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest

from noonday.model.alert import AlertKind, AlertState
from noonday.model.alert_view import Acknowledged, AlertList, AlertView
from noonday.model.errors import NotFound
from noonday.sdk.alerts import AlertsClient
from noonday.sdk.client import Client
from noonday.sdk.sync import SyncAlerts, SyncClient
from tests.sdk.test_client import Wire, listening, problem, served_from_a_thread

NOON = datetime(2030, 1, 31, 12, tzinfo=UTC)
ALERT = AlertView(
    id="a", kind=AlertKind.FAILED, status=AlertState.OPEN, message="answered 503", count=2, first_at=NOON, last_at=NOON
)
LIST = AlertList(alerts=(ALERT,), unread=1, next_cursor="a")


@pytest.fixture
async def wire() -> AsyncIterator[Wire]:
    async with listening(Wire()) as served:
        yield served


@pytest.fixture
async def client(wire: Wire) -> AsyncIterator[Client]:
    async with Client(wire.url, "a-token", sleep=wire.sleep) as opened:
        yield opened


async def test_alerts_are_listed_by_filter(client: Client, wire: Wire) -> None:
    wire.will(LIST, LIST)
    assert await client.alerts.list() == LIST
    await client.alerts.list(unread=True, kind=AlertKind.FAILED, task_id="t", cursor="a", limit=5)
    plain, asked = wire.asked
    assert (plain.path, plain.query) == ("/v1/alerts", {})
    assert asked.query == {"unread": "true", "kind": "FAILED", "task_id": "t", "cursor": "a", "limit": "5"}


async def test_an_alert_is_read_and_acknowledged(client: Client, wire: Wire) -> None:
    wire.will(ALERT, ALERT, Acknowledged(3))
    assert await client.alerts.get("a") == ALERT
    assert await client.alerts.acknowledge("a", idempotency_key="k") == ALERT
    assert await client.alerts.acknowledge_all(kind="SLOW", until=NOON) == 3
    assert [(each.method, each.path) for each in wire.asked] == [
        ("GET", "/v1/alerts/a"),
        ("POST", "/v1/alerts/a/acknowledge"),
        ("POST", "/v1/alerts/acknowledge"),
    ]
    assert wire.asked[1].headers["Idempotency-Key"] == '"k"'
    assert wire.asked[2].body == {"kind": "SLOW", "task_id": None, "until": "2030-01-31T12:00:00Z"}


async def test_an_alert_that_is_not_there_raises(client: Client, wire: Wire) -> None:
    wire.will(problem(404, "not-found"))
    with pytest.raises(NotFound):
        await client.alerts.get("a")


def test_the_synchronous_client_has_the_same_methods() -> None:
    def methods(of: type) -> set[str]:
        return {name for name in vars(of) if not name.startswith("_")}

    assert methods(SyncAlerts) == methods(AlertsClient)
    with served_from_a_thread() as wire, SyncClient(wire.url, "a-token") as client:
        wire.will(LIST)
        assert client.alerts.list() == LIST
