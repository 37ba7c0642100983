"""Email over SMTP."""

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import Literal

import aiosmtplib

from noonday.crypto.private_file import read_private
from noonday.mail.addresses import flaw_of_address, flaw_of_recipient, sender_of
from noonday.mail.message import message_of
from noonday.model.errors import DoNotRetry, Unavailable
from noonday.model.notice import Notice
from noonday.ports.channels import Channel

FULL_MAILBOX = 552
_START_TLS = {"auto": None, "always": True, "never": False}


class MailUnavailable(Unavailable):
    """The mail server did not accept a message, and may accept it later."""

    code = "mail-unavailable"


@dataclass(frozen=True)
class MailServer:
    """Settings of the mail server that notices are sent through."""

    host: str
    sender: str
    port: int = 587
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    password_file: Path | None = None
    """File with the password, instead of `password`. It is read for every message, so a new password takes effect at once."""
    tls: bool = False
    starttls: Literal["auto", "always", "never"] = "auto"
    ca_file: Path | None = None
    timeout_sec: float = 30.0
    recipients: tuple[str, ...] = ()
    """Allowed addresses and domains; empty allows all."""


class SmtpChannel(Channel):
    """Sends notices over SMTP, with one connection for each message: notices are few."""

    def __init__(self, server: MailServer) -> None:
        self._server = server
        self._sender = sender_of(server.sender)
        self._tls: ssl.SSLContext | None = None

    def flaw_of(self, address: str) -> str | None:
        return flaw_of_address(address) or flaw_of_recipient(address, self._server.recipients)

    async def send(self, notice: Notice) -> None:
        if flaw := self.flaw_of(notice.address):
            # The address was valid when the preference was saved, but the settings may have changed since.
            raise DoNotRetry(f"the address {flaw}")
        message = message_of(notice, self._sender)
        with _SmtpErrors(self._server):
            async with self._connection() as smtp:
                await smtp.send_message(message, sender=self._sender.addr_spec, recipients=[notice.address])

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[aiosmtplib.SMTP]:
        server = self._server
        smtp = aiosmtplib.SMTP(
            hostname=server.host,
            port=server.port,
            timeout=server.timeout_sec,
            use_tls=server.tls,
            start_tls=False if server.tls else _START_TLS[server.starttls],
            tls_context=self._tls_context(),
        )
        await smtp.connect()
        try:
            self._require_encryption(smtp)
            await self._log_in(smtp)
            yield smtp
            # The server has accepted the message, whatever it replies to QUIT.
            with suppress(aiosmtplib.SMTPException):
                await smtp.quit()
        finally:
            smtp.close()

    def _require_encryption(self, smtp: aiosmtplib.SMTP) -> None:
        """Raise MailUnavailable if the connection must be encrypted and is not: an attacker on the path can strip STARTTLS."""
        server = self._server
        if smtp.get_transport_info("sslcontext") is not None or server.starttls == "never":
            return
        if server.username is None and _is_loopback(server.host):
            return
        raise MailUnavailable(
            f'{server.host} offers no encryption; to send unencrypted mail all the same, set email.starttls to "never"'
        )

    async def _log_in(self, smtp: aiosmtplib.SMTP) -> None:
        if self._server.username is not None:
            await smtp.login(self._server.username, self._password())

    def _tls_context(self) -> ssl.SSLContext:
        """The TLS context, created once because it loads every trusted certificate of the system."""
        if self._tls is None:
            context = ssl.create_default_context()
            if self._server.ca_file is not None:
                context.load_verify_locations(self._server.ca_file)
            self._tls = context
        return self._tls

    def _password(self) -> str:
        file = self._server.password_file
        return read_private(file).rstrip("\r\n") if file is not None else self._server.password or ""


class _SmtpErrors:
    """Translates errors of the client library: DoNotRetry for permanent ones, else MailUnavailable."""

    def __init__(self, server: MailServer) -> None:
        self._address = f"{server.host}:{server.port}"

    def __enter__(self) -> None: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, aiosmtplib.SMTPRecipientsRefused):
            error = error.recipients[0]
        if isinstance(error, aiosmtplib.SMTPResponseException):
            message = f"{self._address} replied {error.code} {error.message}"
            raise (DoNotRetry if _is_permanent(error) else MailUnavailable)(message) from error
        if isinstance(error, aiosmtplib.SMTPException | OSError):
            raise MailUnavailable(f"{self._address}: {error}") from error


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _is_permanent(error: aiosmtplib.SMTPResponseException) -> bool:
    """Return whether retrying is useless: a 5xx about the message, its sender or its recipient.

    Refused credentials and a full mailbox are retried, because the operator or the recipient can fix them.
    """
    message_errors = aiosmtplib.SMTPRecipientRefused | aiosmtplib.SMTPDataError | aiosmtplib.SMTPSenderRefused
    return isinstance(error, message_errors) and 500 <= error.code < 600 and error.code != FULL_MAILBOX
