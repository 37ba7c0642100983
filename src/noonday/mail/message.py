"""What a notice looks like as an email."""

from datetime import UTC, datetime
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import SMTP

from noonday.model.notice import Notice


def message_of(notice: Notice, sender: Address) -> EmailMessage:
    """The same message at every attempt: even its Message-ID and its date are."""
    message = EmailMessage(policy=SMTP)
    message["From"] = sender
    message["To"] = Address(addr_spec=notice.address)
    message["Subject"] = on_one_line(notice.subject)
    message["Date"] = datetime.fromtimestamp(notice.at_ms / 1000, UTC)
    message["Message-ID"] = f"<notice.{notice.id}@{sender.domain}>"
    # Nobody's out-of-office reply is wanted.
    message["Auto-Submitted"] = "auto-generated"
    message["X-Auto-Response-Suppress"] = "All"
    message.set_content(notice.text)
    return message


def on_one_line(text: str) -> str:
    """Names of jobs are anybody's text: what would end a header, or could not be shown in one, is a blank."""
    return " ".join("".join(each if each.isprintable() else " " for each in text).split())
