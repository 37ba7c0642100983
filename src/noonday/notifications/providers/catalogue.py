"""The kinds of providers: what checks their accounts, what sends, and what reads their receipts."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from noonday.model.errors import Flaw, NotFound
from noonday.model.notifications.provider_receipts import ProviderReceipt, ReceiptRequest
from noonday.model.notifications.sending import ProviderAccount, ProviderKind
from noonday.notifications.providers import (
    fcm_account,
    sendgrid_account,
    sendgrid_receipts,
    smtp_account,
    twilio_account,
    twilio_receipts,
)
from noonday.notifications.providers.fcm import FcmProvider
from noonday.notifications.providers.hosts import ProviderHosts
from noonday.notifications.providers.http_client import ProviderClient
from noonday.notifications.providers.sendgrid import SendGridProvider
from noonday.notifications.providers.smtp import SmtpProvider
from noonday.notifications.providers.twilio import TwilioProvider
from noonday.ports.clock import Clock
from noonday.ports.providers import Provider

_FlawsOf = Callable[[Mapping[str, Any], Mapping[str, Any], ProviderHosts], list[Flaw]]
_ReadReceipts = Callable[[ProviderAccount, ReceiptRequest], list[ProviderReceipt]]

_FLAWS: Mapping[ProviderKind, _FlawsOf] = {
    ProviderKind.SMTP: lambda settings, secrets, _: smtp_account.flaws_of(settings, secrets),
    ProviderKind.TWILIO: twilio_account.flaws_of,
    ProviderKind.SENDGRID: sendgrid_account.flaws_of,
    ProviderKind.FCM: fcm_account.flaws_of,
}
_RECEIPTS: Mapping[ProviderKind, _ReadReceipts] = {
    ProviderKind.TWILIO: twilio_receipts.read_receipts,
    ProviderKind.SENDGRID: sendgrid_receipts.read_receipts,
}
KINDS = tuple(_FLAWS)
"""The kinds that accounts may have."""


def flaws_of_account(
    kind: ProviderKind, settings: Mapping[str, Any], secrets: Mapping[str, Any], hosts: ProviderHosts
) -> list[Flaw]:
    """Return the flaws of an account, located below `/settings` and `/secrets`. No flaw contains a secret."""
    check = _FLAWS.get(kind)
    if check is None:
        return [Flaw("/kind", f"must be one of {', '.join(KINDS)}", kind.value, KINDS)]
    return check(settings, secrets, hosts)


def read_receipts(account: ProviderAccount, request: ReceiptRequest) -> list[ProviderReceipt]:
    """Verify and read the receipts that a provider delivers to an account. There may be none in a valid request.

    Raises Unauthorized if the signature does not match, InvalidInput if the body is not what the provider sends, NotFound if
    this kind of provider has no receipts.
    """
    read = _RECEIPTS.get(account.kind)
    if read is None:
        raise NotFound(f"{account.kind} sends no receipts")
    return read(account, request)


@dataclass(frozen=True, slots=True)
class OpenProviders:
    """The providers of a process, and what they share."""

    by_kind: Mapping[ProviderKind, Provider]
    client: ProviderClient

    async def close(self) -> None:
        """Close every connection. Calls in flight end with an outcome."""
        for provider in self.by_kind.values():
            await provider.close()
        await self.client.close()


def open_providers(
    clock: Clock, hosts: ProviderHosts, *, timeout_sec: float = 15.0, ca_file: Path | None = None
) -> OpenProviders:
    """Create a provider of each kind, for the running event loop. `ca_file`: authorities that HTTP calls trust in addition."""
    client = ProviderClient(clock, hosts, timeout_sec=timeout_sec, ca_file=ca_file)
    providers: dict[ProviderKind, Provider] = {
        ProviderKind.SMTP: SmtpProvider(clock, hosts, timeout_sec=timeout_sec),
        ProviderKind.TWILIO: TwilioProvider(clock, hosts, client),
        ProviderKind.SENDGRID: SendGridProvider(hosts, client),
        ProviderKind.FCM: FcmProvider(clock, hosts, client),
    }
    return OpenProviders(providers, client)
