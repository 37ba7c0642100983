import asyncio

import msgspec
import pytest

from noonday.model.alert import AlertEvent, AlertKind, Observation
from noonday.model.ids import TenantId
from noonday.model.notice import USUAL_KINDS, OpenNotice, Preference, SelectedEvent
from noonday.model.receipt import Receipt
from noonday.ports.alerts import Alerts
from noonday.ports.jobs import Jobs
from noonday.ports.notices import Notices
from tests.support.drivers import Store
from tests.support.factories import MINUTE, NOW_MS, SECOND, TENANT, audit

OTHER = TenantId("other")
DUE_MS = NOW_MS + 5 * MINUTE


@pytest.fixture
def notices(store: Store) -> Notices:
    return store.notices


@pytest.fixture
def alerts(store: Store) -> Alerts:
    return store.alerts


def preference(name: str = "ops", *, tenant: TenantId = TENANT, at_ms: int = NOW_MS, user: str = "sam") -> Preference:
    return Preference(
        tenant=tenant,
        id=name,
        user=user,
        kinds=USUAL_KINDS,
        digest_ms=5 * MINUTE,
        pools=("etl",),
        job_ids=(),
        enabled=True,
        channel=b"sealed",
        created_ms=at_ms,
        updated_ms=at_ms,
    )


def put(
    notices: Notices, wanted: Preference, *, most: int = 100, receipt: Receipt | None = None
) -> "asyncio.Future[bool]":
    entry = audit("alert-preference.put", wanted.updated_ms)
    return asyncio.ensure_future(notices.put_preference(wanted, most, entry, receipt))


def opened(name: str = "n1", whose: str = "ops", *, due_ms: int = DUE_MS) -> OpenNotice:
    return OpenNotice(name, TENANT, whose, due_ms)


async def happen(
    alerts: Alerts, *abouts: str, kind: AlertKind = AlertKind.EXHAUSTED, at_ms: int = NOW_MS, message: str = "broken"
) -> list[AlertEvent]:
    """Store so many events of subjects without an alert of this kind. Returns them with the events that existed before."""
    await alerts.record([Observation(kind, TENANT, about, message, at_ms, endpoint=about) for about in abouts])
    return await alerts.events(1_000)


async def take(notices: Notices, events: list[AlertEvent], *into: OpenNotice) -> int:
    selected = [SelectedEvent(each, notice.preference) for each in events for notice in into]
    return await notices.collect([each.id for each in events], selected, into)


# Preferences


async def test_a_preference_is_kept_as_it_was_put(notices: Notices) -> None:
    wanted = msgspec.structs.replace(preference(), enabled=False, job_ids=("j",), kinds=(AlertKind.SLOW,))
    assert await put(notices, wanted)
    assert await notices.find_preference(TENANT, "ops") == wanted
    assert await notices.find_preference(TENANT, "dev") is None
    assert await notices.find_preference(OTHER, "ops") is None


async def test_a_preference_that_is_put_again_is_replaced_and_remembers_when_it_was_made(notices: Notices) -> None:
    await put(notices, preference())
    await put(notices, preference(at_ms=NOW_MS + 1, user="kim"))
    (kept,) = await notices.preferences([TENANT])
    assert (kept.user, kept.created_ms, kept.updated_ms) == ("kim", NOW_MS, NOW_MS + 1)


async def test_preferences_come_by_tenant_and_id(notices: Notices) -> None:
    for tenant, name in ((TENANT, "b"), (OTHER, "c"), (TENANT, "a"), (TenantId("third"), "d")):
        await put(notices, preference(name, tenant=tenant))
    assert [each.id for each in await notices.preferences({TENANT, OTHER})] == ["a", "b", "c"]
    assert await notices.preferences([]) == []


async def test_a_tenant_has_only_so_many_preferences(notices: Notices) -> None:
    assert await put(notices, preference("a"), most=1)
    assert not await put(notices, preference("b"), most=1)
    assert await put(notices, preference("a", user="kim"), most=1)
    assert await put(notices, preference("b", tenant=OTHER), most=1)
    assert [(each.id, each.user) for each in await notices.preferences([TENANT])] == [("a", "kim")]


async def test_a_preference_is_deleted_once(notices: Notices) -> None:
    await put(notices, preference())
    entry = audit("alert-preference.delete", NOW_MS)
    assert not await notices.delete_preference(OTHER, "ops", entry)
    assert await notices.delete_preference(TENANT, "ops", entry)
    assert not await notices.delete_preference(TENANT, "ops", entry)
    assert await notices.preferences([TENANT]) == []


async def test_the_answer_and_the_audit_are_kept_with_the_preference(notices: Notices, jobs: Jobs) -> None:
    receipt = Receipt(TENANT, "key", "fingerprint", NOW_MS, 200, b"answer")
    await put(notices, preference(), receipt=receipt)
    assert await jobs.find_receipt(TENANT, "key") == receipt
    gone = msgspec.structs.replace(receipt, key="other key")
    await notices.delete_preference(TENANT, "ops", audit("alert-preference.delete", NOW_MS), gone)
    assert await jobs.find_receipt(TENANT, "other key") == gone


# Gathering


async def test_alert_events_are_gathered_until_their_notice_is_due(notices: Notices, alerts: Alerts) -> None:
    happened = await happen(alerts, "https://a", "https://b")
    assert await take(notices, happened, opened()) == 2
    assert await alerts.events(10) == []
    assert await notices.next_due_ms() == DUE_MS
    assert await notices.close_due(DUE_MS - 1, 10) == []
    (closed,) = await notices.close_due(DUE_MS, 10)
    assert closed == opened()
    digest = await notices.digest(closed, 20)
    assert (digest.counts, digest.subjects, digest.omitted) == ({AlertKind.EXHAUSTED: 2}, 2, 0)
    assert [(line.about, line.count, line.message) for line in digest.lines] == [
        ("https://a", 1, "broken"),
        ("https://b", 1, "broken"),
    ]


