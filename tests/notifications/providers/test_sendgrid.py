import base64
from dataclasses import replace
from typing import Any

import aiohttp
import msgspec
import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from noonday.doubles.behaviour import Behaviour, Cut
from noonday.doubles.sendgrid import SendGridDouble
from noonday.model.errors import InvalidInput, Unauthorized
from noonday.model.notifications.provider_receipts import ProviderReceipt, ReceiptKind, ReceiptRequest
from noonday.model.notifications.sending import AddressEffect, OutcomeKind, ProviderKind
from noonday.notifications.providers.hosts import ProviderHosts
from noonday.notifications.providers.sendgrid import SendGridProvider
from noonday.notifications.providers.sendgrid_account import flaws_of
from noonday.notifications.providers.sendgrid_receipts import read_receipts
from noonday.webhooks.addresses import Networks
from tests.notifications.providers.doubles import running
from tests.notifications.providers.messages import NOTIFICATION, account, content
from tests.notifications.providers.receipt_door import receipt_door
from tests.support.eventually import eventually
from tests.support.factories import NOW_MS

SENDGRID = ProviderKind.SENDGRID
ACCEPTED, RETRY, UNKNOWN = OutcomeKind.ACCEPTED, OutcomeKind.RETRY, OutcomeKind.UNKNOWN
REQUEST, FAULT = OutcomeKind.REQUEST_REJECTED, OutcomeKind.CONFIGURATION_FAULT
KEEP, RETIRE, SUPPRESS = AddressEffect.KEEP, AddressEffect.RETIRE, AddressEffect.SUPPRESS
TO = "ann@example.com"
KEY = ec.generate_private_key(ec.SECP256R1())
PUBLIC = base64.b64encode(
    KEY.public_key().public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
).decode()
ACCOUNT = account(SENDGRID, {"from": "shop@example.com", "verification_key": PUBLIC}, {"api_key": "SG.x"})


def signed(body: bytes, timestamp: str = "1893456000") -> ReceiptRequest:
    signature = base64.b64encode(KEY.sign(timestamp.encode() + body, ec.ECDSA(hashes.SHA256()))).decode()
    headers = {
        "x-twilio-email-event-webhook-signature": signature,
        "x-twilio-email-event-webhook-timestamp": timestamp,
    }
    return ReceiptRequest("https://noonday.example.com/v1/receipts/main", headers, body)


def receipts_of(*events: dict[str, Any]) -> list[ProviderReceipt]:
    named = [{"notification": NOTIFICATION, "number": "2", **event} for event in events]
    return read_receipts(ACCOUNT, signed(msgspec.json.encode(named)))


@pytest.mark.slow
async def test_an_email_arrives_with_our_id() -> None:
    async with running(SENDGRID) as sendgrid:
        html, link = "<p>Grüße</p>", "https://noonday.example.com/v1/unsubscribe/x"
        outcome = await sendgrid.send(content=content(title="Hi\nthere", html=html), unsubscribe_url=link)
    [accepted] = sendgrid.accepted
    assert (outcome.kind, outcome.provider_id) == (ACCEPTED, accepted.provider_id)
    assert (accepted.sender, accepted.to, accepted.title) == ("noonday@example.com", TO, "Hi there")
    assert (accepted.text, accepted.html) == ("Order A-17 is on its way.", html)
    assert accepted.data["custom_args"] == {"notification": NOTIFICATION, "number": "1"}
    assert accepted.data["headers"] == {
        "List-Unsubscribe": f"<{link}>",
        "List-Unsubscribe-Post": "List-Unsubscribe=One-Click",
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, REQUEST),
        (413, REQUEST),
        (401, FAULT),
        (403, FAULT),
        (404, FAULT),
        (429, RETRY),
        (500, RETRY),
        (503, RETRY),
        (502, UNKNOWN),
        (504, UNKNOWN),
        (200, UNKNOWN),
    ],
)
async def test_each_status_has_its_outcome(status: int, kind: OutcomeKind) -> None:
    async with running(SENDGRID) as sendgrid:
        outcome = await sendgrid.send(TO, Behaviour(code=str(status)))
        assert (outcome.kind, outcome.code, outcome.alerts) == (kind, str(status), kind is FAULT)
        assert outcome.retry_after_ms == (2_000 if status == 429 else None)
        assert sendgrid.accepted == []


