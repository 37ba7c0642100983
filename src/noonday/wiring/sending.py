"""What an engine sends notifications with: providers, and doubles of them where nobody has an account."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from noonday.model.notifications.sending import ProviderAccount
from noonday.notifications.providers.catalogue import OpenProviders, open_providers
from noonday.notifications.providers.hosts import ProviderHosts
from noonday.ports.clock import Clock
from noonday.webhooks.addresses import Networks
from noonday.wiring.settings import Settings

if TYPE_CHECKING:
    from noonday.doubles.running import Doubles


@dataclass(frozen=True)
class Sending:
    """The providers of a process, the hosts that accounts may name, and the doubles if they run."""

    providers: OpenProviders
    hosts: ProviderHosts
    doubles: "Doubles | None" = None

    @classmethod
    async def open(cls, settings: Settings, clock: Clock, *, with_doubles: bool = False) -> "Sending":
        """Open providers on the running event loop. `with_doubles`: start doubles, which every tenant may use."""
        doubles = await _started_doubles(clock) if with_doubles else None
        hosts = ProviderHosts(Networks(settings.webhooks.networks), doubles.endpoints if doubles else ())
        ca_file = Path(settings.webhooks.ca_file) if settings.webhooks.ca_file else None
        return cls(open_providers(clock, hosts, ca_file=ca_file), hosts, doubles)

    @property
    def default_accounts(self) -> Sequence[ProviderAccount]:
        """Accounts that a tenant uses for a channel for which it has none: those of the doubles."""
        return self.doubles.accounts("") if self.doubles is not None else ()

    async def close(self) -> None:
        """Close all connections, and stop the doubles."""
        await self.providers.close()
        if self.doubles is not None:
            await self.doubles.stop()


async def _started_doubles(clock: Clock) -> "Doubles":
    from noonday.doubles.running import Doubles  # importing them takes 6 MB, and most processes do not need them

    doubles = Doubles(clock)
    await doubles.start()
    return doubles
