"""The inbox of alerts."""

from collections.abc import AsyncIterator

import pytest

from noonday.alerts.alert_service import STEP, AlertService
from noonday.intake.idempotency import AlreadyAnswered
from noonday.model.alert import AlertKind, Observation
from noonday.model.alert_view import AcknowledgeRequest
from noonday.model.errors import NotFound
from tests.intake.parts import ANN, STRANGER, Parts, key, parts_in_memory
from tests.support.factories import MINUTE, NOW_MS, TENANT, instant


@pytest.fixture
async def parts() -> AsyncIterator[Parts]:
    async with parts_in_memory() as parts:
        yield parts


@pytest.fixture
def alerts(parts: Parts) -> AlertService:
    return AlertService(parts.store.alerts, parts.receipts, parts.clock)


async def observe(parts: Parts, *abouts: str, kind: AlertKind = AlertKind.DISABLED, at_ms: int = NOW_MS) -> None:
    """Let something happen to endpoints."""
    await parts.store.alerts.record(
        [Observation(kind, TENANT, about, f"{about} is broken", at_ms, endpoint=about) for about in abouts]
    )


@pytest.mark.slow
async def test_alert_is_listed_as_unread_with_what_happened(parts: Parts, alerts: AlertService) -> None:
    await observe(parts, "https://a.example:443")
    inbox = await alerts.list_alerts(ANN)
    assert inbox.unread == 1
    (alert,) = inbox.alerts
    assert (alert.kind, alert.status, alert.count) == ("DISABLED", "OPEN", 1)
    assert (alert.endpoint, alert.first_at) == ("https://a.example:443", instant(NOW_MS))


async def test_pages_list_each_alert_once_newest_first(parts: Parts, alerts: AlertService) -> None:
    for number, about in enumerate(("a", "b", "c")):
        await observe(parts, about, at_ms=NOW_MS + number * MINUTE)
    first = await alerts.list_alerts(ANN, limit=2)
    rest = await alerts.list_alerts(ANN, limit=2, cursor=first.next_cursor)
    assert [alert.endpoint for alert in (*first.alerts, *rest.alerts)] == ["c", "b", "a"]
    assert rest.next_cursor is None


async def test_alert_is_acknowledged_by_the_first_who_does(parts: Parts, alerts: AlertService) -> None:
    await observe(parts, "a")
    (alert,) = (await alerts.list_alerts(ANN)).alerts
    view = await alerts.acknowledge(ANN, alert.id)
    assert (view.status, view.acknowledged_by, view.acknowledged_at) == ("ACKNOWLEDGED", "ann", instant(NOW_MS))
    parts.clock.advance(60)
    assert (await alerts.acknowledge(ANN, alert.id)).acknowledged_at == instant(NOW_MS)
    assert (await alerts.list_alerts(ANN)).unread == 0


async def test_alert_of_another_tenant_is_not_found(parts: Parts, alerts: AlertService) -> None:
    await observe(parts, "a")
    (alert,) = (await alerts.list_alerts(ANN)).alerts
    with pytest.raises(NotFound):
        await alerts.acknowledge(STRANGER, alert.id)
    assert (await alerts.list_alerts(STRANGER)).alerts == ()


async def test_all_alerts_that_match_are_acknowledged(parts: Parts, alerts: AlertService) -> None:
    await observe(parts, "a", "b")
    await observe(parts, "c", kind=AlertKind.MISSED)
    done = await alerts.acknowledge_all(ANN, AcknowledgeRequest(kind=AlertKind.DISABLED))
    assert done.acknowledged == 2
    assert [alert.kind for alert in (await alerts.list_alerts(ANN, unread=True)).alerts] == ["MISSED"]


async def test_more_alerts_than_a_page_are_acknowledged(parts: Parts, alerts: AlertService) -> None:
    await observe(parts, *(f"e{number}" for number in range(STEP + 1)))
    assert (await alerts.acknowledge_all(ANN, AcknowledgeRequest())).acknowledged == STEP + 1


async def test_alert_that_happened_after_the_given_time_stays_unread(parts: Parts, alerts: AlertService) -> None:
    await observe(parts, "a")
    parts.clock.advance(60)
    await observe(parts, "b", at_ms=NOW_MS + MINUTE)
    assert (await alerts.acknowledge_all(ANN, AcknowledgeRequest(until=instant(NOW_MS)))).acknowledged == 1
    assert [alert.endpoint for alert in (await alerts.list_alerts(ANN, unread=True)).alerts] == ["b"]


async def test_repeated_request_acknowledges_nothing_again(parts: Parts, alerts: AlertService) -> None:
    await observe(parts, "a")
    await alerts.acknowledge_all(ANN, AcknowledgeRequest(), key())
    await observe(parts, "b")
    with pytest.raises(AlreadyAnswered):
        await alerts.acknowledge_all(ANN, AcknowledgeRequest(), key())
    assert (await alerts.list_alerts(ANN)).unread == 1
