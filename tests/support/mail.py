"""A real mail server on the loopback, which keeps the mail it receives and refuses as configured."""

import asyncio
import ssl
import warnings
from collections.abc import Callable
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import SMTP as POLICY
from typing import Any

from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session

OK = "250 OK"


class Mailbox:
    """A mailbox.

    `answers` are given one by one, to RCPT or with `at="DATA"` to the message; then every message is accepted.
    """

    def __init__(
        self,
        *answers: str,
        at: str = "RCPT",
        tls: ssl.SSLContext | None = None,
        password: str | None = None,
        plain_password: bool = False,
    ) -> None:
        """If there is a `password`, clients must authenticate with it; `plain_password`: also over an unencrypted
        connection."""
        self._answers = list(answers)
        self._at = at
        self._options: dict[str, Any] = {"tls_context": tls, "require_starttls": tls is not None}
        if password is not None:
            self._options |= {
                "authenticator": _knowing(password),
                "auth_required": True,
                "auth_require_tls": not plain_password,
            }
        self.messages: list[EmailMessage] = []
        self.recipients: list[str] = []
        self.was_encrypted: list[bool] = []
        self._open: list[SMTP] = []

    async def __aenter__(self) -> "Mailbox":
        self._server = await asyncio.get_running_loop().create_server(self._session, "127.0.0.1", 0)
        self.port: int = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for session in self._open:
            if session.transport is not None:
                session.transport.abort()
        await self._server.wait_closed()

    def _session(self) -> SMTP:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that a password is requested over an unencrypted connection
            session = SMTP(self, hostname="mail.test", **self._options)
        self._open.append(session)
        return session

    async def handle_RCPT(
        self, server: SMTP, session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        answer = self._next("RCPT")
        if answer == OK:
            envelope.rcpt_tos.append(address)
        return answer

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:
        answer = self._next("DATA")
        if answer == OK:
            assert isinstance(envelope.content, bytes)
            message = message_from_bytes(envelope.content, policy=POLICY)
            assert isinstance(message, EmailMessage)
            self.messages.append(message)
            self.recipients += envelope.rcpt_tos
            self.was_encrypted.append(session.ssl is not None)
        return answer

    def _next(self, at: str) -> str:
        return self._answers.pop(0) if self._answers and at == self._at else OK


def _knowing(password: str) -> Callable[[SMTP, Session, Envelope, str, Any], AuthResult]:
    def authenticate(server: SMTP, session: Session, envelope: Envelope, mechanism: str, data: Any) -> AuthResult:
        assert isinstance(data, LoginPassword)
        return AuthResult(success=data.password.decode() == password, handled=False)

    return authenticate