@pytest.mark.slow
@pytest.mark.parametrize(("cut", "accepted"), [(Cut.BEFORE, 0), (Cut.AFTER, 1)])
async def test_a_connection_that_ends_without_an_answer_is_unknown(cut: Cut, accepted: int) -> None:
    async with running(SENDGRID) as sendgrid:
        outcome = await sendgrid.send(TO, Behaviour(cut=cut))
        assert (outcome.kind, len(sendgrid.accepted)) == (UNKNOWN, accepted)
        assert await sendgrid.provider.find(sendgrid.account, sendgrid.message(), NOW_MS) is None


@pytest.mark.slow
async def test_a_wrong_key_is_a_fault_of_the_account() -> None:
    async with running(SENDGRID) as sendgrid:
        wrong = replace(sendgrid.account, secrets={"api_key": "SG.wrong"})
        outcome = await sendgrid.provider.send(wrong, sendgrid.message())
        assert (outcome.kind, outcome.code) == (FAULT, "401")
        assert "SG.wrong" not in repr(outcome)
        assert isinstance(sendgrid.provider, SendGridProvider)


@pytest.mark.slow
async def test_a_message_that_cannot_be_an_email_is_refused_before_it_is_sent() -> None:
    async with running(SENDGRID) as sendgrid:
        assert (await sendgrid.send(content=content(text=None))).kind is REQUEST
        assert (await sendgrid.send("ann")).kind is REQUEST
        assert sendgrid.calls == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("scripted", "expected"),
    [
        (None, [("DELIVERED", KEEP)]),
        (["deferred", "delivered", "delivered", "open"], [("DELIVERED", KEEP), ("DELIVERED", KEEP), ("OPENED", KEEP)]),
        (["delivered", "bounce"], [("DELIVERED", KEEP), ("BOUNCED", RETIRE)]),
        (["bounce:blocked"], [("BOUNCED", KEEP)]),
        (["dropped"], [("BOUNCED", KEEP)]),
        (["spamreport", "unsubscribe", "click"], [("OPTED_OUT", SUPPRESS), ("OPTED_OUT", SUPPRESS), ("CLICKED", KEEP)]),
        (["group_unsubscribe", "group_resubscribe"], [("OPTED_OUT", SUPPRESS), ("OPTED_IN", AddressEffect.RESTORE)]),
    ],
)
async def test_signed_events_become_receipts(scripted: list[str] | None, expected: list[tuple[str, str]]) -> None:
    async with receipt_door() as door, running(SENDGRID) as sendgrid:
        double = sendgrid.doubles.sendgrid
        assert isinstance(double, SendGridDouble)
        double.events_url = door.url
        outcome = await sendgrid.send(TO, Behaviour(receipts=scripted), number=5)
        await eventually(lambda: len(door.requests) == len(scripted or ["processed", "delivered"]))
        receipts = [receipt for request in door.requests for receipt in read_receipts(sendgrid.account, request)]
    assert [(each.kind, each.effect) for each in receipts] == expected
    assert {(each.notification_id, each.number, each.provider_id, each.address, each.at_ms) for each in receipts} == {
        (NOTIFICATION, 5, outcome.provider_id, TO, NOW_MS)
    }
    repeats = {each.event_id for each in receipts if each.kind is ReceiptKind.DELIVERED}
    assert len(repeats) <= 1


def test_a_batch_is_read_event_by_event() -> None:
    assert receipts_of({"event": "processed"}, {"event": "new"}, {"event": 7}, {}) == []
    assert (
        receipts_of({"event": "delivered", "notification": "x" * 65}, {"event": "delivered", "notification": None})
        == []
    )
    [receipt] = receipts_of(
        {"event": "open", "email": "x" * 321, "timestamp": 10**20, "sg_event_id": "e", "number": "x"}
    )
    assert (receipt.kind, receipt.number, receipt.event_id) == (ReceiptKind.OPENED, None, "e")
    assert (receipt.address, receipt.at_ms, receipt.provider_id) == (None, None, None)


