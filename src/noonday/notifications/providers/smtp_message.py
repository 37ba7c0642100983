"""Email of a notification."""

from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import SMTP

from noonday.mail.addresses import flaw_of_address, sender_of
from noonday.model.errors import InvalidInput
from noonday.model.notice import single_line
from noonday.model.notifications.sending import ProviderAccount, ProviderMessage

_BUILDING = SMTP.clone(cte_type="7bit")
# A longer line would be folded into encoded words, which no program reads in List-Unsubscribe.
_WRITING = _BUILDING.clone(max_line_length=998)
SUBJECT_CHARS = 400


@dataclass(frozen=True, slots=True)
class SmtpEnvelope:
    """A message as it is handed to a mail server."""

    sender: str
    recipient: str = field(repr=False)
    content: bytes = field(repr=False)
    message_id: str


def request(account: ProviderAccount, message: ProviderMessage, now_ms: int) -> SmtpEnvelope:
    """Build the envelope of a message. Every dispatch of a notification has the same Message-ID, so that receivers can discard
    repeats.

    Raises InvalidInput if the message cannot be an email; the error contains neither address nor content.
    """
    if flaw_of_address(message.address) is not None:
        raise InvalidInput("the address is not an email address")
    sender = sender_of(str(account.settings["from"]))
    message_id = f"<{message.notification_id}@{sender.domain}>"
    email = EmailMessage(policy=_BUILDING)
    email["From"] = sender
    email["To"] = Address(addr_spec=message.address)
    email["Subject"] = single_line(message.content.title or "")[:SUBJECT_CHARS]
    email["Date"] = datetime.fromtimestamp(now_ms // 1000, UTC)
    email["Message-ID"] = message_id
    # This header suppresses out-of-office replies.
    email["Auto-Submitted"] = "auto-generated"
    if message.unsubscribe_url is not None:
        email["List-Unsubscribe"] = f"<{message.unsubscribe_url}>"
        email["List-Unsubscribe-Post"] = "List-Unsubscribe=One-Click"
    _set_body(email, message.content.text, message.content.html)
    return SmtpEnvelope(sender.addr_spec, message.address, email.as_bytes(policy=_WRITING), message_id)


def _set_body(email: EmailMessage, text: str | None, html: str | None) -> None:
    if text is None and html is None:
        raise InvalidInput("an email needs text or html, and the content has neither")
    if text is not None:
        email.set_content(text)
        if html is not None:
            email.add_alternative(html, subtype="html")
    elif html is not None:
        email.set_content(html, subtype="html")
