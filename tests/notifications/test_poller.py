"""Rows are published at their time, and a bucket is closed when nothing in it can be lost."""

from msgspec.structs import replace

from noonday.model.notifications.notification import (
    DecisionKind,
    DispatchDecision,
    EventKind,
    Notification,
    NotificationDispatch,
)
from noonday.model.notifications.schedule import BucketProgress, ScheduledRow
from noonday.notifications.dispatching import row_of
from noonday.notifications.housekeeping import NotificationHousekeeper
from noonday.notifications.outcomes import Outcomes, key_of
from noonday.notifications.poller import UNSAVED_ROWS, Poller
from tests.notifications.factories import SendingBench, notification
from tests.support.factories import NOW_MS, TENANT

JOINED = {"push": 100, "sms": 100, "email": 100}


async def stored(bench: SendingBench, one: Notification, scheduled_ms: int | None = None) -> ScheduledRow:
    """Store a row as the acceptor does, without publishing it."""
    at_ms = one.send_ms if scheduled_ms is None else scheduled_ms
    row = row_of(NotificationDispatch(notification=one), 1, at_ms, NOW_MS, bench.placing, bench.sealer)
    await bench.scheduled.put([row], bench.placing.unannounced([row.bucket]), "w")
    return row


async def opened(bench: SendingBench, name: str = "i-1", *, is_durable: bool = False) -> Poller:
    await bench.bus.join("w", JOINED)  # type: ignore[arg-type]
    poller = bench.new_poller(name, is_durable=is_durable)
    await poller.open()
    return poller


async def round_of(poller: Poller, bench: SendingBench) -> list[str]:
    """Run a round. Returns the notifications that it published."""
    await poller.run_once(bench.clock.now_ms())
    return [dispatch.execution_id for dispatch in await bench.waiting()]


async def test_a_row_is_published_a_second_before_its_time_and_once(bench: SendingBench) -> None:
    one = notification(send_ms=NOW_MS + 5_000)
    await stored(bench, one)
    poller = await opened(bench)
    assert await round_of(poller, bench) == []
    bench.clock.advance(4)
    assert await round_of(poller, bench) == [one.id]
    assert await round_of(poller, bench) == []


async def test_a_dispatch_carries_the_time_before_its_row_was_read(bench: SendingBench) -> None:
    await stored(bench, notification())
    poller = await opened(bench)
    await poller.run_once(NOW_MS)
    (dispatch,) = await bench.waiting()
    assert (dispatch.fired_ms, dispatch.due_ms, dispatch.number) == (NOW_MS, NOW_MS, 1)


async def test_nothing_is_published_without_credit(bench: SendingBench) -> None:
    await stored(bench, notification())
    poller = bench.new_poller()
    await poller.open()
    assert await round_of(poller, bench) == []
    await bench.bus.join("w", JOINED)  # type: ignore[arg-type]
    assert len(await round_of(poller, bench)) == 1


async def test_a_row_of_an_older_minute_is_found(bench: SendingBench) -> None:
    one = notification(send_ms=NOW_MS - 7_200_000)
    await stored(bench, one)
    assert await round_of(await opened(bench), bench) == [one.id]


async def test_a_row_that_was_never_published_and_has_expired_is_ended(bench: SendingBench) -> None:
    poller = await opened(bench)
    await poller.run_once(NOW_MS)
    one = notification(send_ms=NOW_MS + 2_000, expires_ms=NOW_MS + 3_000)
    await stored(bench, one)
    bench.clock.advance(10)
    assert await round_of(poller, bench) == []
    assert await bench.names(one) == ["EXPIRED/1"]


async def test_dispatches_of_a_former_process_are_published_again_unless_they_have_ended(bench: SendingBench) -> None:
    ended, open_ = notification(), notification()
    for one in (ended, open_):
        await stored(bench, one)
    await round_of(await opened(bench), bench)
    await bench.record(ended, await bench.send(NotificationDispatch(notification=ended)))
    assert await round_of(await opened(bench, "i-2"), bench) == [open_.id]


async def test_a_marked_row_that_somebody_cancelled_is_not_published(bench: SendingBench) -> None:
    poller = await opened(bench)
    row = await stored(bench, notification(send_ms=NOW_MS + 2_000))
    await bench.scheduled.mark([row])
    await bench.events.decide(DispatchDecision(TENANT, row.id, 1, DecisionKind.CANCELLED))
    bench.clock.advance(2)
    assert await round_of(poller, bench) == []


async def test_a_marked_row_that_is_published_is_decided(bench: SendingBench) -> None:
    row = await stored(bench, notification())
    await bench.scheduled.mark([row])
    assert await round_of(await opened(bench), bench) == [row.id]
    decision = await bench.events.decide(DispatchDecision(TENANT, row.id, 1, DecisionKind.CANCELLED))
    assert decision.kind is DecisionKind.PUBLISHED


