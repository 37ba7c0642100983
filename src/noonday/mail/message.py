"""Format of a notice as an email."""

from datetime import UTC, datetime
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import SMTP

from noonday.model.notice import Notice, single_line


def message_of(notice: Notice, sender: Address) -> EmailMessage:
    """Build the email of a notice. Every attempt builds the same one, with the same Message-ID and date."""
    message = EmailMessage(policy=SMTP)
    message["From"] = sender
    message["To"] = Address(addr_spec=notice.address)
    message["Subject"] = single_line(notice.subject)
    message["Date"] = datetime.fromtimestamp(notice.at_ms / 1000, UTC)
    message["Message-ID"] = f"<notice.{notice.id}@{sender.domain}>"
    # These two headers suppress out-of-office replies.
    message["Auto-Submitted"] = "auto-generated"
    message["X-Auto-Response-Suppress"] = "All"
    message.set_content(notice.text)
    return message
