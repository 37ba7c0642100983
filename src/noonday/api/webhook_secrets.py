"""/v1/webhook-secrets: secrets that sign the calls of tasks."""

from typing import Annotated

import msgspec

from noonday.api.context import RequestContext
from noonday.api.routing import Route
from noonday.model.secret import MadeSecret, NewSecret, SecretView

SecretId = Annotated[str, msgspec.Meta(pattern=r"^[a-z0-9-]{1,60}$", title="secret")]


class SecretList(msgspec.Struct, frozen=True):
    secrets: list[SecretView]


async def make_secret(context: RequestContext, body: NewSecret) -> MadeSecret:
    """Create a secret, or rotate the existing one.

    Only this response has the secret: `whsec_...` (Standard Webhooks), or for ED25519 the public key `whpk_...`. The previous
    secret of the same endpoint keeps signing for `overlap_seconds`; any secret before that ends immediately.
    """
    return await context.secrets.make(context.caller, body, context.idem)


async def list_secrets(context: RequestContext) -> SecretList:
    """List secrets, newest first, without their values."""
    return SecretList(await context.secrets.list_secrets(context.caller))


async def end_secret(context: RequestContext, secret_id: SecretId) -> None:
    """Delete a secret. It no longer signs calls."""
    await context.secrets.end(context.caller, secret_id, context.idem)


ROUTES = (
    Route("POST", "/v1/webhook-secrets", make_secret, scope="admin", status=201),
    Route("GET", "/v1/webhook-secrets", list_secrets, scope="read"),
    Route("DELETE", "/v1/webhook-secrets/{secret_id}", end_secret, scope="admin", status=204),
)
