"""One conversation with a mail server: greeting, encryption and login once, then one message after the other."""

import asyncio
import ssl
from contextlib import suppress

import aiosmtplib

from noonday.notifications.providers.smtp_account import Encryption, SmtpServer
from noonday.notifications.providers.smtp_dialing import Dialer
from noonday.notifications.providers.smtp_judging import SmtpError, SmtpExchange, SmtpStep
from noonday.notifications.providers.smtp_message import SmtpEnvelope
from noonday.webhooks.dialing import RefusedAddress

_CONTENT_WANTED = 354
CLOSING = 421


class SmtpFailure(Exception):
    """A step failed. Has the exchange for `judge`."""

    def __init__(self, exchange: SmtpExchange) -> None:
        super().__init__(exchange.step.name)
        self.exchange = exchange


class _NotOffered(Exception):
    """The server lacks an extension that the account needs."""


class SmtpSession:
    """A connection to a mail server, used by one message at a time.

    `step` tells how far the present message came, also after a timeout or a cancellation from outside.
    """

    def __init__(self, server: SmtpServer, tls: ssl.SSLContext | None) -> None:
        self.server = server
        self.step = SmtpStep.DIAL
        self.messages = 0
        """Messages that were begun on this connection."""
        self.is_clean = False
        """The server waits for the next message: the connection may be kept."""
        self.idle_since = 0.0
        self._tls = tls
        self._smtp: aiosmtplib.SMTP | None = None

    @property
    def is_connected(self) -> bool:
        """Whether the connection is open, as far as is known."""
        return self._smtp is not None and self._smtp.is_connected

    async def open(self, dialer: Dialer) -> None:
        """Dial the server, encrypt the connection and log in. Raises SmtpFailure."""
        server = self.server
        try:
            connection = await dialer.dial(server.tenant, server.host, server.port)
            name = connection.getsockname()[0]
            self.step = SmtpStep.GREETING
            self._smtp = smtp = aiosmtplib.SMTP(
                hostname=server.host,
                sock=connection,
                local_hostname=f"[IPv6:{name}]" if ":" in name else f"[{name}]",
                timeout=None,
                use_tls=server.encryption is Encryption.TLS,
                start_tls=False,
                tls_context=self._tls,
            )
            await smtp.connect()
            await self._encrypt(smtp)
            await self._log_in(smtp)
        except Exception as error:
            self.close()
            raise SmtpFailure(self._exchange_of(error)) from error
        self.is_clean = True

    async def transfer(self, envelope: SmtpEnvelope) -> SmtpExchange:
        """Hand one message over. Returns the last reply, or the error instead of a reply."""
        smtp, self.is_clean, self.step = self._smtp, False, SmtpStep.MAIL
        self.messages += 1
        try:
            if smtp is None:
                raise aiosmtplib.SMTPServerDisconnected("not connected")
            code, text = await self._transfer(smtp, envelope)
        except Exception as error:
            return self._exchange_of(error)
        self.is_clean = code != CLOSING
        return SmtpExchange(self.step, code, text)

    async def reset(self) -> None:
        """Let the server forget a refused message. The connection cannot be kept if that fails."""
        self.is_clean = False
        with suppress(aiosmtplib.SMTPException, OSError):
            if self._smtp is not None:
                await self._smtp.rset()
                self.is_clean = True

    async def quit(self) -> None:
        """End the conversation politely."""
        if self._smtp is not None:
            with suppress(aiosmtplib.SMTPException, OSError):
                await self._smtp.quit()
        self.close()

    def close(self) -> None:
        """Close the connection at once."""
        self.is_clean = False
        if self._smtp is not None:
            self._smtp.close()

    async def _encrypt(self, smtp: aiosmtplib.SMTP) -> None:
        self.step = SmtpStep.TLS
        await smtp.ehlo()
        if self.server.encryption is Encryption.STARTTLS:
            if not smtp.supports_extension("starttls"):
                raise _NotOffered("offers no STARTTLS; set encryption to TLS, or to NONE if no encryption is intended")
            await smtp.starttls(server_hostname=self.server.host, tls_context=self._tls)
            await smtp.ehlo()

    async def _log_in(self, smtp: aiosmtplib.SMTP) -> None:
        if self.server.username is not None:
            self.step = SmtpStep.AUTH
            if not smtp.supported_auth_methods:
                raise _NotOffered("offers no way to log in that Noonday knows: PLAIN, LOGIN or CRAM-MD5")
            await smtp.login(self.server.username, self.server.password or "")

    async def _transfer(self, smtp: aiosmtplib.SMTP, envelope: SmtpEnvelope) -> tuple[int, str]:
        options = [f"SIZE={len(envelope.content)}"] if smtp.supports_extension("size") else []
        await smtp.mail(envelope.sender, options=options)
        self.step = SmtpStep.RCPT
        await smtp.rcpt(envelope.recipient)
        self.step = SmtpStep.DATA
        reply = await smtp.execute_command(b"DATA")
        if reply.code != _CONTENT_WANTED or smtp.protocol is None:
            return reply.code, reply.message
        # Separate from DATA: a connection that breaks before the server asked for the content has transferred nothing.
        self.step = SmtpStep.BODY
        smtp.protocol.write(_dot_stuffed(envelope.content))
        reply = await smtp.protocol.read_response()
        return reply.code, reply.message

    def _exchange_of(self, error: Exception) -> SmtpExchange:
        where = f"{self.server.host}:{self.server.port}"
        cause = error.__cause__ if isinstance(error, aiosmtplib.SMTPConnectError) else error
        if isinstance(error, aiosmtplib.SMTPResponseException):
            return self._exchange_of_reply(error, where)
        if isinstance(cause, RefusedAddress):
            return SmtpExchange(self.step, error=SmtpError.REFUSED_ADDRESS, reason=cause.strerror or str(cause))
        if isinstance(cause, ssl.SSLCertVerificationError):
            reason = f"{where}: the certificate is not trusted: {cause.verify_message}"
            return SmtpExchange(self.step, error=SmtpError.UNTRUSTED, reason=reason)
        if isinstance(error, _NotOffered):
            return SmtpExchange(self.step, error=SmtpError.UNTRUSTED, reason=f"{where} {error}")
        if isinstance(error, TimeoutError | aiosmtplib.SMTPTimeoutError):
            return SmtpExchange(self.step, error=SmtpError.TIMEOUT, reason=f"{where} did not answer in time")
        if isinstance(error, aiosmtplib.SMTPException | OSError):
            return SmtpExchange(self.step, error=SmtpError.BROKEN, reason=f"{where}: {_phrase_of(cause)}")
        raise error

    def _exchange_of_reply(self, error: aiosmtplib.SMTPResponseException, where: str) -> SmtpExchange:
        if error.code < 200:
            return SmtpExchange(self.step, error=SmtpError.UNREADABLE, reason=f"{where} does not answer in SMTP")
        # RCPT and MAIL leave the connection usable.
        self.is_clean = self.step >= SmtpStep.MAIL and error.code != CLOSING
        return SmtpExchange(self.step, error.code, error.message)


def _phrase_of(error: BaseException | None) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return "the connection ended" if isinstance(error, aiosmtplib.SMTPException) else "the connection cannot be opened"


def _dot_stuffed(content: bytes) -> bytes:
    """Return a message with CRLF line ends as it follows DATA: a leading dot is doubled, and a lone dot ends it."""
    stuffed = content.replace(b"\r\n.", b"\r\n..")
    if stuffed.startswith(b"."):
        stuffed = b"." + stuffed
    return stuffed + (b".\r\n" if stuffed.endswith(b"\r\n") else b"\r\n.\r\n")


async def end_all(sessions: list[SmtpSession], within_sec: float) -> None:
    """End conversations politely, or at once when the time is up."""
    if sessions:
        endings = [asyncio.ensure_future(session.quit()) for session in sessions]
        _, late = await asyncio.wait(endings, timeout=within_sec)
        for ending in late:
            ending.cancel()
        for session in sessions:
            session.close()
