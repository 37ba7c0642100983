import asyncio

import msgspec
import pytest

from noonday.model.ids import TenantId
from noonday.model.notifications.notification import DecisionKind, DispatchDecision, EventKind, NotificationId
from noonday.ports.notifications import NotificationEvents, ScheduledNotifications
from tests.support.factories import DAY, NOW_MS, TENANT
from tests.support.notifications import notification_event, notification_id, scheduled_row

OTHER = TenantId("other")


def decision(
    notification: NotificationId, kind: DecisionKind, number: int = 1, tenant: str = TENANT
) -> DispatchDecision:
    return DispatchDecision(tenant, notification, number, kind)


# Events


async def test_an_event_is_kept_as_it_was_appended(events: NotificationEvents) -> None:
    one = notification_id()
    happened = notification_event(one, name="DEFERRED/2", kind=EventKind.DEFERRED, number=2, detail=bytes(range(256)))
    await events.append([happened])
    assert await events.events_of([(TENANT, one)]) == {one: [happened]}


async def test_an_event_that_exists_stays_as_it_is(events: NotificationEvents) -> None:
    one = notification_id()
    happened = notification_event(one)
    await events.append([happened])
    await events.append([msgspec.structs.replace(happened, at_ms=NOW_MS + 1, detail=b"other", kind=EventKind.FAILED)])
    assert await events.events_of([(TENANT, one)]) == {one: [happened]}


async def test_the_first_of_two_equal_names_in_one_batch_stays(events: NotificationEvents) -> None:
    one = notification_id()
    happened = notification_event(one)
    await events.append([happened, msgspec.structs.replace(happened, detail=b"other")])
    assert await events.events_of([(TENANT, one)]) == {one: [happened]}


async def test_events_come_by_time_and_name(events: NotificationEvents) -> None:
    one = notification_id()
    late, b, a, early = (
        notification_event(one, name=name, at_ms=NOW_MS + at) for name, at in (("A", 2), ("C", 1), ("B", 1), ("D", 0))
    )
    await events.append([late, b])
    await events.append([a, early])
    assert await events.events_of([(TENANT, one)]) == {one: [early, a, b, late]}


async def test_events_of_several_notifications_are_returned(events: NotificationEvents) -> None:
    one, other, third, without = (notification_id() for _ in range(4))
    happened = [notification_event(each) for each in (one, other, third)]
    await events.append(happened)
    asked = [(TENANT, one), (TENANT, other), (TENANT, without), (TENANT, one)]
    assert await events.events_of(asked) == {one: happened[:1], other: happened[1:2]}
    assert await events.events_of([]) == {}


async def test_events_of_another_tenant_are_not_returned(events: NotificationEvents) -> None:
    one = notification_id()
    await events.append([notification_event(one)])
    assert await events.events_of([(OTHER, one)]) == {}


async def test_no_events_are_appended(events: NotificationEvents) -> None:
    await events.append([])
    assert await events.prune(NOW_MS + DAY, 10) == 0


@pytest.mark.slow
async def test_ten_thousand_events_are_appended_at_once(events: NotificationEvents) -> None:
    ids = [notification_id() for _ in range(5_000)]
    happened = [notification_event(each, name=name) for each in ids for name in ("A", "B")]
    await events.append(happened)
    found = await events.events_of([(TENANT, each) for each in ids])
    assert [event for each in ids for event in found[each]] == happened


# Decisions


async def test_the_first_decision_stands(events: NotificationEvents) -> None:
    one = notification_id()
    cancelled = decision(one, DecisionKind.CANCELLED)
    assert await events.decide(cancelled) == cancelled
    assert await events.decide(decision(one, DecisionKind.PUBLISHED)) == cancelled
    assert await events.decide(cancelled) == cancelled
    assert await events.decisions_of([(TENANT, one, 1)]) == {(TENANT, one, 1): cancelled}


async def test_concurrent_deciders_all_learn_the_decision_that_stands(events: NotificationEvents) -> None:
    one = notification_id()
    kinds = [DecisionKind.PUBLISHED, DecisionKind.CANCELLED, DecisionKind.EDITED] * 3
    answers = await asyncio.gather(*(events.decide(decision(one, kind)) for kind in kinds))
    assert len(set(answers)) == 1
    assert await events.decisions_of([(TENANT, one, 1)]) == {(TENANT, one, 1): answers[0]}


async def test_each_dispatch_is_decided_about(events: NotificationEvents) -> None:
    one, other = notification_id(), notification_id()
    made = [
        decision(one, DecisionKind.EDITED, 1),
        decision(one, DecisionKind.PUBLISHED, 2),
        decision(other, DecisionKind.CANCELLED, 1),
        decision(one, DecisionKind.CANCELLED, 1, OTHER),
    ]
    for each in made:
        assert await events.decide(each) == each
    asked = [(each.tenant, each.notification_id, each.number) for each in made]
    assert await events.decisions_of(asked) == dict(zip(asked, made, strict=True))
    assert await events.decisions_of([*asked[:1], (TENANT, other, 2), (OTHER, other, 1)]) == {asked[0]: made[0]}
    assert await events.decisions_of([]) == {}


# By user


async def test_notifications_of_a_user_come_newest_first(
    scheduled: ScheduledNotifications, events: NotificationEvents
) -> None:
    rows = [scheduled_row(created_ms=NOW_MS + at) for at in (1, 3, 2)]
    await scheduled.put(rows, [], "w")
    assert [created for created, _ in await events.of_user(TENANT, "sam", None, 10)] == [
        NOW_MS + at for at in (3, 2, 1)
    ]