@pytest.mark.slow
@pytest.mark.also_threaded
async def test_a_happening_is_taken_once(notices: Notices, alerts: Alerts) -> None:
    happened = await happen(alerts, "https://a")
    taken = await asyncio.gather(*(take(notices, happened, opened(f"n{i}")) for i in range(4)))
    assert sorted(taken) == [0, 0, 0, 1]
    (closed,) = await notices.close_due(DUE_MS, 10)
    assert (await notices.digest(closed, 20)).counts == {AlertKind.EXHAUSTED: 1}


async def test_event_without_a_preference_opens_no_notice(notices: Notices, alerts: Alerts) -> None:
    happened = await happen(alerts, "https://a")
    assert await notices.collect([each.id for each in happened], [], []) == 1
    assert await alerts.events(10) == []
    assert await notices.next_due_ms() is None


async def test_later_events_join_the_open_notice_and_are_sent_with_it(notices: Notices, alerts: Alerts) -> None:
    await take(notices, await happen(alerts, "https://a", at_ms=NOW_MS), opened("n1"))
    later = await happen(alerts, "https://a", at_ms=NOW_MS + SECOND, message="still broken")
    await take(notices, later, opened("n2", due_ms=DUE_MS + SECOND))
    (closed,) = await notices.close_due(DUE_MS + MINUTE, 10)
    assert closed == opened("n1")
    (line,) = (await notices.digest(closed, 20)).lines
    assert (line.count, line.first_ms, line.last_ms, line.message) == (2, NOW_MS, NOW_MS + SECOND, "still broken")


async def test_a_shorter_window_makes_the_open_notice_due_earlier(notices: Notices, alerts: Alerts) -> None:
    await take(notices, await happen(alerts, "https://a"), opened("n1"))
    await take(notices, await happen(alerts, "https://b"), opened("n2", due_ms=NOW_MS))
    assert [each.id for each in await notices.close_due(NOW_MS, 10)] == ["n1"]


async def test_a_closed_notice_gathers_nothing_more_and_stays_until_it_is_dropped(
    notices: Notices, alerts: Alerts
) -> None:
    await take(notices, await happen(alerts, "https://a"), opened("n1"))
    (closed,) = await notices.close_due(DUE_MS, 10)
    await take(notices, await happen(alerts, "https://b"), opened("n2", due_ms=DUE_MS + MINUTE))
    assert [each.id for each in await notices.close_due(DUE_MS, 10)] == ["n1"]
    assert (await notices.digest(closed, 20)).subjects == 1
    await notices.drop("n1")
    await notices.drop("n1")
    assert await notices.close_due(DUE_MS, 10) == []
    assert (await notices.digest(closed, 20)).counts == {}
    assert [each.id for each in await notices.close_due(DUE_MS + MINUTE, 10)] == ["n2"]


async def test_each_preference_has_a_notice_of_its_own(notices: Notices, alerts: Alerts) -> None:
    await take(notices, await happen(alerts, "https://a"), opened("n1"), opened("n2", "dev", due_ms=NOW_MS))
    assert [(each.id, each.preference) for each in await notices.close_due(DUE_MS, 10)] == [
        ("n2", "dev"),
        ("n1", "ops"),
    ]


async def test_a_few_are_closed_at_a_time(notices: Notices, alerts: Alerts) -> None:
    whose = [opened(f"n{i}", f"p{i}", due_ms=NOW_MS + i) for i in range(3)]
    await take(notices, await happen(alerts, "https://a"), *whose)
    assert await notices.close_due(DUE_MS, 2) == whose[:2]
    for each in whose[:2]:
        await notices.drop(each.id)
    assert await notices.close_due(DUE_MS, 2) == whose[2:]


@pytest.mark.slow
async def test_notice_lists_the_first_subjects_and_counts_all(notices: Notices, alerts: Alerts) -> None:
    first = await happen(alerts, "https://z", at_ms=NOW_MS - SECOND)
    await take(notices, first, opened())
    await take(notices, await happen(alerts, *(f"https://{i:04}" for i in range(500))), opened())
    back = await happen(alerts, "https://z", kind=AlertKind.STOPPED, at_ms=NOW_MS + SECOND)
    await take(notices, back, opened())
    (closed,) = await notices.close_due(DUE_MS, 10)
    digest = await notices.digest(closed, 3)
    assert digest.counts == {AlertKind.EXHAUSTED: 501, AlertKind.STOPPED: 1}
    assert (digest.subjects, digest.omitted) == (501, 498)
    assert (digest.first_ms, digest.last_ms) == (NOW_MS - SECOND, NOW_MS + SECOND)
    assert [(line.about, line.kind) for line in digest.lines] == [
        ("https://z", AlertKind.EXHAUSTED),
        ("https://z", AlertKind.STOPPED),
        ("https://0000", AlertKind.EXHAUSTED),
        ("https://0001", AlertKind.EXHAUSTED),
    ]


async def test_gathered_events_are_deleted_with_their_preference(notices: Notices, alerts: Alerts) -> None:
    await put(notices, preference())
    await take(notices, await happen(alerts, "https://a"), opened())
    await notices.delete_preference(TENANT, "ops", audit("alert-preference.delete", NOW_MS))
    assert await notices.close_due(DUE_MS, 10) == []
    assert (await notices.digest(opened(), 20)).counts == {}
