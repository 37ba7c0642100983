import asyncio
from dataclasses import replace
from typing import Any

import aiohttp
import msgspec
import pytest

from noonday.doubles.behaviour import Behaviour, Cut
from noonday.doubles.fcm import LIFE_SEC, PROJECT, FcmDouble
from noonday.doubles.running import Doubles
from noonday.model.notifications.sending import AddressEffect, OutcomeKind, ProviderKind
from noonday.notifications.providers.fcm import FcmProvider
from noonday.notifications.providers.fcm_account import ServiceAccount, flaws_of, service_account_of
from noonday.notifications.providers.fcm_tokens import AccessTokens, TokenRefused
from noonday.notifications.providers.hosts import ProviderHosts
from noonday.webhooks.addresses import Networks
from tests.notifications.providers.doubles import Running, running
from tests.notifications.providers.messages import NOTIFICATION, content
from tests.support.clock import ManualClock
from tests.support.factories import DAY, HOUR, NOW_MS

FCM = ProviderKind.FCM
ACCEPTED, RETRY, UNKNOWN = OutcomeKind.ACCEPTED, OutcomeKind.RETRY, OutcomeKind.UNKNOWN
REQUEST, RECIPIENT, FAULT = (
    OutcomeKind.REQUEST_REJECTED,
    OutcomeKind.RECIPIENT_REJECTED,
    OutcomeKind.CONFIGURATION_FAULT,
)
KEEP, RETIRE = AddressEffect.KEEP, AddressEffect.RETIRE
HOSTS = ProviderHosts(Networks(), [("127.0.0.1", 4000)])


def with_service(fcm: Running, **changes: str) -> Any:
    service = msgspec.json.decode(fcm.account.secrets["service_account"])
    return replace(fcm.account, secrets={"service_account": msgspec.json.encode({**service, **changes}).decode()})


@pytest.mark.slow
async def test_a_push_message_arrives() -> None:
    async with running(FCM) as fcm:
        data = {"order": {"id": "A-17"}, "kind": "shipped"}
        outcome = await fcm.send("device:1", content=content(data=data), urgent=True, expires_ms=NOW_MS + HOUR)
    [accepted] = fcm.accepted
    assert (outcome.kind, outcome.provider_id) == (ACCEPTED, accepted.provider_id)
    assert (accepted.to, accepted.title, accepted.text) == ("device:1", "Shipped", "Order A-17 is on its way.")
    assert accepted.data["data"] == {"notification_id": NOTIFICATION, "order": '{"id":"A-17"}', "kind": "shipped"}
    assert accepted.data["android"] == {"priority": "HIGH", "ttl": "3600s", "notification": {"tag": NOTIFICATION}}
    assert accepted.data["apns"]["headers"]["apns-collapse-id"] == NOTIFICATION


@pytest.mark.slow
async def test_a_message_without_a_text_is_data_only_and_lives_four_weeks_at_most() -> None:
    async with running(FCM) as fcm:
        await fcm.send(content=content(title=None, text=None), expires_ms=NOW_MS + 60 * DAY)
        assert fcm.accepted[0].data["android"] == {"priority": "NORMAL", "ttl": f"{28 * 86_400}s"}
        assert fcm.accepted[0].title is None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "kind", "effect", "wait_ms"),
    [
        ("UNREGISTERED", RECIPIENT, RETIRE, None),
        ("INVALID_ARGUMENT", RECIPIENT, RETIRE, None),
        ("BAD_FIELD", REQUEST, KEEP, None),
        ("SENDER_ID_MISMATCH", RECIPIENT, RETIRE, None),
        ("QUOTA_EXCEEDED", RETRY, KEEP, 60_000),
        ("UNAVAILABLE", RETRY, KEEP, 7_000),
        ("INTERNAL", RETRY, KEEP, None),
        ("THIRD_PARTY_AUTH_ERROR", FAULT, KEEP, None),
        ("502", UNKNOWN, KEEP, None),
        ("504", UNKNOWN, KEEP, None),
        ("200", UNKNOWN, KEEP, None),
        ("404", FAULT, KEEP, None),
        ("413", REQUEST, KEEP, None),
    ],
)
async def test_each_error_has_its_outcome(
    code: str, kind: OutcomeKind, effect: AddressEffect, wait_ms: int | None
) -> None:
    async with running(FCM) as fcm:
        outcome = await fcm.send("device:1", Behaviour(code=code))
        assert (outcome.kind, outcome.effect, outcome.retry_after_ms) == (kind, effect, wait_ms)
        assert outcome.alerts == (kind is FAULT or code == "SENDER_ID_MISMATCH")
        assert "device:1" not in repr(outcome)
        assert fcm.accepted == []
        assert fcm.calls == [code]


@pytest.mark.slow
@pytest.mark.parametrize(("cut", "accepted"), [(Cut.BEFORE, 0), (Cut.AFTER, 1)])
async def test_a_connection_that_ends_without_an_answer_is_unknown(cut: Cut, accepted: int) -> None:
    async with running(FCM) as fcm:
        outcome = await fcm.send("device:1", Behaviour(cut=cut))
        assert (outcome.kind, len(fcm.accepted)) == (UNKNOWN, accepted)
        assert await fcm.provider.find(fcm.account, fcm.message(), NOW_MS) is None


@pytest.mark.slow
async def test_messages_share_an_access_token_until_it_ends() -> None:
    async with running(FCM) as fcm:
        double = fcm.doubles.fcm
        assert isinstance(double, FcmDouble)
        sent = await asyncio.gather(*(fcm.send(f"device:{each}") for each in range(20)))
        assert {each.kind for each in sent} == {ACCEPTED}
        assert len(double._tokens) == 1
        fcm.clock.advance(LIFE_SEC)
        assert (await fcm.send()).kind is ACCEPTED
        assert len(double._tokens) == 2


