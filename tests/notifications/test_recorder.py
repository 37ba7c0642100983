"""What senders report is recorded once, however often it is read."""

from noonday.model.execution import Failure, Outcome
from noonday.model.ids import TenantId
from noonday.model.notifications.notification import NotificationDispatch
from noonday.model.notifications.sending import ChannelKind, OutcomeKind
from tests.notifications.factories import SendingBench, notification
from tests.support.factories import NOW_MS


async def test_a_deferral_stores_the_next_dispatch_and_its_event(bench: SendingBench) -> None:
    bench.provider.answer(OutcomeKind.RETRY, OutcomeKind.RETRY, retry_after_ms=60_000)
    one = notification()
    await bench.record(one, await bench.send(NotificationDispatch(notification=one)))
    assert await bench.names(one) == ["ACCEPTED", "DEFERRED/1"]
    row = await bench.scheduled.find(TenantId(one.tenant), one.id)
    assert row is not None
    assert (row.number, row.scheduled_ms) == (2, NOW_MS + 60_000)


async def test_a_result_that_is_recorded_twice_changes_nothing(bench: SendingBench) -> None:
    bench.provider.answer(OutcomeKind.RETRY, OutcomeKind.RETRY, retry_after_ms=60_000)
    one = notification()
    result = await bench.send(NotificationDispatch(notification=one))
    await bench.record(one, result)
    bench.clock.advance(30)
    await bench.record(one, result)
    assert await bench.names(one) == ["ACCEPTED", "DEFERRED/1"]
    row = await bench.scheduled.find(TenantId(one.tenant), one.id)
    assert row is not None
    assert await bench.scheduled.keys(row.bucket) == [row.key]


async def test_a_fallback_is_published_at_once(bench: SendingBench) -> None:
    bench.provider.answer(OutcomeKind.RECIPIENT_REJECTED)
    one = notification(channels=(ChannelKind.EMAIL, ChannelKind.SMS))
    await bench.record(one, await bench.send(NotificationDispatch(notification=one)))
    (dispatch,) = await bench.waiting()
    assert (dispatch.execution_id, dispatch.number, dispatch.pool) == (one.id, 2, "sms")


async def test_a_dispatch_that_did_not_start_is_dispatched_again(bench: SendingBench) -> None:
    one = notification()
    await bench.acceptor.accept([one])
    await bench.waiting()
    await bench.record(one, None, outcome=int(Outcome.INTERRUPTED), started_ms=0)
    (dispatch,) = await bench.waiting()
    assert (dispatch.execution_id, dispatch.number) == (one.id, 2)
    assert await bench.names(one) == ["DEFERRED/1"]


async def test_a_sender_that_could_not_read_its_dispatch_ends_it_as_failed(bench: SendingBench) -> None:
    one = notification()
    failure = Failure("BadKey", "sealed with an unknown key")
    await bench.record(one, None, outcome=int(Outcome.FAILED), failure=failure)
    assert await bench.names(one) == ["FAILED/1"]


async def test_a_sender_that_timed_out_leaves_the_outcome_unknown(bench: SendingBench) -> None:
    one = notification()
    await bench.record(one, None, outcome=int(Outcome.TIMED_OUT))
    assert await bench.names(one) == ["UNKNOWN/1"]


async def test_an_unreadable_report_leaves_the_outcome_unknown_and_stops_nothing(bench: SendingBench) -> None:
    one, other = notification(), notification()
    await bench.record_sealed(one, b"not sealed")
    await bench.record(other, await bench.send(NotificationDispatch(notification=other)))
    assert await bench.names(one) == ["UNKNOWN/1"]
    assert await bench.names(other) == ["ACCEPTED", "SENT/1/mail-1"]


async def test_the_key_is_settled_with_the_result(bench: SendingBench) -> None:
    one = notification()
    result = await bench.send(NotificationDispatch(notification=one))
    assert await bench.send_keys.holder(one.tenant, one.send_key) == one.id
    await bench.record(one, result)
    assert await bench.send_keys.holder(one.tenant, one.send_key) is None
