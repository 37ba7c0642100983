import pytest

from noonday.doubles.behaviour import ACCEPT, Behaviour, Cut
from noonday.doubles.outbox import AcceptedMessage, DoubleOutbox, SentReceipt
from noonday.doubles.patterns import behaviour_of_email, behaviour_of_phone, behaviour_of_token
from noonday.doubles.scripts import MAX_CALLS, MAX_RECIPIENTS, Scripts
from noonday.model.notifications.sending import ChannelKind, ProviderKind


def add(outbox: DoubleOutbox, to: str = "ann@example.com", text: str = "hello") -> AcceptedMessage:
    number = outbox.next_id()
    kind, channel = ProviderKind.SMTP, ChannelKind.EMAIL
    made = AcceptedMessage(number, 0, kind, channel, f"p{number}", sender="shop@example.com", to=to, text=text)
    outbox.add(made)
    return made


def test_the_newest_messages_are_kept() -> None:
    outbox = DoubleOutbox(most=3)
    for _ in range(5):
        add(outbox)
    assert [each.id for each in outbox.newest(10)] == [5, 4, 3]
    assert [each.id for each in outbox.newest(1, before=5)] == [4]
    assert outbox.find(2) is None
    assert outbox.find_by_provider_id("p2") is None


def test_large_messages_replace_more_of_the_old_ones() -> None:
    outbox = DoubleOutbox(most_bytes=10_000)
    for _ in range(5):
        add(outbox)
    add(outbox, text="x" * 9_500)
    assert [each.id for each in outbox.newest(10)] == [6]


def test_messages_are_found_by_recipient_and_channel() -> None:
    outbox = DoubleOutbox()
    add(outbox)
    add(outbox, to="ben@example.com")
    assert [each.to for each in outbox.newest(10, to="BEN@example.com")] == ["ben@example.com"]
    assert outbox.newest(10, channel=ChannelKind.SMS) == []


def test_receipts_are_noted_up_to_a_bound() -> None:
    outbox = DoubleOutbox()
    message = add(outbox)
    for _ in range(200):
        outbox.add_receipt("p1", SentReceipt("sent", 0, 200))
    outbox.add_receipt("unknown", SentReceipt("sent", 0, 200))
    assert len(message.receipts) == 100


def test_a_script_is_used_up_call_by_call() -> None:
    scripts = Scripts()
    scripts.put("Ann@example.com", [Behaviour(code="450"), ACCEPT])
    assert [scripts.take("ann@example.com", behaviour_of_email).code for _ in range(3)] == ["450", None, None]
    scripts.put("rcpt-550@example.com", [ACCEPT])
    assert [scripts.take("rcpt-550@example.com", behaviour_of_email).code for _ in range(2)] == [None, "550"]


def test_scripts_are_bounded() -> None:
    scripts = Scripts()
    for number in range(MAX_RECIPIENTS + 1):
        scripts.put(f"{number}@example.com", [ACCEPT] * (MAX_CALLS + 1))
    left = scripts.left()
    assert (len(left), len(left["1@example.com"])) == (MAX_RECIPIENTS, MAX_CALLS)
    scripts.clear()
    assert scripts.left() == {}


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("ann@example.com", ACCEPT),
        ("rcpt-550-5.1.1@example.com", Behaviour(code="550 5.1.1", at="RCPT")),
        ("body-451@example.com", Behaviour(code="451", at="BODY")),
        ("slow-2000@example.com", Behaviour(delay_ms=2_000)),
        ("drop@example.com", Behaviour(cut=Cut.AFTER, at="BODY")),
        ("cut-before@example.com", Behaviour(cut=Cut.BEFORE, at="BODY")),
        ("slow-50+body-421-4.3.2@example.com", Behaviour(code="421 4.3.2", at="BODY", delay_ms=50)),
        ("event-bounce-spamreport@example.com", Behaviour(receipts=["bounce", "spamreport"])),
    ],
)
def test_an_email_address_chooses_its_behaviour(address: str, expected: Behaviour) -> None:
    assert behaviour_of_email(address) == expected


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        ("+4930123456", ACCEPT),
        ("+15005550001", Behaviour(code="21211")),
        ("+17002161000", Behaviour(code="21610")),
        ("+17013000501", Behaviour(receipts=["sent", "undelivered:30005"])),
        ("+17020200000", Behaviour(delay_ms=2_000)),
        ("+17030000100", Behaviour(cut=Cut.BEFORE)),
        ("+17030000200", Behaviour(cut=Cut.AFTER)),
        ("+17040000100", Behaviour(receipts=["delivered", "sent"])),
        ("+17040000300", Behaviour(receipts=[])),
        ("+17090000000", ACCEPT),
    ],
)
def test_a_phone_number_chooses_its_behaviour(number: str, expected: Behaviour) -> None:
    assert behaviour_of_phone(number) == expected


@pytest.mark.parametrize(
    ("token", "expected"),
    [
        ("fQx-1:APA91b", ACCEPT),
        ("reject-UNREGISTERED-1", Behaviour(code="UNREGISTERED")),
        ("slow-2000-1", Behaviour(delay_ms=2_000)),
        ("cut-before-1", Behaviour(cut=Cut.BEFORE)),
        ("cut-after-1", Behaviour(cut=Cut.AFTER)),
    ],
)
def test_a_device_token_chooses_its_behaviour(token: str, expected: Behaviour) -> None:
    assert behaviour_of_token(token) == expected
