"""/proof: a server shows that it knows the shared secret, before anybody sends it a token."""

from typing import Annotated

import msgspec

from noonday.api.call import Call
from noonday.api.query import Query
from noonday.api.routing import Route
from noonday.model.errors import NotFound

Nonce = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{32,128}$", description="Random, and never used before")]


class Challenge(Query, frozen=True):
    nonce: Nonce


class Proof(msgspec.Struct, frozen=True):
    proof: str
    """An HMAC of the nonce and of the port that the server listens on, under a key made of the shared secret."""


async def prove(call: Call, query: Challenge) -> Proof:
    """Show that this server knows the shared secret. 404 if its tokens come from an identity provider."""
    made = call.engine.prove(query.nonce)
    if made is None:
        raise NotFound("this server has no shared secret: its tokens come from an identity provider")
    return Proof(made)


ROUTES = (Route("GET", "/proof", prove, scope=None),)
