"""Account service: the accounts that tenants have at providers. Secrets are stored encrypted and never shown."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import UNSET

from noonday.crypto.keyring import Keyring
from noonday.intake.audit import audit_entry
from noonday.intake.idempotency import Idempotency
from noonday.intake.receipts import Receipts
from noonday.model.caller import Caller
from noonday.model.errors import Conflict, Flaw, NotFound, pointer_to
from noonday.model.notifications.sending import CHANNEL_OF, ProviderKind, ProviderLimits
from noonday.model.notifications.user import AccountRow
from noonday.model.notifications.wire import ProviderSpec, ProviderView
from noonday.notifications.accounts import AccountCache, account_context
from noonday.notifications.presenters import provider_view
from noonday.notifications.translating import refusal_of
from noonday.ports.clock import Clock
from noonday.ports.notifications import ProviderAccounts

MOST = 50
"""Maximum number of accounts of one tenant."""
MOST_FIELDS = 20
"""Maximum number of settings, and of secrets, of one account."""
SETTING_CHARS = 65_536
"""Maximum length of a setting that is a text. Certificates are the longest."""
SECRET_CHARS = 8_192
"""Maximum length of a secret. The key of a service account is the longest."""
_NAME_CHARS = 100
_decode_secrets = msgspec.json.Decoder(dict[str, str]).decode

FlawsOfAccount = Callable[[ProviderKind, Mapping[str, Any], Mapping[str, str]], Sequence[Flaw]]
"""Returns the flaws of the settings and secrets of an account of a kind. No flaw contains a secret."""


class AccountService:
    """Commands and queries of provider accounts."""

    def __init__(
        self,
        accounts: ProviderAccounts,
        cache: AccountCache,
        keyring: Keyring,
        flaws_of_account: FlawsOfAccount,
        receipts: Receipts,
        clock: Clock,
    ) -> None:
        """`cache`: what this process knows about accounts. A change is effective in it at once."""
        self._accounts = accounts
        self._cache = cache
        self._keyring = keyring
        self._flaws_of_account = flaws_of_account
        self._receipts = receipts
        self._clock = clock

    async def put(self, caller: Caller, name: str, spec: ProviderSpec, idem: Idempotency | None = None) -> ProviderView:
        """Create an account, or replace it and clear its fault.

        Raises InvalidInput with every flaw, and Conflict if the tenant has the maximum number of accounts.
        """
        async with self._receipts.once(caller, idem):
            before = await self._accounts.find(caller.tenant, name)
            secrets = self._secrets_of(spec, before)
            flaws = list(_flaws_of_form(spec, secrets))
            if flaws := flaws or list(self._flaws_of_account(spec.kind, spec.settings, secrets)):
                raise refusal_of(flaws)
            now_ms = self._clock.now_ms()
            row = self._row(caller, name, spec, secrets, before, now_ms)
            view = provider_view(row, secrets)
            audit = audit_entry(caller, "provider.put", name, now_ms, {"kind": spec.kind.value})
            receipt = self._receipts.of(caller, idem, now_ms, view) if idem else None
            if not await self._accounts.put(row, MOST, audit, receipt):
                raise Conflict(f"the tenant has {MOST} provider accounts, the maximum; delete one", limit=MOST)
            self._cache.forget(caller.tenant)
            return view

    async def get(self, caller: Caller, name: str) -> ProviderView:
        """Return an account without its secrets. Raises NotFound."""
        row = await self._accounts.find(caller.tenant, name)
        if row is None:
            raise _missing(name)
        return self._view(row)

    async def list_accounts(self, caller: Caller) -> list[ProviderView]:
        """Return all accounts of the tenant, by order and name."""
        return [self._view(row) for row in await self._accounts.accounts_of([caller.tenant])]

    async def delete(self, caller: Caller, name: str, idem: Idempotency | None = None) -> None:
        """Delete an account with its secrets. Raises NotFound."""
        async with self._receipts.once(caller, idem):
            audit = audit_entry(caller, "provider.delete", name, self._clock.now_ms())
            if not await self._accounts.delete(caller.tenant, name, audit):
                raise _missing(name)
            self._cache.forget(caller.tenant)
            await self._receipts.keep(caller, idem, None)

    def _secrets_of(self, spec: ProviderSpec, before: AccountRow | None) -> dict[str, str]:
        """Return the secrets of the request, or the stored ones.

        Stored ones are kept for the same settings only: else a new host would receive a secret that nobody has to know.
        """
        if spec.secrets is not UNSET:
            return dict(spec.secrets)
        if before is None:
            return {}
        if (before.kind, before.settings) != (spec.kind, spec.settings):
            raise refusal_of([Flaw("/secrets", "must be sent again, because kind or settings change")])
        return self._opened(before)

    def _row(
        self,
        caller: Caller,
        name: str,
        spec: ProviderSpec,
        secrets: Mapping[str, str],
        before: AccountRow | None,
        now_ms: int,
    ) -> AccountRow:
        return AccountRow(
            tenant=caller.tenant,
            name=name,
            kind=spec.kind,
            order=spec.order,
            limits=ProviderLimits(spec.limits.rate_per_sec, spec.limits.max_concurrency),
            settings=spec.settings,
            secrets=self._keyring.seal(msgspec.json.encode(secrets), account_context(caller.tenant, name)),
            version=before.version + 1 if before else 1,
            created_ms=before.created_ms if before else now_ms,
            updated_ms=now_ms,
        )

    def _opened(self, row: AccountRow) -> dict[str, str]:
        return _decode_secrets(self._keyring.open(row.secrets, account_context(row.tenant, row.name)))

    def _view(self, row: AccountRow) -> ProviderView:
        return provider_view(row, self._opened(row))


def _flaws_of_form(spec: ProviderSpec, secrets: Mapping[str, Any]) -> Iterator[Flaw]:
    channel = CHANNEL_OF[spec.kind]
    if spec.channel not in (None, channel):
        detail = f"must be {channel}: an account of kind {spec.kind} serves no other channel"
        yield Flaw("/channel", detail, spec.channel, channel.value)
    for field, values in (("settings", spec.settings), ("secrets", secrets)):
        if len(values) > MOST_FIELDS:
            yield Flaw(f"/{field}", f"must have at most {MOST_FIELDS} members; there are {len(values):,}")
            return
    for name, value in spec.settings.items():
        is_text = isinstance(value, str)
        if not (is_text or isinstance(value, bool | int | float)) or (is_text and len(value) > SETTING_CHARS):
            detail = f"must be a text of at most {SETTING_CHARS:,} characters, a number, true or false"
            yield Flaw(pointer_to("settings", name[:_NAME_CHARS]), detail)
    for name, secret in secrets.items():
        if not isinstance(secret, str) or not 0 < len(secret) <= SECRET_CHARS:
            yield Flaw(pointer_to("secrets", name[:_NAME_CHARS]), f"must be a text of 1 to {SECRET_CHARS:,} characters")


def _missing(name: str) -> NotFound:
    return NotFound(f"there is no provider account {name!r}", name=name)