async def test_notifications_of_a_user_are_listed_page_by_page(
    scheduled: ScheduledNotifications, events: NotificationEvents
) -> None:
    rows = [scheduled_row(created_ms=NOW_MS - at // 3) for at in range(10)]
    await scheduled.put(rows, [], "w")
    found: list[tuple[int, NotificationId]] = []
    while page := await events.of_user(TENANT, "sam", found[-1] if found else None, 4):
        assert len(page) == min(4, 10 - len(found))
        found += page
    assert found == [(row.created_ms, row.id) for row in rows]


async def test_notifications_of_other_users_and_tenants_are_apart(
    scheduled: ScheduledNotifications, events: NotificationEvents
) -> None:
    await scheduled.put([scheduled_row(), scheduled_row(user_id="kim"), scheduled_row(tenant=OTHER)], [], "w")
    assert len(await events.of_user(TENANT, "sam", None, 10)) == 1
    assert len(await events.of_user(OTHER, "sam", None, 10)) == 1
    assert await events.of_user(OTHER, "kim", None, 10) == []


async def test_events_alone_tell_no_user(events: NotificationEvents, scheduled: ScheduledNotifications) -> None:
    row = scheduled_row()
    await events.append([notification_event(row.id)])
    assert await events.of_user(TENANT, "sam", None, 10) == []
    await scheduled.put([row], [], "w")
    assert await events.of_user(TENANT, "sam", None, 10) == [(row.created_ms, row.id)]


# Deletion


async def test_notifications_are_pruned_with_all_that_is_known(
    scheduled: ScheduledNotifications, events: NotificationEvents
) -> None:
    row = scheduled_row(scheduled_ms=NOW_MS)
    await scheduled.put([row], [], "w")
    await events.append([notification_event(row.id, at_ms=NOW_MS - 1)])
    await events.decide(decision(row.id, DecisionKind.PUBLISHED))
    assert await events.prune(NOW_MS, 10) == 0
    assert await events.prune(NOW_MS + 1, 10) == 1
    assert await events.events_of([(TENANT, row.id)]) == {}
    assert await events.decisions_of([(TENANT, row.id, 1)]) == {}
    assert await events.of_user(TENANT, "sam", None, 10) == []
    assert await events.prune(NOW_MS + 1, 10) == 0


async def test_a_notification_that_was_heard_of_lately_keeps_its_old_events(events: NotificationEvents) -> None:
    one = notification_id()
    old, new = notification_event(one, name="A", at_ms=NOW_MS - DAY), notification_event(one, name="B", at_ms=NOW_MS)
    await events.append([new])
    await events.append([old])
    assert await events.prune(NOW_MS, 10) == 0
    assert await events.events_of([(TENANT, one)]) == {one: [old, new]}


async def test_a_notification_that_is_still_to_be_sent_is_not_pruned(
    scheduled: ScheduledNotifications, events: NotificationEvents
) -> None:
    row = scheduled_row(created_ms=NOW_MS - 300 * DAY, scheduled_ms=NOW_MS)
    accepted = notification_event(row.id, at_ms=NOW_MS - 300 * DAY)
    await scheduled.put([row], [], "w")
    await events.append([accepted])
    assert await events.prune(NOW_MS - 30 * DAY, 10) == 0
    assert await events.events_of([(TENANT, row.id)]) == {row.id: [accepted]}
    assert await events.of_user(TENANT, "sam", None, 10) == [(row.created_ms, row.id)]


async def test_a_later_row_is_heard_of_as_well(scheduled: ScheduledNotifications, events: NotificationEvents) -> None:
    row = scheduled_row()
    later = msgspec.structs.replace(row, number=2, scheduled_ms=NOW_MS + DAY)
    await scheduled.put([row], [], "w")
    await scheduled.put([later], [], "w")
    await scheduled.put([row], [], "w")
    assert await events.prune(NOW_MS + DAY, 10) == 0
    assert await events.prune(NOW_MS + DAY + 1, 10) == 1


async def test_only_so_many_notifications_are_pruned_at_once_oldest_first(events: NotificationEvents) -> None:
    ids = [notification_id() for _ in range(5)]
    for at, each in enumerate(ids):
        await events.append([notification_event(each, name=name, at_ms=NOW_MS + at) for name in ("A", "B")])
    assert await events.prune(NOW_MS + DAY, 2) == 2
    assert set(await events.events_of([(TENANT, each) for each in ids])) == set(ids[2:])
    assert await events.prune(NOW_MS + DAY, 10) == 3
    assert await events.prune(NOW_MS + DAY, 10) == 0


async def test_tenants_are_pruned_apart(events: NotificationEvents) -> None:
    one = notification_id()
    await events.append(
        [notification_event(one, at_ms=NOW_MS), notification_event(one, tenant=OTHER, at_ms=NOW_MS + 1)]
    )
    await events.decide(decision(one, DecisionKind.PUBLISHED, tenant=OTHER))
    assert await events.prune(NOW_MS + 1, 10) == 1
    assert await events.events_of([(TENANT, one)]) == {}
    assert set(await events.events_of([(OTHER, one)])) == {one}
    assert set(await events.decisions_of([(OTHER, one, 1)])) == {(OTHER, one, 1)}