@pytest.mark.parametrize(
    "forged",
    [
        replace(signed(b"[]"), body=b"[ ]"),
        replace(signed(b"[]"), headers={}),
        replace(
            signed(b"[]"), headers={**signed(b"[]").headers, "x-twilio-email-event-webhook-timestamp": "1893456001"}
        ),
        replace(signed(b"[]"), headers={"x-twilio-email-event-webhook-signature": "no base64!"}),
        replace(signed(b"[]"), headers={"x-twilio-email-event-webhook-signature": "\udcff"}),
        replace(signed(b"[]"), headers={"x-twilio-email-event-webhook-signature": "A" * 300}),
    ],
)
def test_a_batch_that_the_account_has_not_signed_is_refused(forged: ReceiptRequest) -> None:
    with pytest.raises(Unauthorized):
        read_receipts(ACCOUNT, forged)


def test_an_account_without_a_key_takes_no_receipts() -> None:
    with pytest.raises(Unauthorized, match="has no verification_key"):
        read_receipts(replace(ACCOUNT, settings={"from": "a@example.com"}), signed(b"[]"))


@pytest.mark.parametrize("body", [b"{}", b"[1]", b"nothing", b"[" + b",".join([b"{}"] * 10_001) + b"]"])
def test_a_body_that_is_no_list_of_events_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidInput):
        read_receipts(ACCOUNT, signed(body))


@pytest.mark.parametrize(
    ("settings", "secrets", "pointer"),
    [
        ({"from": "x"}, {"api_key": "SG.x"}, "/settings/from"),
        ({"from": "a@b.test", "verification_key": "AAAA"}, {"api_key": "SG.x"}, "/settings/verification_key"),
        ({"from": "a@b.test", "verification_key": "ä"}, {"api_key": "SG.x"}, "/settings/verification_key"),
        ({"from": "a@b.test", "url": "https://sendgrid.com.evil.test"}, {"api_key": "SG.x"}, "/settings/url"),
        ({"from": "a@b.test"}, {}, "/secrets/api_key"),
        ({"from": "a@b.test"}, {"api_key": "ä"}, "/secrets/api_key"),
    ],
)
def test_each_flaw_is_located(settings: dict[str, Any], secrets: dict[str, str], pointer: str) -> None:
    [flaw] = flaws_of(settings, secrets, ProviderHosts(Networks()))
    assert flaw.pointer == pointer


def test_the_european_api_is_allowed() -> None:
    settings = {"from": "a@b.test", "url": "https://api.eu.sendgrid.com"}
    assert flaws_of(settings, {"api_key": "SG.x"}, ProviderHosts(Networks())) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "change",
    [
        {"personalizations": []},
        {"personalizations": [{"to": [{"email": TO}, {"email": TO.upper()}]}]},
        {"personalizations": [{"to": [{"email": f"a{each}@b.test"} for each in range(1_001)]}]},
        {"content": [{"type": "text/plain", "value": ""}]},
        {"subject": ""},
        {"custom_args": {"a": "x" * 10_001}},
    ],
)
async def test_the_double_checks_the_limits(change: dict[str, Any]) -> None:
    valid = {
        "personalizations": [{"to": [{"email": TO}]}],
        "from": {"email": "shop@example.com"},
        "subject": "Hi",
        "content": [{"type": "text/plain", "value": "x"}],
    }
    async with running(SENDGRID) as sendgrid, aiohttp.ClientSession(sendgrid.doubles.url) as http:
        headers = {"Authorization": f"Bearer {sendgrid.account.secrets['api_key']}"}
        for body, status in ((valid, 202), ({**valid, **change}, 400)):
            async with http.post("/v3/mail/send", json=body, headers=headers) as answer:
                assert answer.status == status
