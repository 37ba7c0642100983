from email.headerregistry import Address

import pytest

from noonday.mail.addresses import flaw_of_address, flaw_of_sender, sender_of
from noonday.mail.message import message_of
from noonday.model.notice import Notice
from tests.support.factories import NOW_MS

SENDER = Address("Noonday", "noonday", "sender.test")


def notice(subject: str, text: str = "text") -> Notice:
    return Notice("0190-1", "acme", "ops", "sam", "ops@example.com", subject, text, NOW_MS)


def test_job_name_cannot_inject_a_header() -> None:
    injected = notice("nightly\r\nBcc: everybody@example.com\r\n\r\nbody\x00\u2028")
    head, _, body = message_of(injected, SENDER).as_bytes().partition(b"\r\n\r\n")
    assert b"\r\nBcc:" not in head
    assert b"Subject: nightly Bcc: everybody@example.com body\r\n" in head
    assert body == b"text\r\n"


def test_message_keeps_text_of_any_language() -> None:
    message = message_of(notice("[noonday] nächtlich 夜間: 1 dead letter", "kaputt: ñ 夜\n"), SENDER)
    assert message["Subject"] == "[noonday] nächtlich 夜間: 1 dead letter"
    assert message.get_content() == "kaputt: ñ 夜\n"
    assert message.as_bytes().isascii() or message["Content-Transfer-Encoding"] == "8bit"


def test_message_date_is_the_time_of_the_notice() -> None:
    assert message_of(notice("x"), SENDER)["Date"] == "Tue, 01 Jan 2030 00:00:00 +0000"


@pytest.mark.parametrize(
    "address", ["a@b", "ops+alerts@mail.example.com", "x" * 64 + "@example.com", "o'neil@example.com"]
)
def test_valid_address_is_accepted(address: str) -> None:
    assert flaw_of_address(address) is None


@pytest.mark.parametrize(
    "address",
    [
        "",
        "a",
        "@b",
        "a@",
        "a@b.",
        "a@-b",
        "a..b@c",
        ".a@b",
        "a@b c",
        '"a b"@c',
        "ä@b.de",
        "x" * 65 + "@b",
        "a@" + "b" * 255,
    ],
)
def test_invalid_address_is_refused(address: str) -> None:
    assert flaw_of_address(address) is not None


def test_sender_may_have_a_display_name() -> None:
    assert flaw_of_sender("Noonday at Acme <noonday@example.com>") is None
    assert flaw_of_sender("noonday@example.com") is None
    assert str(sender_of("Noonday at Acme <noonday@example.com>")) == "Noonday at Acme <noonday@example.com>"
    assert flaw_of_sender("Noonday\n<noonday@example.com>") is not None
    assert flaw_of_sender("Noonday") is not None