async def test_a_bucket_stays_open_until_its_rows_have_ended(bench: SendingBench) -> None:
    """The topics are in memory: a closed bucket is not read again by the next process."""
    one = notification()
    row = await stored(bench, one)
    poller = await opened(bench)
    await round_of(poller, bench)
    for _ in range(3):
        bench.clock.advance(100)
        await poller.run_once(bench.clock.now_ms())
    assert row.bucket not in await bench.scheduled.progress([row.bucket])
    await bench.record(one, await bench.send(NotificationDispatch(notification=one)))
    for _ in range(2):
        bench.clock.advance(100)
        await poller.run_once(bench.clock.now_ms())
    assert (await bench.scheduled.progress([row.bucket]))[row.bucket].closed


async def test_a_bucket_of_durable_topics_is_closed_when_all_is_published(bench: SendingBench) -> None:
    row = await stored(bench, notification())
    poller = await opened(bench, is_durable=True)
    await round_of(poller, bench)
    for _ in range(2):
        bench.clock.advance(100)
        await poller.run_once(bench.clock.now_ms())
    assert (await bench.scheduled.progress([row.bucket]))[row.bucket].closed


async def test_a_row_behind_the_position_is_published_before_its_bucket_is_closed(bench: SendingBench) -> None:
    first = notification(send_ms=NOW_MS + 900)
    await stored(bench, first)
    poller = await opened(bench)
    assert await round_of(poller, bench) == [first.id]
    late = notification()
    await stored(bench, late)
    bench.clock.advance(1)
    assert await round_of(poller, bench) == []
    published: list[str] = []
    for _ in range(2):
        bench.clock.advance(100)
        published += await round_of(poller, bench)
    assert late.id in published


async def test_a_poller_that_was_superseded_stores_no_progress(bench: SendingBench) -> None:
    one = notification()
    row = await stored(bench, one)
    former = await opened(bench, "i-1", is_durable=True)
    await round_of(former, bench)
    await opened(bench, "i-2", is_durable=True)
    await bench.scheduled.advance(BucketProgress(bucket=row.bucket, epoch=2))
    for _ in range(2):
        bench.clock.advance(100)
        await former.run_once(bench.clock.now_ms())
    assert not (await bench.scheduled.progress([row.bucket]))[row.bucket].closed


async def test_progress_is_stored_before_too_much_would_be_published_again(bench: SendingBench) -> None:
    await bench.bus.join("w", {"email": 10**6})  # type: ignore[arg-type]
    poller = bench.new_poller(is_durable=True)
    await poller.open()
    rows = [
        row_of(NotificationDispatch(notification=notification()), 1, NOW_MS, NOW_MS, bench.placing, bench.sealer)
        for _ in range(2_000)
    ]
    bucket = rows[0].bucket
    for _ in range(3):
        await bench.scheduled.put(rows, bench.placing.unannounced([bucket]), "w")
        rows = [_again(row) for row in rows]
    await poller.run_once(NOW_MS)
    assert (await bench.scheduled.progress([bucket]))[bucket].done >= UNSAVED_ROWS


def _again(row: ScheduledRow) -> ScheduledRow:
    return replace(row, id=notification().id)


async def test_outcomes_tell_what_has_ended(bench: SendingBench) -> None:
    outcomes = Outcomes(bench.events)
    one = notification()
    row = await stored(bench, one)
    assert await outcomes.ended([row]) == set()
    bench.provider.answer()
    await bench.record(one, await bench.send(NotificationDispatch(notification=one)))
    assert await outcomes.ended([row]) == {key_of(row)}
    assert EventKind.SENT in [name.split("/")[0] for name in await bench.names(one)]


async def test_closed_buckets_are_dropped_after_a_day(bench: SendingBench) -> None:
    one = notification()
    row = await stored(bench, one)
    poller = await opened(bench, is_durable=True)
    await round_of(poller, bench)
    keeper = NotificationHousekeeper(bench.scheduled, bench.events, bench.send_keys, retention_ms=30 * 86_400_000)
    for _ in range(2):
        bench.clock.advance(100)
        await poller.run_once(bench.clock.now_ms())
    await keeper.run_once(bench.clock.now_ms())
    assert await bench.scheduled.keys(row.bucket) == [row.key]
    bench.clock.advance(86_400 + 200)
    while await keeper.run_once(bench.clock.now_ms()):
        pass
    for _ in range(20):
        await keeper.run_once(bench.clock.now_ms())
    assert await bench.scheduled.keys(row.bucket) == []
