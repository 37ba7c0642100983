"""What can be asked of a server about the secrets that calls of tasks are signed with."""

from collections.abc import Sequence
from typing import Any

import msgspec

from noonday.sdk.fields import filled
from noonday.sdk.transport import Transport, path_of
from noonday.tasks.secrets import MadeSecret, NewSecret, SecretView


class Secrets:
    """`client.secrets`. Errors and retries are those of the client; every change carries an Idempotency-Key."""

    def __init__(self, http: Transport) -> None:
        self._http = http

    async def make(
        self, wanted: NewSecret | None = None, /, *, idempotency_key: str | None = None, **fields: Any
    ) -> MadeSecret:
        """Make a secret, or replace the one there is: `make(endpoint="https://api.example.com")`.

        The answer is the only one that has the secret in it. The former one of the same endpoint goes on to sign as well
        for `overlap_seconds`. Needs scope admin.
        """
        said = filled(NewSecret, wanted, fields)
        return await self._http.change(MadeSecret, "POST", "/v1/webhook-secrets", said, key=idempotency_key)

    async def list(self) -> Sequence[SecretView]:
        """The secrets, newest first, without what is secret of them."""
        return (await self._http.get(_Secrets, "/v1/webhook-secrets")).secrets

    async def end(self, secret_id: str) -> None:
        """Nothing is signed with it any more. Raises NotFound, and Conflict for the last one. Needs scope admin."""
        await self._http.change(type(None), "DELETE", path_of("webhook-secrets", secret_id))


class _Secrets(msgspec.Struct):
    secrets: tuple[SecretView, ...]
