"""The double of a mail server, through clients of other projects."""

import asyncio
import base64
import smtplib
import ssl

import aiosmtplib
import pytest

from noonday.doubles.behaviour import Behaviour
from noonday.doubles.smtp import MAX_RECIPIENTS, MAX_SIZE
from noonday.doubles.smtp_lines import MAX_LINE
from tests.notifications.providers.mail_servers import CERTIFICATE, LOGIN, MailServer, mail_server

pytestmark = pytest.mark.slow


def trusting() -> ssl.SSLContext:
    return ssl.create_default_context(cadata=CERTIFICATE.authority)


async def client(mail: MailServer, **options: object) -> aiosmtplib.SMTP:
    defaults: dict[str, object] = {"hostname": "127.0.0.1", "port": mail.double.port, "tls_context": trusting()}
    smtp = aiosmtplib.SMTP(**{**defaults, **LOGIN, **options})  # type: ignore[arg-type]
    await smtp.connect()
    return smtp


async def reply(smtp: aiosmtplib.SMTP, line: str) -> str:
    code, text = await smtp.execute_command(line.encode())
    return f"{code} {text}"


async def test_each_recipient_has_its_own_reply() -> None:
    async with mail_server() as mail:
        mail.double.scripts.put("ben@example.com", [Behaviour(code="450 4.2.0")])
        smtp = await client(mail)
        recipients = ["ann@example.com", "rcpt-550-5.1.1@example.com", "ben@example.com"]
        refused, _ = await smtp.sendmail("shop@sender.test", recipients, "Subject: hello\r\n\r\n.dots\r\n")
        assert {address: answer.code for address, answer in refused.items()} == {recipients[1]: 550, recipients[2]: 450}
        assert [(each.to, each.title, each.text) for each in mail.accepted] == [("ann@example.com", "hello", ".dots\n")]
        smtp.close()


async def test_commands_have_an_order() -> None:
    async with mail_server() as mail:
        smtp = await client(mail, username=None, password=None)
        assert (await reply(smtp, "MAIL FROM:<a@b>")).startswith("503")
        await smtp.ehlo()
        assert (await reply(smtp, "MAIL FROM:<a@b>")).startswith("530 5.7.0")
        assert (await reply(smtp, "AUTH GSSAPI")).startswith("504")
        await smtp.auth_login(LOGIN["username"], LOGIN["password"])
        assert (await reply(smtp, "RCPT TO:<a@b>")).startswith("503")
        assert (await reply(smtp, f"MAIL FROM:<a@b> SIZE={MAX_SIZE + 1}")).startswith("552 5.3.4")
        assert (await reply(smtp, "MAIL FROM:<a@b> SIZE=100")).startswith("250")
        assert (await reply(smtp, "DATA")).startswith("503")
        assert (await reply(smtp, "RCPT TO:<nobody>")).startswith("501 5.1.3")
        for number in range(MAX_RECIPIENTS):
            assert (await reply(smtp, f"RCPT TO:<a{number}@b>")).startswith("250")
        assert (await reply(smtp, "RCPT TO:<a@b>")).startswith("452 4.5.3")
        assert (await reply(smtp, "RSET")).startswith("250")
        assert (await reply(smtp, "RCPT TO:<a@b>")).startswith("503")
        assert (await reply(smtp, "EXPN all")).startswith("502")
        assert (await reply(smtp, "NOOP " + "x" * MAX_LINE)).startswith("500")
        smtp.close()


async def test_no_login_without_encryption() -> None:
    async with mail_server() as mail:
        smtp = await client(mail, username=None, password=None, start_tls=False)
        await smtp.ehlo()
        assert not smtp.supports_extension("auth")
        plain = base64.b64encode("\0".join(["", *LOGIN.values()]).encode()).decode()
        assert (await reply(smtp, f"AUTH PLAIN {plain}")).startswith("538")
        smtp.close()


async def test_an_empty_message_and_a_damaged_one_are_kept() -> None:
    async with mail_server() as mail:
        smtp = await client(mail)
        for content in ("", "Content-Type: text/plain; charset=klingon\r\n\r\nnuqneH\r\n"):
            await smtp.sendmail("shop@sender.test", "ann@example.com", content)
        assert len(mail.accepted) == 2
        smtp.close()


async def test_the_standard_library_sends_through_it() -> None:
    async with mail_server(implicit_tls=True) as mail:

        def send() -> None:
            with smtplib.SMTP_SSL("127.0.0.1", mail.double.port, context=trusting()) as smtp:
                smtp.login(*LOGIN.values())
                smtp.sendmail("shop@sender.test", ["ann@example.com"], "Subject: hi\r\n\r\n.\r\nend\r\n")

        await asyncio.to_thread(send)
        assert [(each.title, each.text) for each in mail.accepted] == [("hi", ".\nend\n")]
