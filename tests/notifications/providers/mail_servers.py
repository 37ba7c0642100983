"""A double of a mail server, and a provider that sends through it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from aiohttp.abc import AbstractResolver

from noonday.doubles.behaviour import Behaviour
from noonday.doubles.certificate import ThrowAwayCertificate
from noonday.doubles.outbox import AcceptedMessage, DoubleOutbox
from noonday.doubles.scripts import Scripts
from noonday.doubles.smtp import SmtpDouble
from noonday.model.notifications.sending import ProviderAccount, ProviderKind, ProviderOutcome
from noonday.notifications.providers.hosts import ProviderHosts
from noonday.notifications.providers.smtp import SmtpProvider
from tests.notifications.providers.messages import LOOPBACK, account, message
from tests.support.clock import ManualClock

LOGIN = {"username": "noonday", "password": "correct horse"}
CERTIFICATE = ThrowAwayCertificate()


@dataclass
class MailServer:
    """A mail server, its clock, and a provider."""

    double: SmtpDouble
    provider: SmtpProvider
    clock: ManualClock
    """The clock of both. Scripted delays last until a test advances it."""

    def account(self, secrets: dict[str, str] | None = None, **settings: Any) -> ProviderAccount:
        defaults = {"host": "127.0.0.1", "port": self.double.port, "from": "Shop <shop@sender.test>"}
        defaults |= {"ca": CERTIFICATE.authority} if self.double.tls else {"encryption": "NONE"}
        return account(ProviderKind.SMTP, {**defaults, **settings}, LOGIN if secrets is None else secrets)

    async def send(self, address: str = "ann@example.com", *behaviours: Behaviour, **fields: Any) -> ProviderOutcome:
        """Send a message to an address whose next calls behave so."""
        if behaviours:
            self.double.scripts.put(address, behaviours)
        return await self.provider.send(self.account(), message(ProviderKind.SMTP, address, **fields))

    @property
    def accepted(self) -> list[AcceptedMessage]:
        return self.double.outbox.newest(100)

    @property
    def calls(self) -> list[str]:
        return [call.answer for call in self.double.outbox.calls]


@asynccontextmanager
async def mail_server(
    *,
    hosts: ProviderHosts = LOOPBACK,
    resolver: AbstractResolver | None = None,
    timeout_sec: float = 60.0,
    implicit_tls: bool = False,
    tls: bool = True,
) -> AsyncIterator[MailServer]:
    clock = ManualClock()
    context = CERTIFICATE.server_context() if tls else None
    double = SmtpDouble(DoubleOutbox(), Scripts(), clock, tls=context, implicit_tls=implicit_tls, **LOGIN)
    await double.start("127.0.0.1", 0)
    provider = SmtpProvider(clock, hosts, timeout_sec=timeout_sec, resolver=resolver)
    try:
        yield MailServer(double, provider, clock)
    finally:
        await provider.close()
        await double.stop()
