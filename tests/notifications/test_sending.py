"""Each outcome of a provider, and what follows from it."""

import asyncio

import pytest
from msgspec.structs import replace

from noonday.model.errors import StoreUnavailable
from noonday.model.notifications.notification import EventKind, NotificationDispatch, OnUnknown
from noonday.model.notifications.results import KeySettlement, SendResult
from noonday.model.notifications.sending import ChannelKind, OutcomeKind, ProviderOutcome
from noonday.notifications.send_results import SHORTEST_MS
from tests.notifications.factories import SendingBench, notification
from tests.support.factories import NOW_MS, TENANT


def kinds_of(result: SendResult) -> list[EventKind]:
    return [event.kind for event in result.events if event.kind is not EventKind.ACCEPTED]


def last_reason(result: SendResult) -> str:
    return result.events[-1].detail.reason or ""


async def test_an_accepted_message_is_sent_and_keeps_its_key(bench: SendingBench) -> None:
    result = await bench.send(NotificationDispatch(notification=notification()))
    assert kinds_of(result) == [EventKind.SENT]
    assert result.key is KeySettlement.SENT
    assert result.next is None
    assert result.events[-1].detail.provider == "mail-1"


@pytest.mark.parametrize("kind", [OutcomeKind.REQUEST_REJECTED, OutcomeKind.RETRY, OutcomeKind.CONFIGURATION_FAULT])
async def test_the_next_provider_is_called_when_one_did_not_take_it(bench: SendingBench, kind: OutcomeKind) -> None:
    bench.provider.answer(kind)
    result = await bench.send(NotificationDispatch(notification=notification()))
    assert bench.provider.called == ["mail-1", "mail-2"]
    assert kinds_of(result) == [EventKind.SENT]


async def test_a_rejected_recipient_is_tried_on_the_next_channel_and_with_no_other_provider(
    bench: SendingBench,
) -> None:
    bench.provider.answer(OutcomeKind.RECIPIENT_REJECTED)
    one = notification(channels=(ChannelKind.EMAIL, ChannelKind.SMS))
    result = await bench.send(NotificationDispatch(notification=one))
    assert bench.provider.called == ["mail-1"]
    assert kinds_of(result) == [EventKind.FELL_BACK]
    assert result.key is KeySettlement.RELEASE
    assert result.next is not None
    assert result.next.dispatch.channel is ChannelKind.SMS


async def test_a_rejected_recipient_on_the_last_channel_fails_with_the_reason(bench: SendingBench) -> None:
    bench.provider.answer(OutcomeKind.RECIPIENT_REJECTED)
    result = await bench.send(NotificationDispatch(notification=notification()))
    assert kinds_of(result) == [EventKind.FAILED]
    assert last_reason(result) == "mail-1: said so"


async def test_a_retryable_answer_of_all_providers_defers_by_the_longest_delay_they_ask_for(
    bench: SendingBench,
) -> None:
    bench.provider.answer(OutcomeKind.RETRY, retry_after_ms=90_000)
    bench.provider.answer(OutcomeKind.RETRY)
    result = await bench.send(NotificationDispatch(notification=notification()))
    assert kinds_of(result) == [EventKind.DEFERRED]
    assert result.next is not None
    assert result.next.at_ms == NOW_MS + 90_000
    assert result.next.dispatch.tries == 1


async def test_waits_between_tries_grow(bench: SendingBench) -> None:
    waits = []
    for tries in range(6):
        bench.provider.answer(OutcomeKind.RETRY, OutcomeKind.RETRY)
        result = await bench.send(NotificationDispatch(notification=notification(), tries=tries))
        assert result.next is not None
        waits.append(result.next.at_ms - NOW_MS)
    assert all(SHORTEST_MS / 2 * 2**tries <= wait <= SHORTEST_MS * 2**tries for tries, wait in enumerate(waits))


async def test_a_deferral_ends_at_the_expiry(bench: SendingBench) -> None:
    bench.provider.answer(OutcomeKind.RETRY, OutcomeKind.RETRY, retry_after_ms=10**9)
    one = notification(expires_ms=NOW_MS + 60_000)
    result = await bench.send(NotificationDispatch(notification=one))
    assert result.next is not None
    assert result.next.at_ms == NOW_MS + 60_000


async def test_an_account_that_refused_the_request_is_not_asked_again(bench: SendingBench) -> None:
    bench.provider.answer(OutcomeKind.REQUEST_REJECTED, OutcomeKind.RETRY)
    result = await bench.send(NotificationDispatch(notification=notification()))
    assert result.next is not None
    assert result.next.dispatch.excluded == ("mail-1",)


async def test_an_unknown_outcome_goes_to_no_other_provider_and_no_other_channel(bench: SendingBench) -> None:
    bench.provider.answer(OutcomeKind.UNKNOWN)
    one = notification(channels=(ChannelKind.EMAIL, ChannelKind.SMS))
    result = await bench.send(NotificationDispatch(notification=one))
    assert bench.provider.called == ["mail-1"]
    assert kinds_of(result) == [EventKind.UNKNOWN]
    assert (result.next, result.key) == (None, KeySettlement.SENT)


async def test_an_unknown_outcome_is_looked_up_if_the_notification_says_so(bench: SendingBench) -> None:
    one = notification(on_unknown=OnUnknown.LOOK_UP)
    bench.provider.answer(OutcomeKind.UNKNOWN, OutcomeKind.UNKNOWN)
    assert kinds_of(await bench.send(NotificationDispatch(notification=one))) == [EventKind.UNKNOWN]
    bench.provider.found = ProviderOutcome(OutcomeKind.ACCEPTED, provider_id="found")
    other = notification(on_unknown=OnUnknown.LOOK_UP)
    result = await bench.send(NotificationDispatch(notification=other))
    assert kinds_of(result) == [EventKind.SENT]
    assert result.events[-1].detail.provider_id == "found"


