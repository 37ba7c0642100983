"""Secret service: creates, rotates and ends the secrets that sign calls. A secret is shown once."""

import uuid_utils

from noonday.crypto.envelope import context_of
from noonday.crypto.keyring import Keyring
from noonday.intake.audit import audit_entry
from noonday.intake.idempotency import Idempotency
from noonday.intake.receipts import Receipts
from noonday.model.caller import Caller
from noonday.model.errors import Conflict, NotFound
from noonday.model.ids import TenantId
from noonday.model.job import instant_of
from noonday.model.secret import OF_TENANT, MadeSecret, NewSecret, Secret, SecretKind, SecretView
from noonday.ports.clock import Clock
from noonday.ports.endpoints import Endpoints
from noonday.tasks.definitions import endpoint_of_url
from noonday.webhooks.sending import SEALED_FOR
from noonday.webhooks.signing import new_key_pair, new_secret, public_key_of

FIRST = "first"
"""Id of the secret that is created for a tenant without one, so that every call is signed."""


class SecretService:
    """Commands and queries of secrets. Values are stored encrypted."""

    def __init__(self, endpoints: Endpoints, receipts: Receipts, keyring: Keyring, clock: Clock) -> None:
        self._endpoints = endpoints
        self._receipts = receipts
        self._keyring = keyring
        self._clock = clock
        self._tenants_with_secret: set[TenantId] = set()

    async def make(self, caller: Caller, request: NewSecret, idem: Idempotency | None) -> MadeSecret:
        """Create a secret. The previous one also signs until the overlap ends, so that receivers can switch."""
        endpoint = endpoint_of_url(request.endpoint) or OF_TENANT
        async with self._receipts.once(caller, idem):
            now_ms = self._clock.now_ms()
            name, value = f"secret-{uuid_utils.uuid7()}", _new_value(request.kind)
            secret = self._sealed(caller.tenant, name, endpoint, request.kind, value, now_ms)
            shown = value if request.kind is SecretKind.HMAC else public_key_of(value)
            made = MadeSecret(name, request.kind, instant_of(now_ms), shown, endpoint or None)
            audit = audit_entry(caller, "secret.make", name, now_ms, {"endpoint": endpoint})
            receipt = self._receipts.of(caller, idem, now_ms, made) if idem else None
            await self._endpoints.add_secret(secret, now_ms + request.overlap_seconds * 1000, audit, receipt)
            return made

    async def make_first(self, tenant: TenantId) -> None:
        """Create a secret for a tenant that has none, so that its calls are signed."""
        if tenant in self._tenants_with_secret:
            return  # the last secret cannot be ended, so the tenant still has one
        now_ms = self._clock.now_ms()
        secrets = await self._endpoints.secrets(tenant)
        if not any(each.endpoint == OF_TENANT and each.is_valid(now_ms) for each in secrets):
            secret = self._sealed(tenant, FIRST, OF_TENANT, SecretKind.HMAC, _new_value(SecretKind.HMAC), now_ms)
            await self._endpoints.add_secret(secret, now_ms, None)
        self._tenants_with_secret.add(tenant)

    async def list_secrets(self, caller: Caller) -> list[SecretView]:
        return [_view(secret) for secret in await self._endpoints.secrets(caller.tenant)]

    async def end(self, caller: Caller, secret: str, idem: Idempotency | None) -> None:
        """End a secret now. Raises NotFound, and Conflict for the last secret that is valid for all endpoints."""
        async with self._receipts.once(caller, idem):
            now_ms = self._clock.now_ms()
            valid = [each for each in await self._endpoints.secrets(caller.tenant) if each.is_valid(now_ms)]
            if not any(each.id == secret for each in valid):
                raise NotFound(f"no valid secret {secret!r}")
            if [each.id for each in valid if each.endpoint == OF_TENANT] == [secret]:
                raise Conflict("this is the last valid secret for all endpoints: create another with overlap_seconds 0")
            audit = audit_entry(caller, "secret.end", secret, now_ms)
            await self._endpoints.end_secret(caller.tenant, secret, now_ms, audit)
            await self._receipts.keep(caller, idem, None)

    def _sealed(self, tenant: TenantId, name: str, endpoint: str, kind: SecretKind, value: str, now_ms: int) -> Secret:
        sealed = self._keyring.seal(value.encode(), context_of(tenant, SEALED_FOR))
        return Secret(tenant, name, endpoint, kind, sealed, now_ms)


def _new_value(kind: SecretKind) -> str:
    return new_secret() if kind is SecretKind.HMAC else new_key_pair().private


def _view(secret: Secret) -> SecretView:
    expires = None if secret.expires_ms is None else instant_of(secret.expires_ms)
    return SecretView(secret.id, secret.kind, instant_of(secret.created_ms), secret.endpoint or None, expires)
