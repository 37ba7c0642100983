from dataclasses import replace
from typing import Any

import pytest

from noonday.doubles.behaviour import Behaviour, Cut
from noonday.model.errors import Flaw
from noonday.model.notifications.sending import AddressEffect, OutcomeKind, ProviderKind
from noonday.notifications.providers.hosts import ProviderHosts
from noonday.notifications.providers.twilio import TwilioProvider
from noonday.notifications.providers.twilio_account import flaws_of
from noonday.notifications.providers.twilio_codes import CODES, TwilioCode, meaning_of
from noonday.notifications.providers.twilio_receipts import read_receipts
from noonday.notifications.providers.twilio_sms import found_in
from noonday.webhooks.addresses import Networks
from noonday.webhooks.calling import CallError, ErrorKind, Exchange, Timings
from tests.notifications.providers.doubles import running
from tests.notifications.providers.messages import NOTIFICATION, content, message
from tests.notifications.providers.receipt_door import receipt_door
from tests.support.eventually import eventually
from tests.support.factories import MINUTE, NOW_MS

TWILIO = ProviderKind.TWILIO
ACCEPTED, RETRY, UNKNOWN = OutcomeKind.ACCEPTED, OutcomeKind.RETRY, OutcomeKind.UNKNOWN
REQUEST, RECIPIENT = OutcomeKind.REQUEST_REJECTED, OutcomeKind.RECIPIENT_REJECTED
FAULT = OutcomeKind.CONFIGURATION_FAULT
KEEP, RETIRE, SUPPRESS = AddressEffect.KEEP, AddressEffect.RETIRE, AddressEffect.SUPPRESS
HOSTS = ProviderHosts(Networks(), [("127.0.0.1", 4000)])
SECRETS = {"account_sid": "AC" + "0" * 32, "auth_token": "12345"}

FACTS = [
    (20003, FAULT, KEEP),
    (20429, RETRY, KEEP),
    (21211, RECIPIENT, RETIRE),
    (21408, FAULT, KEEP),
    (21606, FAULT, KEEP),
    (21608, FAULT, KEEP),
    (21610, RECIPIENT, SUPPRESS),
    (21612, RECIPIENT, RETIRE),
    (21614, RECIPIENT, RETIRE),
    (30001, RETRY, KEEP),
    (30003, RETRY, KEEP),
    (30005, RECIPIENT, RETIRE),
    (30006, RECIPIENT, KEEP),
    (30007, REQUEST, KEEP),
    (30008, RETRY, KEEP),
    (21617, REQUEST, KEEP),
    (29999, REQUEST, KEEP),
]


@pytest.mark.slow
async def test_an_sms_arrives_with_its_time_limit() -> None:
    async with running(TWILIO) as twilio:
        outcome = await twilio.send(expires_ms=NOW_MS + 5 * MINUTE)
    [accepted] = twilio.accepted
    assert (outcome.kind, outcome.provider_id) == (ACCEPTED, accepted.provider_id)
    assert (accepted.sender, accepted.to) == ("+15005550006", "+4930123456")
    assert (accepted.text, accepted.data) == ("Order A-17 is on its way.", {"ValidityPeriod": "300"})


@pytest.mark.slow
@pytest.mark.parametrize(("code", "kind", "effect"), FACTS)
async def test_each_error_code_has_its_outcome(code: int, kind: OutcomeKind, effect: AddressEffect) -> None:
    async with running(TWILIO) as twilio:
        outcome = await twilio.send("+4930123456", Behaviour(code=str(code)))
        assert (outcome.kind, outcome.effect, outcome.code) == (kind, effect, str(code))
        assert outcome.alerts == (kind is FAULT or code == 30007)
        assert "4930" not in repr(outcome)
        assert outcome.retry_after_ms == (1_000 if code == 20429 else None)
        assert twilio.accepted == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (429, RETRY),
        (503, RETRY),
        (500, UNKNOWN),
        (502, UNKNOWN),
        (504, UNKNOWN),
        (200, UNKNOWN),
        (400, REQUEST),
        (403, FAULT),
    ],
)
async def test_an_answer_without_a_code_is_judged_by_its_status(status: int, kind: OutcomeKind) -> None:
    async with running(TWILIO) as twilio:
        outcome = await twilio.send("+4930123456", Behaviour(code=str(status)))
        assert (outcome.kind, outcome.code) == (kind, str(status))