async def test_an_unknown_outcome_is_sent_again_if_the_notification_says_so(bench: SendingBench) -> None:
    bench.provider.answer(OutcomeKind.UNKNOWN)
    one = notification(on_unknown=OnUnknown.SEND_AGAIN)
    result = await bench.send(NotificationDispatch(notification=one))
    assert kinds_of(result) == [EventKind.DEFERRED]
    assert result.key is KeySettlement.RELEASE


@pytest.mark.parametrize("error", [asyncio.CancelledError(), RuntimeError("boom")])
async def test_a_call_that_breaks_is_unknown(bench: SendingBench, error: BaseException) -> None:
    bench.provider.outcomes.append(error)
    result = await bench.send(NotificationDispatch(notification=notification()))
    assert kinds_of(result) == [EventKind.UNKNOWN]


async def test_a_second_delivery_of_a_dispatch_that_did_not_report_is_unknown_and_calls_nobody(
    bench: SendingBench,
) -> None:
    one = notification()
    await bench.send(NotificationDispatch(notification=one))
    result = await bench.send(NotificationDispatch(notification=one))
    assert bench.provider.called == ["mail-1"]
    assert kinds_of(result) == [EventKind.UNKNOWN]


async def test_a_delivery_of_a_dispatch_that_was_recorded_says_nothing(bench: SendingBench) -> None:
    one = notification()
    await bench.record(one, await bench.send(NotificationDispatch(notification=one)))
    assert await bench.send(NotificationDispatch(notification=one)) == SendResult()
    assert bench.provider.called == ["mail-1"]


async def test_a_second_notification_with_a_key_waits_and_is_a_duplicate(bench: SendingBench) -> None:
    first, second = (notification(send_key="same", key_window_ms=60_000) for _ in range(2))
    sent = await bench.send(NotificationDispatch(notification=first))
    waiting = await bench.send(NotificationDispatch(notification=second))
    assert kinds_of(waiting) == [EventKind.DEFERRED]
    await bench.record(first, sent)
    await bench.record(second, waiting)
    result = await bench.send(NotificationDispatch(notification=second), 2)
    assert kinds_of(result) == [EventKind.DUPLICATE]
    assert bench.provider.called == ["mail-1"]


async def test_a_key_whose_holder_has_ended_without_a_note_is_settled_for_it(bench: SendingBench) -> None:
    """The recorder dies between the events and the key."""
    first, second = (notification(send_key="same", key_window_ms=60_000) for _ in range(2))
    sent = await bench.send(NotificationDispatch(notification=first))
    await bench.record(first, replace(sent, key=KeySettlement.KEEP))
    assert kinds_of(await bench.send(NotificationDispatch(notification=second))) == [EventKind.DEFERRED]
    result = await bench.send(NotificationDispatch(notification=second), 2)
    assert kinds_of(result) == [EventKind.DUPLICATE]


async def test_an_expired_notification_calls_nobody(bench: SendingBench) -> None:
    result = await bench.send(NotificationDispatch(notification=notification(expires_ms=NOW_MS)))
    assert kinds_of(result) == [EventKind.EXPIRED]
    assert bench.provider.called == []


async def test_an_expired_notification_whose_call_was_not_reported_is_unknown(bench: SendingBench) -> None:
    one = notification(expires_ms=NOW_MS + 1_000)
    await bench.send(NotificationDispatch(notification=one))
    bench.clock.advance(2)
    assert kinds_of(await bench.send(NotificationDispatch(notification=one))) == [EventKind.UNKNOWN]


async def test_an_unknown_user_fails_with_the_reason(bench: SendingBench) -> None:
    result = await bench.send(NotificationDispatch(notification=notification(user_id="nobody")))
    assert kinds_of(result) == [EventKind.FAILED]
    assert "address" in last_reason(result)


async def test_a_user_without_an_address_is_reached_by_the_next_channel(bench: SendingBench) -> None:
    await bench.add_user(phone=None)
    one = notification(channels=(ChannelKind.SMS, ChannelKind.EMAIL))
    result = await bench.send(NotificationDispatch(notification=one))
    assert result.next is not None
    assert result.next.dispatch.channel is ChannelKind.EMAIL
    assert bench.provider.called == []


async def test_a_channel_without_an_account_fails_with_the_reason(bench: SendingBench) -> None:
    await bench.add_user()
    one = notification(channels=(ChannelKind.PUSH,))
    assert kinds_of(await bench.send(NotificationDispatch(notification=one))) == [EventKind.FAILED]


async def test_an_unreadable_profile_fails_and_stops_nothing(bench: SendingBench) -> None:
    await bench.store.users.put(TENANT, "broken", b"no envelope", NOW_MS)
    result = await bench.send(NotificationDispatch(notification=notification(user_id="broken")))
    assert kinds_of(result) == [EventKind.FAILED]
    assert "cannot be read" in last_reason(result)


async def test_a_store_that_is_away_defers(bench: SendingBench, monkeypatch: pytest.MonkeyPatch) -> None:
    async def away(*_: object) -> None:
        raise StoreUnavailable("the disk is full")

    monkeypatch.setattr(type(bench.send_keys), "take", away)
    result = await bench.send(NotificationDispatch(notification=notification()))
    assert kinds_of(result) == [EventKind.DEFERRED]
    assert bench.provider.called == []


async def test_the_handlers_decode_what_rows_carry(bench: SendingBench) -> None:
    handlers = bench.sender.handlers()
    assert {pool for pool, _ in handlers} == {"push", "sms", "email"}
