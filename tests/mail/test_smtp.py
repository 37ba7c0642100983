import socket
import ssl
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from noonday.mail.smtp import MailServer, MailUnavailable, SmtpChannel
from noonday.model.errors import BadSettings, DoNotRetry
from noonday.model.notice import Notice
from tests.support.factories import NOW_MS
from tests.support.mail import Mailbox
from tests.webhooks.receiver import self_signed

NAME = "localhost"


def notice(**said: Any) -> Notice:
    usual = {
        "id": "0190-1",
        "tenant": "acme",
        "preference": "ops",
        "user": "sam",
        "address": "ops@example.com",
        "subject": "[noonday] nightly: 3 dead letters",
        "text": "3 dead letters\n\nnightly: broken\n",
        "at_ms": NOW_MS,
    }
    return Notice(**{**usual, **said})


def channel(box: Mailbox, **said: Any) -> SmtpChannel:
    usual = {"port": box.port, "timeout_sec": 5.0}
    return SmtpChannel(MailServer(NAME, "Noonday <noonday@sender.test>", **{**usual, **said}))


def tls_of(certificate: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    return context


async def test_a_notice_arrives_as_it_was_written() -> None:
    async with Mailbox() as box:
        await channel(box).send(notice())
    (message,) = box.messages
    assert box.recipients == ["ops@example.com"]
    assert message["Subject"] == "[noonday] nightly: 3 dead letters"
    assert (message["From"], message["To"]) == ("Noonday <noonday@sender.test>", "ops@example.com")
    assert (message["Message-ID"], message["Auto-Submitted"]) == ("<notice.0190-1@sender.test>", "auto-generated")
    assert message.get_content().replace("\r\n", "\n") == "3 dead letters\n\nnightly: broken\n"


async def test_every_attempt_sends_the_same_message() -> None:
    async with Mailbox() as box:
        await channel(box).send(notice())
        await channel(box).send(notice())
    first, second = (each.as_string() for each in box.messages)
    assert first == second


async def test_the_connection_is_encrypted_if_the_server_offers_it(tmp_path: Path) -> None:
    certificate = self_signed(tmp_path, NAME)
    async with Mailbox(tls=tls_of(certificate)) as box:
        await channel(box, ca_file=certificate).send(notice())
    assert box.was_encrypted == [True]


async def test_a_server_that_nobody_vouches_for_gets_nothing(tmp_path: Path) -> None:
    async with Mailbox(tls=tls_of(self_signed(tmp_path, NAME))) as box:
        with pytest.raises(MailUnavailable, match="certificate"):
            await channel(box).send(notice())
    assert box.messages == []


async def test_without_encryption_nothing_is_sent_if_it_is_always_wanted() -> None:
    async with Mailbox() as box:
        with pytest.raises(MailUnavailable, match="STARTTLS"):
            await channel(box, starttls="always").send(notice())
    assert box.messages == []


@pytest.mark.parametrize("from_a_file", [False, True])
async def test_it_authenticates_with_its_password(tmp_path: Path, from_a_file: bool) -> None:
    certificate = self_signed(tmp_path, NAME)
    file = tmp_path / "password"
    file.write_text("sesame\n")
    file.chmod(0o600)
    known: dict[str, Any] = {"password_file": file} if from_a_file else {"password": "sesame"}
    async with Mailbox(tls=tls_of(certificate), password="sesame") as box:
        await channel(box, ca_file=certificate, username="noonday", **known).send(notice())
    assert len(box.messages) == 1


async def test_a_wrong_password_is_tried_again_since_it_can_be_mended(tmp_path: Path) -> None:
    certificate = self_signed(tmp_path, NAME)
    async with Mailbox(tls=tls_of(certificate), password="sesame") as box:
        with pytest.raises(MailUnavailable, match="535"):
            await channel(box, ca_file=certificate, username="noonday", password="wrong").send(notice())


async def test_a_password_is_not_sent_in_the_clear() -> None:
    async with Mailbox(password="sesame", plain_password=True) as box:
        with pytest.raises(MailUnavailable, match="offers no encryption"):
            await channel(box, username="noonday", password="sesame").send(notice())
        await channel(box, username="noonday", password="sesame", starttls="never").send(notice())
    assert box.was_encrypted == [False]


async def test_a_password_file_that_others_can_read_is_refused(tmp_path: Path) -> None:
    certificate = self_signed(tmp_path, NAME)
    file = tmp_path / "password"
    file.write_text("sesame")
    file.chmod(0o644)
    async with Mailbox(tls=tls_of(certificate), password="sesame") as box:
        with pytest.raises(BadSettings, match="chmod 600"):
            await channel(box, ca_file=certificate, username="noonday", password_file=file).send(notice())


@pytest.mark.parametrize("at", ["RCPT", "DATA"])
async def test_what_is_refused_for_now_may_be_tried_again(at: str) -> None:
    async with Mailbox("451 4.3.0 try again later", at=at) as box:
        with pytest.raises(MailUnavailable, match="451"):
            await channel(box).send(notice())
        await channel(box).send(notice())
    assert len(box.messages) == 1


@pytest.mark.parametrize("at", ["RCPT", "DATA"])
async def test_what_is_refused_for_good_is_not_tried_again(at: str) -> None:
    async with Mailbox("550 5.1.1 no such user", at=at) as box:
        with pytest.raises(DoNotRetry, match="550"):
            await channel(box).send(notice())


async def test_a_mailbox_that_is_full_may_be_emptied() -> None:
    async with Mailbox("552 5.2.2 mailbox full") as box:
        with pytest.raises(MailUnavailable, match="552"):
            await channel(box).send(notice())


async def test_a_server_that_is_away_may_come_back() -> None:
    async with AsyncExitStack() as open_for_now:
        box = await open_for_now.enter_async_context(Mailbox())
        gone = channel(box)
    with pytest.raises(MailUnavailable):
        await gone.send(notice())


async def test_a_password_is_never_shown() -> None:
    assert "sesame" not in repr(MailServer("mail.test", "a@b.test", username="noonday", password="sesame"))


def test_only_plain_addresses_can_be_written_to() -> None:
    mail = SmtpChannel(MailServer("mail.test", "noonday@sender.test"))
    assert mail.flaw_of("ops@example.com") is None
    for wrong in ("ops", "ops@", "a b@example.com", "ops@example.com\nBcc: x@example.com", "Ops <ops@example.com>"):
        assert mail.flaw_of(wrong) is not None, wrong


async def test_encryption_cannot_be_taken_out_of_the_offer_of_a_server_elsewhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    look_up = socket.getaddrinfo
    elsewhere = "mail.example.com"
    monkeypatch.setattr(
        socket, "getaddrinfo", lambda host, *args, **more: look_up(NAME if host == elsewhere else host, *args, **more)
    )
    async with Mailbox() as box:
        server = MailServer(elsewhere, "noonday@sender.test", port=box.port, timeout_sec=5.0)
        with pytest.raises(MailUnavailable, match="offers no encryption"):
            await SmtpChannel(server).send(notice())
        assert box.messages == []
        await SmtpChannel(replace(server, starttls="never")).send(notice())
    assert box.was_encrypted == [False]


async def test_only_recipients_that_the_operator_allows_are_written_to() -> None:
    async with Mailbox() as box:
        mail = channel(box, recipients=("example.com", "Sam@partner.example"))
        for address in ("ops@example.com", "ops@Example.COM", "sam@partner.example"):
            assert mail.flaw_of(address) is None
            await mail.send(notice(address=address))
        for address in ("ops@partner.example", "ops@sub.example.com", "a@example.com.evil.example"):
            assert "email.recipients" in (mail.flaw_of(address) or "")
            with pytest.raises(DoNotRetry, match=r"email\.recipients"):
                await mail.send(notice(address=address))
    assert len(box.messages) == 3
