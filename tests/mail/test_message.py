from email.headerregistry import Address

import pytest

from noonday.mail.addresses import flaw_of_address, flaw_of_sender, sender_of
from noonday.mail.message import message_of
from noonday.model.notice import Notice
from tests.support.factories import NOW_MS

SENDER = Address("Noonday", "noonday", "sender.test")


def notice(subject: str, text: str = "text") -> Notice:
    return Notice("0190-1", "acme", "ops", "sam", "ops@example.com", subject, text, NOW_MS)


def test_the_name_of_a_job_cannot_add_a_header() -> None:
    sly = notice("nightly\r\nBcc: everybody@example.com\r\n\r\nbody\x00\u2028")
    written = message_of(sly, SENDER).as_bytes()
    head, _, body = written.partition(b"\r\n\r\n")
    assert b"\r\nBcc:" not in head
    assert b"Subject: nightly Bcc: everybody@example.com body\r\n" in head
    assert body == b"text\r\n"


def test_any_language_survives() -> None:
    message = message_of(notice("[noonday] nächtlich 夜間: 1 dead letter", "kaputt: ñ 夜\n"), SENDER)
    assert message["Subject"] == "[noonday] nächtlich 夜間: 1 dead letter"
    assert message.get_content() == "kaputt: ñ 夜\n"
    assert message.as_bytes().isascii() or message["Content-Transfer-Encoding"] == "8bit"


def test_a_message_says_when_the_notice_was_made() -> None:
    assert message_of(notice("x"), SENDER)["Date"] == "Tue, 01 Jan 2030 00:00:00 +0000"


@pytest.mark.parametrize(
    "good", ["a@b", "ops+alerts@mail.example.com", "x" * 64 + "@example.com", "o'neil@example.com"]
)
def test_addresses_that_can_be_written_to(good: str) -> None:
    assert flaw_of_address(good) is None


@pytest.mark.parametrize(
    "bad",
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
def test_addresses_that_cannot(bad: str) -> None:
    assert flaw_of_address(bad) is not None


def test_a_sender_may_have_a_name() -> None:
    assert flaw_of_sender("Noonday at Acme <noonday@example.com>") is None
    assert flaw_of_sender("noonday@example.com") is None
    assert str(sender_of("Noonday at Acme <noonday@example.com>")) == "Noonday at Acme <noonday@example.com>"
    assert flaw_of_sender("Noonday\n<noonday@example.com>") is not None
    assert flaw_of_sender("Noonday") is not None
