from hashlib import sha256
from urllib.parse import urlencode

import pytest

from noonday.model.errors import InvalidInput, Unauthorized
from noonday.model.notifications.provider_receipts import ReceiptKind, ReceiptRequest
from noonday.model.notifications.sending import AddressEffect, ProviderKind
from noonday.notifications.providers.references import reference_in_url, reference_of, with_reference
from noonday.notifications.providers.twilio_receipts import Fields, read_receipts, signature_of
from tests.notifications.providers.messages import NOTIFICATION, account, message

SID = "AC" + "0" * 32
ACCOUNT = account(ProviderKind.TWILIO, {"from": "Shop"}, {"account_sid": SID, "auth_token": "12345"})
URL = f"https://noonday.example.com/v1/receipts/main?notification={NOTIFICATION}&number=3"
DELIVERED = [("MessageSid", "SM1"), ("MessageStatus", "delivered"), ("AccountSid", SID), ("To", "+4930123456")]


def request(fields: Fields, *, url: str = URL, signed_url: str | None = None, token: str = "12345") -> ReceiptRequest:
    signature = signature_of(signed_url or url, fields, token)
    headers = {"x-twilio-signature": signature, "content-type": "application/x-www-form-urlencoded"}
    return ReceiptRequest(url, headers, urlencode(fields).encode())


def test_the_signature_of_the_documentation() -> None:
    fields = [
        ("CallSid", "CA1234567890ABCDE"),
        ("Caller", "+12349013030"),
        ("Digits", "1234"),
        ("From", "+12349013030"),
        ("To", "+18005551212"),
    ]
    expected = "0/KCTR6DLpKmkAf8muzZqo1nDgQ="
    assert signature_of("https://mycompany.com/myapp.php?foo=1&bar=2", fields, "12345") == expected
    assert signature_of("https://mycompany.com/myapp.php?foo=1&bar=2", fields[::-1], "12345") == expected


def test_a_signed_receipt_is_read() -> None:
    [receipt] = read_receipts(ACCOUNT, request(DELIVERED))
    assert (receipt.kind, receipt.notification_id, receipt.number) == (ReceiptKind.DELIVERED, NOTIFICATION, 3)
    assert (receipt.provider_id, receipt.address) == ("SM1", "+4930123456")
    assert "4930" not in repr(receipt)


@pytest.mark.parametrize(
    ("url", "signed_url"),
    [
        (URL, URL.replace(".com/", ".com:443/")),
        (URL.replace(".com/", ".com:443/"), URL),
        (URL.replace("https", "http"), URL.replace("https", "http").replace(".com/", ".com:80/")),
    ],
)
def test_the_standard_port_may_be_signed_or_not(url: str, signed_url: str) -> None:
    assert len(read_receipts(ACCOUNT, request(DELIVERED, url=url, signed_url=signed_url))) == 1


@pytest.mark.parametrize(
    "forged",
    [
        request(DELIVERED, token="another"),
        request(DELIVERED, signed_url=URL.replace("number=3", "number=4")),
        request(DELIVERED, signed_url=URL.replace(".com/", ".com:8443/")),
        ReceiptRequest(URL, {}, urlencode(DELIVERED).encode()),
        ReceiptRequest(URL, request(DELIVERED).headers, urlencode([*DELIVERED, ("ErrorCode", "30005")]).encode()),
        ReceiptRequest(URL, {**request(DELIVERED).headers, "x-twilio-signature": "\udcffä"}, b""),
        request([*DELIVERED[:2], ("AccountSid", "AC" + "1" * 32)]),
    ],
)
def test_a_receipt_that_the_account_has_not_signed_is_refused(forged: ReceiptRequest) -> None:
    with pytest.raises(Unauthorized):
        read_receipts(ACCOUNT, forged)


def test_a_json_body_is_covered_by_its_hash() -> None:
    body = b'{"a": 1}'
    url = f"{URL}&bodySHA256={sha256(body).hexdigest()}"
    headers = {"content-type": "application/json", "x-twilio-signature": signature_of(url, [], "12345")}
    assert read_receipts(ACCOUNT, ReceiptRequest(url, headers, body)) == []
    with pytest.raises(Unauthorized):
        read_receipts(ACCOUNT, ReceiptRequest(url, headers, b'{"a": 2}'))


def test_a_body_with_too_many_fields_is_refused() -> None:
    with pytest.raises(InvalidInput, match="at most 200 fields"):
        read_receipts(ACCOUNT, ReceiptRequest(URL, {}, b"&".join(b"a=%d" % each for each in range(201))))


@pytest.mark.parametrize(
    ("state", "kind"),
    [
        ("accepted", None),
        ("scheduled", None),
        ("queued", None),
        ("sending", None),
        ("new-state", None),
        ("sent", ReceiptKind.SENT),
        ("delivered", ReceiptKind.DELIVERED),
        ("read", ReceiptKind.DELIVERED),
        ("undelivered", ReceiptKind.BOUNCED),
        ("failed", ReceiptKind.BOUNCED),
        ("canceled", ReceiptKind.BOUNCED),
    ],
)
def test_each_state_has_a_kind(state: str, kind: ReceiptKind | None) -> None:
    found = read_receipts(ACCOUNT, request([("MessageSid", "SM1"), ("MessageStatus", state)]))
    assert [each.kind for each in found] == ([] if kind is None else [kind])


def test_the_error_of_a_bounce_says_what_becomes_of_the_address() -> None:
    for code, effect, alerts in (
        ("30005", AddressEffect.RETIRE, False),
        ("21610", AddressEffect.SUPPRESS, False),
        ("30007", AddressEffect.KEEP, True),
        ("abc", AddressEffect.KEEP, False),
    ):
        fields = [("MessageSid", "SM1"), ("MessageStatus", "undelivered"), ("ErrorCode", code)]
        [receipt] = read_receipts(ACCOUNT, request(fields))
        assert (receipt.effect, receipt.alerts) == (effect, alerts)


def test_a_callback_url_keeps_its_own_query() -> None:
    sent = message(ProviderKind.TWILIO, number=3)
    assert reference_in_url(with_reference("https://a.test/r", sent)) == (NOTIFICATION, 3)
    assert reference_in_url(with_reference("https://a.test/r?key=1", sent)) == (NOTIFICATION, 3)


def test_a_damaged_reference_names_nothing() -> None:
    assert reference_in_url("https://a.test/r") == (None, None)
    assert reference_in_url("https://a.test/r?" + "a=1&" * 30) == (None, None)
    assert reference_of({"notification": "x" * 65}) == (None, None)
    assert reference_of({"notification": "n", "number": "9" * 11}) == ("n", None)
    assert reference_of({"notification": "n", "number": "²"}) == ("n", None)
