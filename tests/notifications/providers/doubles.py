"""All doubles, and the providers that reach them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from noonday.doubles.behaviour import Behaviour
from noonday.doubles.outbox import AcceptedMessage
from noonday.doubles.running import Doubles
from noonday.model.notifications.sending import ProviderAccount, ProviderKind, ProviderMessage, ProviderOutcome
from noonday.notifications.providers.catalogue import open_providers
from noonday.notifications.providers.hosts import ProviderHosts
from noonday.ports.providers import Provider
from noonday.webhooks.addresses import Networks
from tests.notifications.providers.messages import message
from tests.support.clock import ManualClock


@dataclass
class Running:
    """Doubles and a provider of one kind."""

    doubles: Doubles
    kind: ProviderKind
    provider: Provider
    hosts: ProviderHosts
    clock: ManualClock
    """The clock of both. Scripted delays last until a test advances it."""

    @property
    def account(self) -> ProviderAccount:
        [found] = [each for each in self.doubles.accounts("acme") if each.kind is self.kind]
        return found

    async def send(self, address: str | None = None, *behaviours: Behaviour, **fields: Any) -> ProviderOutcome:
        """Send a message to an address whose next calls behave so."""
        sent = self.message(address, **fields)
        if behaviours:
            self.doubles.scripts.put(sent.address, behaviours)
        return await self.provider.send(self.account, sent)

    def message(self, address: str | None = None, **fields: Any) -> ProviderMessage:
        return message(self.kind, address, **fields)

    @property
    def accepted(self) -> list[AcceptedMessage]:
        return self.doubles.outbox.newest(100)

    @property
    def calls(self) -> list[str]:
        return [call.answer for call in self.doubles.outbox.calls]


@asynccontextmanager
async def running(kind: ProviderKind, *, timeout_sec: float = 60.0) -> AsyncIterator[Running]:
    clock = ManualClock()
    doubles = Doubles(clock)
    await doubles.start()
    hosts = ProviderHosts(Networks(), doubles.endpoints)
    providers = open_providers(clock, hosts, timeout_sec=timeout_sec)
    try:
        yield Running(doubles, kind, providers.by_kind[kind], hosts, clock)
    finally:
        await providers.close()
        await doubles.stop()
