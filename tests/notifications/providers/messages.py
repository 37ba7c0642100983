"""Valid accounts and messages with defaults. A test states only what matters to it."""

from typing import Any

from noonday.model.notifications.sending import (
    CHANNEL_OF,
    ChannelKind,
    Content,
    ProviderAccount,
    ProviderKind,
    ProviderLimits,
    ProviderMessage,
)
from noonday.notifications.providers.hosts import ProviderHosts
from noonday.webhooks.addresses import Networks
from tests.support.factories import HOUR, NOW_MS

NOTIFICATION = "01a230d5-1280-81a7-9c1e-5b2f6d8e9a01"
ADDRESSES = {ChannelKind.EMAIL: "ann@example.com", ChannelKind.SMS: "+4930123456", ChannelKind.PUSH: "ab" * 32}
LOOPBACK = ProviderHosts(Networks(["127.0.0.0/8"]))


def content(**fields: Any) -> Content:
    return Content(**{"title": "Shipped", "text": "Order A-17 is on its way.", **fields})


def message(kind: ProviderKind, address: str | None = None, **fields: Any) -> ProviderMessage:
    channel = CHANNEL_OF[kind]
    defaults: dict[str, Any] = {
        "tenant": "acme",
        "notification_id": NOTIFICATION,
        "number": 1,
        "channel": channel,
        "address": address or ADDRESSES[channel],
        "content": content(),
        "expires_ms": NOW_MS + HOUR,
    }
    return ProviderMessage(**{**defaults, **fields})


def account(
    kind: ProviderKind, settings: dict[str, Any], secrets: dict[str, str] | None = None, **fields: Any
) -> ProviderAccount:
    defaults: dict[str, Any] = {"tenant": "acme", "name": "main", "limits": ProviderLimits()}
    return ProviderAccount(kind=kind, settings=settings, secrets=secrets or {}, **{**defaults, **fields})
