"""Client of /v1/providers: accounts at providers that deliver notifications."""

from collections.abc import Sequence
from typing import Any

import msgspec

from noonday.model.notifications.wire import ProviderSpec, ProviderView
from noonday.sdk.fields import filled
from noonday.sdk.transport import ClientPart, path_of


class ProvidersClient(ClientPart):
    """`client.providers`. Changes need scope admin, and have an Idempotency-Key. Errors and retries are as in `Client`."""

    async def put(
        self, name: str, spec: ProviderSpec | None = None, /, *, idempotency_key: str | None = None, **fields: Any
    ) -> ProviderView:
        """Create or replace an account: `put("mail", kind="SMTP", settings={...}, secrets={...})`.

        Without `secrets` the stored ones are kept, provided that kind and settings are unchanged. Raises InvalidInput with every
        flaw.
        """
        body = filled(ProviderSpec, spec, fields)
        return await self._http.change(ProviderView, "PUT", path_of("providers", name), body, key=idempotency_key)

    async def get(self, name: str) -> ProviderView:
        """Return an account without its secrets. Raises NotFound."""
        return await self._http.get(ProviderView, path_of("providers", name))

    async def list(self) -> Sequence[ProviderView]:
        """Return all accounts, by order and name, without their secrets."""
        return (await self._http.get(_Providers, "/v1/providers")).providers

    async def delete(self, name: str, *, idempotency_key: str | None = None) -> None:
        """Delete an account with its secrets. Raises NotFound."""
        await self._http.change(type(None), "DELETE", path_of("providers", name), key=idempotency_key)


class _Providers(msgspec.Struct):
    providers: tuple[ProviderView, ...]
