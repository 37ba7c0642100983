"""Provider accounts, as senders use them: opened, in their order, and read again after some seconds."""

from collections.abc import Collection, Sequence

import msgspec
import structlog

from noonday.crypto.envelope import context_of
from noonday.crypto.keyring import Keyring
from noonday.model.ids import TenantId
from noonday.model.notifications.sending import CHANNEL_OF, ChannelKind, ProviderAccount, ProviderKind
from noonday.model.notifications.user import AccountRow
from noonday.ports.clock import Clock
from noonday.ports.notifications import ProviderAccounts

log = structlog.get_logger("noonday.notifications")
FRESH_SEC = 2.0
"""How long the accounts of a tenant are used before they are read again."""
MOST_TENANTS = 1_000
"""Tenants whose accounts are kept. The one that was read longest ago is dropped first."""


class AccountCache:
    """The accounts of tenants. Tenants without an account for a channel use `defaults`, if there are any."""

    def __init__(
        self,
        accounts: ProviderAccounts,
        keyring: Keyring,
        clock: Clock,
        defaults: Sequence[ProviderAccount] = (),
    ) -> None:
        """`defaults`: accounts that every tenant may use, such as those of the provider doubles."""
        self._accounts = accounts
        self._keyring = keyring
        self._clock = clock
        self._defaults = defaults
        self._kept: dict[str, tuple[float, list[AccountRow]]] = {}

    async def usable(self, tenant: str, channel: ChannelKind, excluded: Collection[str]) -> list[ProviderAccount]:
        """Return the accounts of a channel that are not stopped, in their order."""
        rows = await self._of_channel(tenant, channel)
        if not rows:
            return [each for each in self._defaults if each.channel is channel and each.name not in excluded]
        return [self._opened(row) for row in rows if row.fault is None and row.name not in excluded]

    async def stopped(self, tenant: str, channel: ChannelKind, excluded: Collection[str]) -> list[AccountRow]:
        """Return the accounts of a channel that are stopped by a fault."""
        rows = await self._of_channel(tenant, channel)
        return [row for row in rows if row.fault is not None and row.name not in excluded]

    async def has_any(self, tenant: str, channel: ChannelKind) -> bool:
        """Return whether a tenant can send over a channel, now or once a fault is mended."""
        return bool(await self._of_channel(tenant, channel)) or any(each.channel is channel for each in self._defaults)

    def forget(self, tenant: str) -> None:
        """Read the accounts of a tenant again, because they have changed."""
        self._kept.pop(tenant, None)

    async def stop(self, account: ProviderAccount, why: str, now_ms: int) -> None:
        """Stop an account because of a fault. It is used again once it is changed."""
        _, rows = self._kept.pop(account.tenant, (0.0, []))
        version = next((row.version for row in rows if row.name == account.name), None)
        if version is None:
            return  # a default account, or one that has just been changed
        if await self._accounts.stop(TenantId(account.tenant), account.name, version, why, now_ms):
            log.error("provider account stopped", tenant=account.tenant, account=account.name, reason=why)

    async def _of_channel(self, tenant: str, channel: ChannelKind) -> list[AccountRow]:
        now = self._clock.monotonic()
        kept = self._kept.get(tenant)
        if kept is None or now - kept[0] > FRESH_SEC:
            self._kept.pop(tenant, None)
            kept = self._kept[tenant] = now, await self._accounts.accounts_of([tenant])
            while len(self._kept) > MOST_TENANTS:
                del self._kept[next(iter(self._kept))]
        return [row for row in kept[1] if CHANNEL_OF[row.kind] is channel]

    def _opened(self, row: AccountRow) -> ProviderAccount:
        secrets = self._keyring.open(row.secrets, account_context(row.tenant, row.name))
        return ProviderAccount(
            tenant=row.tenant,
            name=row.name,
            kind=ProviderKind(row.kind),
            order=row.order,
            limits=row.limits,
            settings=row.settings,
            secrets=msgspec.json.decode(secrets, type=dict[str, str]),
        )


def account_context(tenant: str, name: str) -> bytes:
    """Return the context that binds sealed secrets to their account."""
    return context_of(tenant, f"provider/{name}")
