"""Client of /v1/webhook-secrets: secrets that sign the calls of tasks."""

from collections.abc import Sequence
from typing import Any

import msgspec

from noonday.model.secret import MadeSecret, NewSecret, SecretView
from noonday.sdk.fields import filled
from noonday.sdk.transport import ClientPart, path_of


class SecretsClient(ClientPart):
    """`client.secrets`. Errors and retries are as in `Client`; every change has an Idempotency-Key."""

    async def make(
        self, wanted: NewSecret | None = None, /, *, idempotency_key: str | None = None, **fields: Any
    ) -> MadeSecret:
        """Create or rotate a secret: `make(endpoint="https://api.example.com")`. Needs scope admin.

        Only this result has the secret. The previous secret of the same endpoint keeps signing for `overlap_seconds`.
        """
        spec = filled(NewSecret, wanted, fields)
        return await self._http.change(MadeSecret, "POST", "/v1/webhook-secrets", spec, key=idempotency_key)

    async def list(self) -> Sequence[SecretView]:
        """Return the secrets, newest first, without their values."""
        return (await self._http.get(_Secrets, "/v1/webhook-secrets")).secrets

    async def end(self, secret_id: str) -> None:
        """Delete a secret. Raises NotFound, and Conflict for the last one. Needs scope admin."""
        await self._http.change(type(None), "DELETE", path_of("webhook-secrets", secret_id))


class _Secrets(msgspec.Struct):
    secrets: tuple[SecretView, ...]