@pytest.mark.slow
async def test_a_revoked_access_token_is_replaced_within_the_call() -> None:
    async with running(FCM) as fcm:
        await fcm.send()
        fcm.doubles.fcm.revoke_tokens()
        assert (await fcm.send()).kind is ACCEPTED
        assert fcm.calls == ["accepted", "accepted"]


@pytest.mark.slow
async def test_a_wrong_service_account_is_a_fault_of_the_account() -> None:
    async with running(FCM) as fcm:
        assert isinstance(fcm.provider, FcmProvider)
        wrong = [
            ("client_email", "eve@example.com", "TOKEN"),
            ("private_key_id", "k", "TOKEN"),
            ("project_id", "p", "403"),
        ]
        for name, value, code in wrong:
            outcome = await fcm.provider.send(with_service(fcm, **{name: value}), fcm.message())
            assert (outcome.kind, outcome.code) == (FAULT, code)
            assert "PRIVATE" not in repr(outcome)


@pytest.mark.slow
async def test_without_an_access_token_nothing_is_sent() -> None:
    async with running(FCM) as fcm:
        account = replace(fcm.account, settings={**fcm.account.settings, "token_url": "http://127.0.0.1:9"})
        fcm.hosts._operated |= {("127.0.0.1", 9)}
        outcome = await fcm.provider.send(account, fcm.message())
        assert (outcome.kind, outcome.code) == (RETRY, "TOKEN")
        assert fcm.calls == []


@pytest.mark.slow
async def test_a_failed_fetch_is_shared_by_the_messages_that_wait() -> None:
    async with running(FCM) as fcm:
        provider = fcm.provider
        assert isinstance(provider, FcmProvider)
        tokens, wrong = provider._tokens, with_service(fcm, client_email="eve@example.com")
        assert isinstance(tokens, AccessTokens)
        found = await asyncio.gather(*(tokens.get(wrong, service_account_of(wrong)) for _ in range(5)))
        assert all(isinstance(each, TokenRefused) and each is found[0] for each in found)


@pytest.mark.slow
async def test_data_with_a_reserved_name_is_refused_before_it_is_sent() -> None:
    async with running(FCM) as fcm:
        for name in ("from", "google.x", "gcm_y", "message_type"):
            outcome = await fcm.send(content=content(data={name: "x"}))
            assert (outcome.kind, outcome.code) == (REQUEST, "BAD_MESSAGE")
            assert repr(name) in (outcome.detail or "")
        assert fcm.calls == []


@pytest.mark.slow
async def test_a_large_message_is_refused_before_it_costs_the_device_token() -> None:
    """FCM calls it INVALID_ARGUMENT, as it calls a device token that does not exist."""
    async with running(FCM) as fcm:
        outcome = await fcm.send(content=content(data={"a": "ü" * 2_100}))
        assert (outcome.kind, outcome.effect) == (REQUEST, KEEP)
        assert "FCM takes at most 4096" in (outcome.detail or "")
        assert (await fcm.send(content=content(data={"a": "ü" * 1_900}))).kind is ACCEPTED
        assert fcm.calls == ["accepted"]


@pytest.mark.slow
async def test_the_double_checks_the_message() -> None:
    async with running(FCM) as fcm, aiohttp.ClientSession(fcm.doubles.url) as http:
        await fcm.send()
        [token] = fcm.doubles.fcm._tokens
        headers = {"Authorization": f"Bearer {token}"}
        for message, status in (
            ({"token": "t"}, 200),
            ({"topic": "t"}, 200),
            ({"token": "t", "topic": "t"}, 400),
            ({}, 400),
            ({"token": "t", "data": {"a": 1}}, 400),
            ({"token": "t", "data": {"from": "x"}}, 400),
            ({"token": "t", "data": {"a": "x" * 4_096}}, 400),
            ("t", 400),
        ):
            body = {"message": message, "validate_only": True}
            async with http.post(f"/v1/projects/{PROJECT}/messages:send", json=body, headers=headers) as answer:
                assert (message, answer.status) == (message, status)
        async with http.post("/token", data={"grant_type": "password"}) as answer:
            assert answer.status == 400
        assert len(fcm.accepted) == 1


@pytest.mark.parametrize(
    ("settings", "secrets", "pointer"),
    [
        ({}, {}, "/secrets/service_account"),
        ({}, {"service_account": "{}"}, "/secrets/service_account"),
        ({}, {"service_account": "x" * 9_000}, "/secrets/service_account"),
        ({"token_url": "https://evil.test"}, None, "/settings/token_url"),
        ({"url": "http://127.0.0.1:4001"}, None, "/settings/url"),
    ],
)
def test_each_flaw_is_located(settings: dict[str, Any], secrets: dict[str, str] | None, pointer: str) -> None:
    valid = {"service_account": Doubles(ManualClock()).fcm.service_account()}
    [flaw] = flaws_of(settings, valid if secrets is None else secrets, HOSTS)
    assert flaw.pointer == pointer
    assert flaw.value is None or "PRIVATE" not in flaw.value
    assert flaws_of({"url": "http://127.0.0.1:4000"}, valid, HOSTS) == []


async def test_a_service_account_hides_its_key() -> None:
    async with running(FCM) as fcm:
        service = service_account_of(fcm.account)
        assert isinstance(service, ServiceAccount)
        assert "PRIVATE" not in repr(service)
