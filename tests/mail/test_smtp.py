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


def notice(**fields: Any) -> Notice:
    defaults = {
        "id": "0190-1",
        "tenant": "acme",
        "preference": "ops",
        "user": "sam",
        "address": "ops@example.com",
        "subject": "[noonday] nightly: 3 dead letters",
        "text": "3 dead letters\n\nnightly: broken\n",
        "at_ms": NOW_MS,
    }
    return Notice(**{**defaults, **fields})


def channel(box: Mailbox, **settings: Any) -> SmtpChannel:
    defaults = {"port": box.port, "timeout_sec": 5.0}
    return SmtpChannel(MailServer(NAME, "Noonday <noonday@sender.test>", **{**defaults, **settings}))


def tls_of(certificate: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    return context


@pytest.mark.slow
async def test_notice_arrives_unchanged() -> None:
    async with Mailbox() as box:
        await channel(box).send(notice())
    (message,) = box.messages
    assert box.recipients == ["ops@example.com"]
    assert message["Subject"] == "[noonday] nightly: 3 dead letters"
    assert (message["From"], message["To"]) == ("Noonday <noonday@sender.test>", "ops@example.com")
    assert (message["Message-ID"], message["Auto-Submitted"]) == ("<notice.0190-1@sender.test>", "auto-generated")
    assert message.get_content().replace("\r\n", "\n") == "3 dead letters\n\nnightly: broken\n"


@pytest.mark.slow
async def test_every_attempt_sends_the_same_message() -> None:
    async with Mailbox() as box:
        await channel(box).send(notice())
        await channel(box).send(notice())
    first, second = (message.as_string() for message in box.messages)
    assert first == second


@pytest.mark.slow
async def test_connection_is_encrypted_if_the_server_offers_it(tmp_path: Path) -> None:
    certificate = self_signed(tmp_path, NAME)
    async with Mailbox(tls=tls_of(certificate)) as box:
        await channel(box, ca_file=certificate).send(notice())
    assert box.was_encrypted == [True]


@pytest.mark.slow
async def test_untrusted_server_certificate_stops_sending(tmp_path: Path) -> None:
    async with Mailbox(tls=tls_of(self_signed(tmp_path, NAME))) as box:
        with pytest.raises(MailUnavailable, match="certificate"):
            await channel(box).send(notice())
    assert box.messages == []


@pytest.mark.slow
async def test_starttls_always_refuses_an_unencrypted_server() -> None:
    async with Mailbox() as box:
        with pytest.raises(MailUnavailable, match="STARTTLS"):
            await channel(box, starttls="always").send(notice())
    assert box.messages == []


@pytest.mark.slow
@pytest.mark.parametrize("from_a_file", [False, True])
async def test_channel_authenticates_with_its_password(tmp_path: Path, from_a_file: bool) -> None:
    certificate = self_signed(tmp_path, NAME)
    file = tmp_path / "password"
    file.write_text("sesame\n")
    file.chmod(0o600)
    credentials: dict[str, Any] = {"password_file": file} if from_a_file else {"password": "sesame"}
    async with Mailbox(tls=tls_of(certificate), password="sesame") as box:
        await channel(box, ca_file=certificate, username="noonday", **credentials).send(notice())
    assert len(box.messages) == 1


@pytest.mark.slow
async def test_wrong_password_is_retried_because_the_operator_can_fix_it(tmp_path: Path) -> None:
    certificate = self_signed(tmp_path, NAME)
    async with Mailbox(tls=tls_of(certificate), password="sesame") as box:
        with pytest.raises(MailUnavailable, match="535"):
            await channel(box, ca_file=certificate, username="noonday", password="wrong").send(notice())


@pytest.mark.slow
async def test_password_is_not_sent_unencrypted() -> None:
    async with Mailbox(password="sesame", plain_password=True) as box:
        with pytest.raises(MailUnavailable, match="offers no encryption"):
            await channel(box, username="noonday", password="sesame").send(notice())
        await channel(box, username="noonday", password="sesame", starttls="never").send(notice())
    assert box.was_encrypted == [False]


@pytest.mark.slow
async def test_password_file_readable_by_others_is_refused(tmp_path: Path) -> None:
    certificate = self_signed(tmp_path, NAME)
    file = tmp_path / "password"
    file.write_text("sesame")
    file.chmod(0o644)
    async with Mailbox(tls=tls_of(certificate), password="sesame") as box:
        with pytest.raises(BadSettings, match="chmod 600"):
            await channel(box, ca_file=certificate, username="noonday", password_file=file).send(notice())


@pytest.mark.slow
@pytest.mark.parametrize("at", ["RCPT", "DATA"])
async def test_temporary_refusal_is_retried(at: str) -> None:
    async with Mailbox("451 4.3.0 try again later", at=at) as box:
        with pytest.raises(MailUnavailable, match="451"):
            await channel(box).send(notice())
        await channel(box).send(notice())
    assert len(box.messages) == 1


@pytest.mark.slow
@pytest.mark.parametrize("at", ["RCPT", "DATA"])
async def test_permanent_refusal_is_not_retried(at: str) -> None:
    async with Mailbox("550 5.1.1 no such user", at=at) as box:
        with pytest.raises(DoNotRetry, match="550"):
            await channel(box).send(notice())


@pytest.mark.slow
async def test_full_mailbox_is_retried() -> None:
    async with Mailbox("552 5.2.2 mailbox full") as box:
        with pytest.raises(MailUnavailable, match="552"):
            await channel(box).send(notice())


@pytest.mark.slow
async def test_unreachable_server_is_retried() -> None:
    async with AsyncExitStack() as stack:
        box = await stack.enter_async_context(Mailbox())
        to_stopped_server = channel(box)
    with pytest.raises(MailUnavailable):
        await to_stopped_server.send(notice())


async def test_repr_hides_the_password() -> None:
    assert "sesame" not in repr(MailServer("mail.test", "a@b.test", username="noonday", password="sesame"))


def test_channel_accepts_only_plain_addresses() -> None:
    mail = SmtpChannel(MailServer("mail.test", "noonday@sender.test"))
    assert mail.flaw_of("ops@example.com") is None
    for invalid in ("ops", "ops@", "a b@example.com", "ops@example.com\nBcc: x@example.com", "Ops <ops@example.com>"):
        assert mail.flaw_of(invalid) is not None, invalid


@pytest.mark.slow
async def test_remote_server_without_starttls_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    resolve = socket.getaddrinfo
    remote = "mail.example.com"
    monkeypatch.setattr(
        socket, "getaddrinfo", lambda host, *args, **kwargs: resolve(NAME if host == remote else host, *args, **kwargs)
    )
    async with Mailbox() as box:
        server = MailServer(remote, "noonday@sender.test", port=box.port, timeout_sec=5.0)
        with pytest.raises(MailUnavailable, match="offers no encryption"):
            await SmtpChannel(server).send(notice())
        assert box.messages == []
        await SmtpChannel(replace(server, starttls="never")).send(notice())
    assert box.was_encrypted == [False]


@pytest.mark.slow
async def test_only_allowed_recipients_receive_mail() -> None:
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