@pytest.mark.slow
async def test_wrong_credentials_are_a_fault_of_the_account() -> None:
    async with running(TWILIO) as twilio:
        wrong = [("auth_token", "wrong", "20003"), ("account_sid", "AC" + "0" * 32, "20003")]
        for name, value, code in wrong:
            account = replace(twilio.account, secrets={**twilio.account.secrets, name: value})
            outcome = await twilio.provider.send(account, twilio.message())
            assert (outcome.kind, outcome.code, outcome.alerts) == (FAULT, code, True)


@pytest.mark.slow
@pytest.mark.parametrize(("cut", "accepted"), [(Cut.BEFORE, 0), (Cut.AFTER, 1)])
async def test_a_connection_that_ends_without_an_answer_is_unknown(cut: Cut, accepted: int) -> None:
    async with running(TWILIO) as twilio:
        outcome = await twilio.send("+4930123456", Behaviour(cut=cut))
        assert (outcome.kind, outcome.code) == (UNKNOWN, "RESET")
        assert len(twilio.accepted) == accepted


@pytest.mark.slow
async def test_a_timeout_after_the_request_left_is_unknown() -> None:
    """The time limit grows until the double has got the request, however slow the machine is."""
    for timeout_sec in (0.5, 5.0, 50.0):
        async with running(TWILIO, timeout_sec=timeout_sec) as twilio:
            outcome = await twilio.send("+17029999900")
            if twilio.clock.sleepers:
                break
    assert (outcome.kind, outcome.code) == (UNKNOWN, "TIMEOUT_AFTER_SENT")


@pytest.mark.slow
async def test_nothing_left_is_a_retry() -> None:
    async with running(TWILIO) as twilio:
        account = twilio.account
        await twilio.doubles.stop()
        outcome = await twilio.provider.send(account, twilio.message())
        assert (outcome.kind, outcome.code) == (RETRY, "CONNECT")


@pytest.mark.slow
async def test_an_url_that_the_operator_has_not_listed_gets_no_credentials() -> None:
    async with running(TWILIO) as twilio:
        provider = twilio.provider
        assert isinstance(provider, TwilioProvider)
        provider._hosts = ProviderHosts(Networks())
        outcome = await provider.send(twilio.account, twilio.message())
        assert (outcome.kind, outcome.code) == (FAULT, "BAD_ACCOUNT")
        assert twilio.calls == []


@pytest.mark.slow
async def test_a_message_without_a_text_is_refused_before_it_is_sent() -> None:
    async with running(TWILIO) as twilio:
        outcome = await twilio.send(content=content(title=None, text=None))
        assert (outcome.kind, outcome.detail) == (REQUEST, "an SMS needs a text, and the content has none")
        assert twilio.calls == []


@pytest.mark.slow
async def test_a_messaging_service_replaces_the_sender() -> None:
    async with running(TWILIO) as twilio:
        service = "MG" + "a" * 32
        settings = {"messaging_service_sid": service, "url": twilio.account.settings["url"]}
        account = replace(twilio.account, settings=settings)
        assert (await twilio.provider.send(account, twilio.message())).kind is ACCEPTED
        assert twilio.accepted[0].sender == service


@pytest.mark.slow
async def test_an_unknown_sms_is_found() -> None:
    async with running(TWILIO) as twilio:
        sent = twilio.message()
        assert await twilio.provider.find(twilio.account, sent, NOW_MS) is None
        twilio.doubles.scripts.put(sent.address, [Behaviour(cut=Cut.AFTER)])
        assert (await twilio.provider.send(twilio.account, sent)).kind is UNKNOWN
        found = await twilio.provider.find(twilio.account, sent, NOW_MS)
        assert found is not None
        assert (found.kind, found.provider_id) == (ACCEPTED, twilio.accepted[0].provider_id)
        # Not another text, not another time.
        assert await twilio.provider.find(twilio.account, replace(sent, content=content(text="other")), NOW_MS) is None
        assert await twilio.provider.find(twilio.account, sent, NOW_MS + MINUTE) is None
        assert await twilio.provider.find(twilio.account, sent, NOW_MS - 5 * MINUTE) is None


@pytest.mark.slow
async def test_two_equal_sms_cannot_be_told_apart() -> None:
    async with running(TWILIO) as twilio:
        for _ in range(2):
            await twilio.send()
        assert await twilio.provider.find(twilio.account, twilio.message(), NOW_MS) is None


