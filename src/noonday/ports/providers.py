"""Providers that take push messages, SMS and emails."""

from abc import ABC, abstractmethod
from collections.abc import Mapping

from noonday.model.notifications.sending import ProviderAccount, ProviderKind, ProviderMessage, ProviderOutcome


class Provider(ABC):
    """Hands messages to one kind of provider, for any account of that kind. Used on one event loop."""

    @abstractmethod
    async def send(self, account: ProviderAccount, message: ProviderMessage) -> ProviderOutcome:
        """Hand a message over, once, and return what came of it, within the time limit that the provider was created with.

        Failures of the network, the provider and the account are outcomes; they raise nothing. If it is cancelled after the
        message began to leave, the outcome is unknown.
        """

    @abstractmethod
    async def find(self, account: ProviderAccount, message: ProviderMessage, since_ms: int) -> ProviderOutcome | None:
        """Ask the provider what became of a message whose outcome is unknown. `since_ms`: when it was handed over.

        Returns ACCEPTED if the provider certainly has it, and None if it cannot tell. Failures raise nothing.
        """

    @abstractmethod
    async def close(self) -> None:
        """Close every connection. Calls in flight end with an outcome."""


Providers = Mapping[ProviderKind, Provider]
"""The providers of a process. A new kind of provider is one more entry."""
