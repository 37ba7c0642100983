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
    """The mail server did not take a message, and may take it later."""

    code = "mail-unavailable"


@dataclass(frozen=True)
class MailServer:
    host: str
    sender: str
    port: int = 587
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    password_file: Path | None = None
    """In place of `password`. Read for every message: a new password is used at once."""
    tls: bool = False
    starttls: Literal["auto", "always", "never"] = "auto"
    ca_file: Path | None = None
    timeout_sec: float = 30.0
    recipients: tuple[str, ...] = ()
    """Addresses, and domains, that may be written to; empty: all."""


class SmtpChannel(Channel):
    """One connection for each message: notices are few."""

    def __init__(self, server: MailServer) -> None:
        self._server = server
        self._sender = sender_of(server.sender)
        self._tls: ssl.SSLContext | None = None

    def flaw_of(self, address: str) -> str | None:
        return flaw_of_address(address) or flaw_of_recipient(address, self._server.recipients)

    async def send(self, notice: Notice) -> None:
        if flaw := self.flaw_of(notice.address):
            # It was checked when the preference was made; the settings may have changed since.
            raise DoNotRetry(f"the address {flaw}")
        message = message_of(notice, self._sender)
        with _translated(self._server):
            async with self._connected() as smtp:
                await smtp.send_message(message, sender=self._sender.addr_spec, recipients=[notice.address])

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[aiosmtplib.SMTP]:
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
            self._refuse_plain(smtp)
            await self._log_in(smtp)
            yield smtp
            # The message is theirs by now, whatever they answer to this.
            with suppress(aiosmtplib.SMTPException):
                await smtp.quit()
        finally:
            smtp.close()

    def _refuse_plain(self, smtp: aiosmtplib.SMTP) -> None:
        """Whoever sits in between can take the offer of encryption out of the server's greeting."""
        server = self._server
        if smtp.get_transport_info("sslcontext") is not None or server.starttls == "never":
            return
        if server.username is None and _is_this_machine(server.host):
            return
        raise MailUnavailable(
            f"{server.host} offers no encryption, and nothing is sent without it unless email.starttls is never"
        )

    async def _log_in(self, smtp: aiosmtplib.SMTP) -> None:
        if self._server.username is not None:
            await smtp.login(self._server.username, self._password())

    def _tls_context(self) -> ssl.SSLContext:
        """Made once: it reads every certificate that the system trusts."""
        if self._tls is None:
            context = ssl.create_default_context()
            if self._server.ca_file is not None:
                context.load_verify_locations(self._server.ca_file)
            self._tls = context
        return self._tls

    def _password(self) -> str:
        file = self._server.password_file
        return read_private(file).rstrip("\r\n") if file is not None else self._server.password or ""


class _translated:
    """What the client library raises, in our words: over for good, or to be tried again."""

    def __init__(self, server: MailServer) -> None:
        self._where = f"{server.host}:{server.port}"

    def __enter__(self) -> None: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, aiosmtplib.SMTPRecipientsRefused):
            error = error.recipients[0]
        if isinstance(error, aiosmtplib.SMTPResponseException):
            said = f"{self._where} answered {error.code} {error.message}"
            raise (DoNotRetry if _is_final(error) else MailUnavailable)(said) from error
        if isinstance(error, aiosmtplib.SMTPException | OSError):
            raise MailUnavailable(f"{self._where}: {error}") from error


def _is_this_machine(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _is_final(error: aiosmtplib.SMTPResponseException) -> bool:
    """What is wrong with the message or its recipient stays wrong. A wrong password is mended by whoever runs this, and a
    mailbox that is full by its owner."""
    about_the_message = aiosmtplib.SMTPRecipientRefused | aiosmtplib.SMTPDataError | aiosmtplib.SMTPSenderRefused
    return isinstance(error, about_the_message) and 500 <= error.code < 600 and error.code != FULL_MAILBOX
