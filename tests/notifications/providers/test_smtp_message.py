from email import message_from_bytes
from email.policy import SMTP

import pytest

from noonday.model.errors import InvalidInput
from noonday.model.notifications.sending import ProviderKind
from noonday.notifications.providers.smtp import SmtpProvider
from noonday.notifications.providers.smtp_account import server_of
from noonday.notifications.providers.smtp_message import SmtpEnvelope, request
from noonday.notifications.providers.smtp_session import SmtpFailure, SmtpSession
from tests.notifications.providers.messages import LOOPBACK, account, content, message
from tests.support.clock import ManualClock
from tests.support.factories import NOW_MS
from tests.support.mail import Mailbox

ACCOUNT = account(
    ProviderKind.SMTP, {"host": "localhost", "from": "Blumen Grün <shop@example.com>", "encryption": "NONE"}
)


def envelope(**fields: object) -> SmtpEnvelope:
    return request(ACCOUNT, message(ProviderKind.SMTP, **fields), NOW_MS)


def test_a_repeated_dispatch_has_the_same_message_id() -> None:
    assert envelope(number=1).message_id == envelope(number=2).message_id


def test_every_line_is_short_ascii_except_links() -> None:
    made = envelope(
        content=content(title="ü" * 300, text="ü" * 5_000, html=None), unsubscribe_url="https://a.test/" + "x" * 500
    )
    assert made.content.isascii()
    long = [line for line in made.content.split(b"\r\n") if len(line) > 100]
    assert all(line.startswith((b"List-Unsubscribe: <https://a.test/xxx", b"Subject: =?utf-8?")) for line in long)
    assert all(len(line) < 998 for line in long)
    read = message_from_bytes(made.content, policy=SMTP)
    assert read["Subject"] == "ü" * 300
    assert read.get_content() == "ü" * 5_000 + "\r\n"  # type: ignore[attr-defined]


def test_an_address_that_is_no_email_is_not_repeated() -> None:
    with pytest.raises(InvalidInput) as refused:
        envelope(address="ann@example.com\r\nRCPT TO:<eve@example.com>")
    assert "ann" not in str(refused.value)


@pytest.mark.slow
async def test_another_implementation_reads_the_same_message() -> None:
    async with Mailbox() as box:
        provider = SmtpProvider(ManualClock(), LOOPBACK)
        sender = account(ProviderKind.SMTP, {**ACCOUNT.settings, "port": box.port})
        await provider.send(sender, message(ProviderKind.SMTP, content=content(text=".\n.a\n..b\n", html="<b>1</b>")))
        await provider.close()
    [found] = box.messages
    assert box.recipients == ["ann@example.com"]
    text, html = (part.get_content() for part in found.iter_parts())  # type: ignore[attr-defined]
    assert (text.replace("\r\n", "\n"), html.strip()) == (".\n.a\n..b\n", "<b>1</b>")


async def test_a_session_that_was_not_opened_transfers_nothing() -> None:
    exchange = await SmtpSession(server_of(ACCOUNT), None).transfer(envelope())
    assert exchange.code is None
    assert SmtpFailure(exchange).exchange is exchange
