"""Values that senders and providers exchange: an account, a message, and the outcome of handing it over."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

DETAIL_CHARS = 300
"""Maximum length of an outcome's detail, in characters."""
CODE_CHARS = 60
PROVIDER_ID_CHARS = 256


class ChannelKind(StrEnum):
    """The way a notification reaches its user."""

    PUSH = "PUSH"
    SMS = "SMS"
    EMAIL = "EMAIL"


class ProviderKind(StrEnum):
    """The protocol of a provider account."""

    SMTP = "SMTP"
    TWILIO = "TWILIO"
    SENDGRID = "SENDGRID"
    FCM = "FCM"
    APNS = "APNS"


CHANNEL_OF: Mapping[ProviderKind, ChannelKind] = {
    ProviderKind.SMTP: ChannelKind.EMAIL,
    ProviderKind.TWILIO: ChannelKind.SMS,
    ProviderKind.SENDGRID: ChannelKind.EMAIL,
    ProviderKind.FCM: ChannelKind.PUSH,
    ProviderKind.APNS: ChannelKind.PUSH,
}
"""The channel that each kind of provider serves."""


class OutcomeKind(StrEnum):
    """Result of handing a message to a provider. Only RETRY may go to another provider without asking."""

    ACCEPTED = "ACCEPTED"
    """The provider has taken responsibility. That is not delivery: receipts tell about it later."""
    RECIPIENT_REJECTED = "RECIPIENT_REJECTED"
    """The provider never delivers to this address; `effect` says what becomes of the address."""
    REQUEST_REJECTED = "REQUEST_REJECTED"
    """The provider refuses this message. The same message to the same provider would be refused again."""
    RETRY = "RETRY"
    """The provider has not taken the message, and may take it later."""
    CONFIGURATION_FAULT = "CONFIGURATION_FAULT"
    """The account is at fault, not the message: no message of this account can be sent until an operator repairs it."""
    UNKNOWN = "UNKNOWN"
    """The message left, and no answer arrived: the provider may have taken it."""


class AddressEffect(StrEnum):
    """What an outcome or a receipt says about the address, beyond the message."""

    KEEP = "KEEP"
    RETIRE = "RETIRE"
    """The address does not exist any more: it is not used again until the application sets it anew."""
    SUPPRESS = "SUPPRESS"
    """Its owner wants no messages. Only the owner can take that back."""
    RESTORE = "RESTORE"
    """Its owner takes a former SUPPRESS back."""


@dataclass(frozen=True, slots=True)
class Content:
    """Rendered content of a message. Which parts a channel uses is the provider's matter."""

    title: str | None = None
    text: str | None = None
    html: str | None = None
    data: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ProviderMessage:
    """A message for one address, ready to be handed to a provider."""

    tenant: str
    notification_id: str
    number: int
    """Number of the dispatch."""
    channel: ChannelKind
    address: str = field(repr=False)
    """Email address, phone number in E.164, or device token."""
    content: Content = field(repr=False)
    expires_ms: int
    category: str | None = None
    urgent: bool = False
    """The device may be woken for it."""
    app: str | None = None
    """Application that the device token belongs to, such as a bundle id. None: the account's own."""
    callback_url: str | None = None
    """Public URL of this account's receipts; a provider adds what it needs to recognize the notification."""
    unsubscribe_url: str | None = field(default=None, repr=False)
    """HTTPS link that unsubscribes its user at a POST without login (RFC 8058)."""


@dataclass(frozen=True, slots=True)
class ProviderOutcome:
    """Result of one call of a provider. It never contains an address, content or a secret, so it may be logged and shown."""

    kind: OutcomeKind
    provider_id: str | None = None
    """The provider's id of the message."""
    code: str | None = None
    """The provider's code for its answer."""
    detail: str | None = None
    """Reason for people, at most DETAIL_CHARS characters."""
    retry_after_ms: int | None = None
    """Minimum wait that the provider asks for. Only with RETRY."""
    effect: AddressEffect = AddressEffect.KEEP
    effect_since_ms: int | None = None
    """The address is invalid since this instant: an address that was registered later is kept. None: since now."""
    alerts: bool = False
    """An operator should look at it, although the account goes on, such as at refusals by a policy."""


@dataclass(frozen=True, slots=True)
class ProviderLimits:
    """Limits of one account, over all processes."""

    rate_per_sec: float | None = None
    max_concurrency: int | None = None


@dataclass(frozen=True, slots=True)
class ProviderAccount:
    """An account of a tenant at a provider."""

    tenant: str
    name: str
    kind: ProviderKind
    order: int = 1
    """Position among the tenant's accounts of the channel; the lowest is tried first."""
    limits: ProviderLimits = ProviderLimits()
    settings: Mapping[str, Any] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Decrypted secrets."""

    @property
    def channel(self) -> ChannelKind:
        """The channel that the account serves, which follows from its kind."""
        return CHANNEL_OF[self.kind]
