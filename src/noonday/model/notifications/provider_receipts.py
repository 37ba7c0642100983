"""Receipts: what a provider reports about a message after it has accepted it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from noonday.model.notifications.sending import AddressEffect


class ReceiptKind(StrEnum):
    """What a receipt says. Receipts arrive late, repeated and out of order."""

    SENT = "SENT"
    """The message has left the provider, such as to a carrier."""
    DELIVERED = "DELIVERED"
    BOUNCED = "BOUNCED"
    """The message was not delivered, and will not be."""
    OPENED = "OPENED"
    CLICKED = "CLICKED"
    OPTED_OUT = "OPTED_OUT"
    """The owner of the address wants no more messages: STOP, unsubscribe, or a spam report."""
    OPTED_IN = "OPTED_IN"
    """The owner of the address wants messages again."""


@dataclass(frozen=True, slots=True)
class ProviderReceipt:
    """One report of a provider. It is as trustworthy as its signature, which its reader has verified."""

    kind: ReceiptKind
    notification_id: str | None
    """None if it is about an address, not about a message, such as an SMS with the text STOP."""
    number: int | None
    """Number of the dispatch."""
    provider_id: str | None = None
    event_id: str | None = None
    """The provider's id of the report, to recognize repeats. None: (`provider_id`, `kind`) names it."""
    code: str | None = None
    detail: str | None = None
    at_ms: int | None = None
    """When it happened, by the provider's clock. None if the provider does not tell."""
    effect: AddressEffect = AddressEffect.KEEP
    address: str | None = field(default=None, repr=False)
    """The address that the provider names. Compare it with the notification's, or suppress it if there is no notification."""
    alerts: bool = False


@dataclass(frozen=True, slots=True)
class ReceiptRequest:
    """The HTTP request with which a provider delivers receipts."""

    url: str
    """Public URL as the provider calls it, with its query. A proxy may have changed what the server sees."""
    headers: Mapping[str, str] = field(repr=False)
    """Names in lower case."""
    body: bytes = field(repr=False)
    """As it was received: signatures cover its bytes."""