def test_an_unreadable_look_up_tells_nothing() -> None:
    timings = Timings(1.0)
    for exchange in (
        Exchange(NOW_MS, timings, status=200, body=b"<html>"),
        Exchange(NOW_MS, timings, status=503, body=b'{"messages": []}'),
        Exchange(NOW_MS, timings, error=CallError(ErrorKind.RESET, "cut")),
    ):
        assert found_in(exchange, message(TWILIO), NOW_MS) is None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("address", "states"),
    [
        ("+4930123456", ["SENT", "DELIVERED"]),
        ("+17040000100", ["DELIVERED", "SENT"]),
        ("+17040000200", ["SENT", "SENT", "DELIVERED", "DELIVERED"]),
        ("+17013000500", ["SENT", "BOUNCED"]),
    ],
)
async def test_receipts_name_the_dispatch(address: str, states: list[str]) -> None:
    async with receipt_door() as door, running(TWILIO) as twilio:
        outcome = await twilio.send(address, callback_url=door.url, number=7)
        await eventually(lambda: len(door.requests) == len(states))
        receipts = [receipt for request in door.requests for receipt in read_receipts(twilio.account, request)]
    assert [receipt.kind for receipt in receipts] == states
    assert {(each.notification_id, each.number, each.provider_id) for each in receipts} == {
        (NOTIFICATION, 7, outcome.provider_id)
    }
    if "BOUNCED" in states:
        assert (receipts[-1].code, receipts[-1].effect) == ("30005", RETIRE)


@pytest.mark.slow
async def test_stop_and_start_of_a_user_are_receipts_about_the_address() -> None:
    async with receipt_door() as door, running(TWILIO) as twilio:
        user, sender = "+4930123456", "+15005550006"
        for text in ("stop ", "Hello", "START"):
            assert await twilio.doubles.twilio.send_inbound(door.url, user, sender, text) == (200, None)
            outcome = await twilio.send(user)
            assert outcome.effect is (SUPPRESS if text != "START" else KEEP)
        stop, nothing, start = (read_receipts(twilio.account, request) for request in door.requests)
        assert [(each.kind, each.effect, each.address, each.notification_id) for each in stop + start] == [
            ("OPTED_OUT", SUPPRESS, user, None),
            ("OPTED_IN", AddressEffect.RESTORE, user, None),
        ]
        assert nothing == []


@pytest.mark.parametrize("code", CODES)
def test_a_code_has_one_meaning_whatever_its_status(code: int) -> None:
    assert meaning_of(code, 500) == meaning_of(code) == CODES[code]


def test_an_unknown_code_is_judged_by_its_status() -> None:
    kinds = {status: meaning_of(1, status).kind for status in (400, 401, 403, 404, 429, 500)}
    assert kinds == {400: REQUEST, 401: FAULT, 403: FAULT, 404: FAULT, 429: RETRY, 500: RETRY}
    assert isinstance(meaning_of(1), TwilioCode)


@pytest.mark.parametrize(
    ("settings", "secrets", "pointer"),
    [
        ({}, SECRETS, "/settings"),
        ({"from": "+15005550006", "messaging_service_sid": "MG" + "0" * 32}, SECRETS, "/settings"),
        ({"from": "+0"}, SECRETS, "/settings/from"),
        ({"from": "Shop", "url": "https://api.twilio.com.evil.test"}, SECRETS, "/settings/url"),
        ({"from": "Shop", "url": "http://api.twilio.com"}, SECRETS, "/settings/url"),
        ({"from": "Shop", "url": "https://api.twilio.com/x"}, SECRETS, "/settings/url"),
        ({"from": "Shop", "url": "http://127.0.0.1:4001"}, SECRETS, "/settings/url"),
        ({"from": "Shop", "url": "nowhere"}, SECRETS, "/settings/url"),
        ({"from": "Shop"}, {"account_sid": "AC" + "0" * 32}, "/secrets/auth_token"),
        ({"from": "Shop"}, {**SECRETS, "account_sid": "x"}, "/secrets/account_sid"),
        ({"from": "Shop"}, {**SECRETS, "api_key_secret": "x"}, "/secrets"),
    ],
)
def test_each_flaw_is_located(settings: dict[str, Any], secrets: dict[str, str], pointer: str) -> None:
    [flaw] = flaws_of(settings, secrets, HOSTS)
    assert isinstance(flaw, Flaw)
    assert flaw.pointer == pointer


@pytest.mark.parametrize(
    "url", ["https://api.twilio.com", "https://api.dublin.ie1.twilio.com/", "http://127.0.0.1:4000"]
)
def test_urls_of_twilio_and_of_the_operator_are_allowed(url: str) -> None:
    assert flaws_of({"from": "72433", "url": url}, SECRETS, HOSTS) == []
