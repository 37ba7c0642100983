"""Outbox: the messages that doubles have accepted."""

from collections import OrderedDict, deque
from collections.abc import Iterator
from itertools import islice
from typing import Any

import msgspec

from noonday.model.notifications.sending import ChannelKind, ProviderKind

MAX_MESSAGES = 10_000
MAX_BYTES = 64 * 1024 * 1024
MAX_CALLS = 100_000
MAX_RECEIPTS = 100


class SentReceipt(msgspec.Struct, frozen=True, omit_defaults=True):
    """A receipt that a double has sent, and the status that it was answered with."""

    state: str
    at_ms: int
    status: int | None = None
    error: str | None = None


class AcceptedMessage(msgspec.Struct, omit_defaults=True):
    """A message that a double has accepted."""

    id: int
    """Position in the outbox. Later messages have larger ones."""
    at_ms: int
    provider: ProviderKind
    channel: ChannelKind
    provider_id: str
    sender: str
    to: str
    title: str | None = None
    text: str | None = None
    html: str | None = None
    data: dict[str, Any] = {}
    """What else was sent, such as headers."""
    receipts: list[SentReceipt] = []

    @property
    def size(self) -> int:
        """Approximate number of bytes that the message takes in memory."""
        return 1_000 + len(self.text or "") + len(self.html or "") + len(str(self.data))


class ProviderCall(msgspec.Struct, frozen=True, array_like=True):
    """A call of a provider, accepted or not."""

    at_ms: int
    provider: ProviderKind
    to: str
    answer: str
    """`accepted`, or the provider's code."""
    reference: str = ""
    """The sender's own reference: the Message-ID or the callback URL."""


class DoubleOutbox:
    """Keeps the newest messages, at most MAX_MESSAGES and MAX_BYTES."""

    def __init__(self, most: int = MAX_MESSAGES, most_bytes: int = MAX_BYTES) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._messages: OrderedDict[int, AcceptedMessage] = OrderedDict()
        self._by_provider_id: dict[str, int] = {}
        self._bytes = 0
        self._last = 0
        self.calls: deque[ProviderCall] = deque(maxlen=MAX_CALLS)
        """The newest calls, oldest first."""

    def __len__(self) -> int:
        return len(self._messages)

    def next_id(self) -> int:
        """Return the id of the next message."""
        return self._last + 1

    def add(self, message: AcceptedMessage) -> None:
        """Keep an accepted message, and drop the oldest ones beyond the bounds."""
        self._last = message.id
        self._messages[message.id] = message
        self._by_provider_id[message.provider_id] = message.id
        self._bytes += message.size
        while len(self._messages) > self._most or (self._bytes > self._most_bytes and len(self._messages) > 1):
            _, oldest = self._messages.popitem(last=False)
            self._by_provider_id.pop(oldest.provider_id, None)
            self._bytes -= oldest.size

    def find(self, message_id: int) -> AcceptedMessage | None:
        """Return a message by its position."""
        return self._messages.get(message_id)

    def find_by_provider_id(self, provider_id: str) -> AcceptedMessage | None:
        """Return a message by the provider's id."""
        return self._messages.get(self._by_provider_id.get(provider_id, 0))

    def add_receipt(self, provider_id: str, receipt: SentReceipt) -> None:
        """Note a receipt of a message, if the message is still kept."""
        message = self.find_by_provider_id(provider_id)
        if message is not None and len(message.receipts) < MAX_RECEIPTS:
            message.receipts = [*message.receipts, receipt]

    def newest(
        self, limit: int, *, channel: ChannelKind | None = None, to: str | None = None, before: int | None = None
    ) -> list[AcceptedMessage]:
        """Return messages, newest first, that have the channel and the recipient and are older than `before`."""
        return list(islice(self._matching(channel, to, before), limit))

    def clear(self) -> None:
        """Forget all messages and calls."""
        self._messages.clear()
        self._by_provider_id.clear()
        self.calls.clear()
        self._bytes = 0

    def _matching(self, channel: ChannelKind | None, to: str | None, before: int | None) -> Iterator[AcceptedMessage]:
        for message in reversed(self._messages.values()):
            if channel is not None and message.channel is not channel:
                continue
            if to is not None and message.to.lower() != to.lower():
                continue
            if before is None or message.id < before:
                yield message
