"""Email over SMTP, through the mail server of an account."""

import asyncio

from aiohttp.abc import AbstractResolver

from noonday.model.errors import InvalidInput
from noonday.model.notifications.sending import ProviderAccount, ProviderMessage, ProviderOutcome
from noonday.notifications.providers.hosts import ProviderHosts
from noonday.notifications.providers.outcomes import account_fault, request_rejected
from noonday.notifications.providers.smtp_account import flaws_of, server_of
from noonday.notifications.providers.smtp_connections import SmtpConnections, SmtpLender
from noonday.notifications.providers.smtp_judging import SmtpError, SmtpExchange, SmtpStep, judge
from noonday.notifications.providers.smtp_message import SmtpEnvelope, request
from noonday.notifications.providers.smtp_session import CLOSING, SmtpFailure, SmtpSession
from noonday.ports.clock import Clock
from noonday.ports.providers import Provider
from noonday.webhooks.dialing import SystemResolver

TIMEOUT_SEC = 15.0
"""Maximum duration of one message, with the time it waits for a connection, in seconds."""


class SmtpProvider(Provider):
    """Sends emails over kept connections. MAIL, RCPT, DATA and the content are separate steps, each with its reply."""

    def __init__(
        self,
        clock: Clock,
        hosts: ProviderHosts,
        *,
        timeout_sec: float = TIMEOUT_SEC,
        resolver: AbstractResolver | None = None,
    ) -> None:
        self._clock = clock
        self._timeout_sec = timeout_sec
        self._resolver = resolver or SystemResolver()
        self._connections = SmtpConnections(hosts, self._resolver, clock)

    @property
    def idle_connections(self) -> int:
        """Number of open connections that no message uses."""
        return self._connections.idle

    async def send(self, account: ProviderAccount, message: ProviderMessage) -> ProviderOutcome:
        if flaws := flaws_of(account.settings, account.secrets):
            return account_fault("BAD_ACCOUNT", f"{flaws[0].pointer} {flaws[0].detail}")
        try:
            envelope = request(account, message, self._clock.now_ms())
        except InvalidInput as bad:
            return request_rejected("BAD_MESSAGE", bad.detail)
        except ValueError:
            return request_rejected("BAD_MESSAGE", "the content has characters that an email cannot have")
        return judge(await self._transfer(account, envelope), envelope.message_id)

    async def find(self, account: ProviderAccount, message: ProviderMessage, since_ms: int) -> None:
        """Return None: a mail server cannot tell which messages it has taken."""

    async def close(self) -> None:
        await self._connections.close()
        await self._resolver.close()

    async def _transfer(self, account: ProviderAccount, envelope: SmtpEnvelope) -> SmtpExchange:
        conversation = _Conversation(envelope)
        try:
            async with asyncio.timeout(self._timeout_sec):
                async with self._connections.lend(server_of(account)) as lender:
                    return await conversation.run(lender)
        except TimeoutError:
            return conversation.timed_out(self._timeout_sec)


class _Conversation:
    """Hands one message over, on a second connection if a kept one turns out to be dead before the content leaves."""

    def __init__(self, envelope: SmtpEnvelope) -> None:
        self._envelope = envelope
        self._session: SmtpSession | None = None
        self._result: SmtpExchange | None = None

    async def run(self, lender: SmtpLender) -> SmtpExchange:
        try:
            exchange = await self._transfer(await lender.session(), lender)
            if self._was_kept() and _is_of_connection(exchange):
                exchange = await self._transfer(await lender.session(fresh=True), lender)
        except SmtpFailure as failure:
            return failure.exchange
        return exchange

    def timed_out(self, after_sec: float) -> SmtpExchange:
        """Return the exchange of a conversation that a timeout has ended."""
        if self._result is not None:
            return self._result
        step = self._session.step if self._session is not None else SmtpStep.DIAL
        reason = f"the mail server did not finish within {after_sec:g} s"
        return SmtpExchange(step, error=SmtpError.TIMEOUT, reason=reason)

    async def _transfer(self, session: SmtpSession, lender: SmtpLender) -> SmtpExchange:
        self._session, self._result = session, None
        try:
            self._result = exchange = await session.transfer(self._envelope)
            if session.is_clean and session.step < SmtpStep.BODY:
                # The server still remembers the sender of the refused message.
                await session.reset()
        finally:
            lender.give_back(session)
        return exchange

    def _was_kept(self) -> bool:
        return self._session is not None and self._session.messages > 1


def _is_of_connection(exchange: SmtpExchange) -> bool:
    """Return whether the connection, not the message, is the reason why nothing was transferred."""
    if exchange.step is SmtpStep.BODY:
        return False
    return exchange.error is SmtpError.BROKEN or exchange.code == CLOSING
