"""Channels that deliver notices to people."""

from abc import ABC, abstractmethod
from collections.abc import Mapping

from noonday.model.notice import ChannelType, Notice


class Channel(ABC):
    """Hands notices to a provider, such as a mail server or a push service. Knows nothing of alerts."""

    @abstractmethod
    def flaw_of(self, address: str) -> str | None:
        """Return what is wrong with an address, for people, or None if notices can be sent to it."""

    @abstractmethod
    async def send(self, notice: Notice) -> None:
        """Send a notice. When this returns, the provider has taken responsibility for it.

        The same notice may be sent again if its outcome is unknown. It then has the same id, so that a receiver can recognise
        it. Raises DoNotRetry if it can never be sent, Unavailable if it may be sent later.
        """


Channels = Mapping[ChannelType, Channel]
"""The configured channels. A new kind of channel is one more entry."""
