"""Ways to reach a person."""

from abc import ABC, abstractmethod
from collections.abc import Mapping

from noonday.model.notice import ChannelType, Notice


class Channel(ABC):
    """Hands notices to whoever brings them to people: a mail server, a push service. Knows nothing of alerts."""

    @abstractmethod
    def flaw_of(self, address: str) -> str | None:
        """What is wrong with an address, in words; None if notices can be sent there."""

    @abstractmethod
    async def send(self, notice: Notice) -> None:
        """Hand over a notice. Returning means that somebody else has taken responsibility for it.

        The same notice may be sent again, when it is not known what became of it: it has the same id then, and a receiver
        should be able to tell. Raises DoNotRetry if it can never be handed over, Unavailable if trying again later is right.
        """


Channels = Mapping[ChannelType, Channel]
"""Those that are set up. A new way to reach people is one more entry."""
