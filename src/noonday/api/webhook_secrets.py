"""/v1/webhook-secrets: what the calls of tasks are signed with."""

from typing import Annotated

import msgspec

from noonday.api.call import Call
from noonday.api.routing import Route
from noonday.tasks.secrets import MadeSecret, NewSecret, SecretView

SecretId = Annotated[str, msgspec.Meta(pattern=r"^[a-z0-9-]{1,60}$", title="secret")]


class SecretList(msgspec.Struct, frozen=True):
    secrets: list[SecretView]


async def make_secret(call: Call, body: NewSecret) -> MadeSecret:
    """Make a secret, or replace the one there is.

    The answer is the only one that has the secret in it: `whsec_...` by Standard Webhooks, or for ED25519 the public key
    `whpk_...`. A former secret of the same endpoint goes on to sign as well for `overlap_seconds`; one before that ends at once.
    """
    return await call.secrets.make(call.caller, body, call.idem)


async def list_secrets(call: Call) -> SecretList:
    """List the secrets, newest first, without what is secret of them."""
    return SecretList(await call.secrets.list_secrets(call.caller))


async def end_secret(call: Call, secret_id: SecretId) -> None:
    """End a secret: nothing is signed with it any more."""
    await call.secrets.end(call.caller, secret_id, call.idem)


ROUTES = (
    Route("POST", "/v1/webhook-secrets", make_secret, scope="admin", status=201),
    Route("GET", "/v1/webhook-secrets", list_secrets, scope="read"),
    Route("DELETE", "/v1/webhook-secrets/{secret_id}", end_secret, scope="admin", status=204),
)
