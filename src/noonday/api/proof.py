"""/proof: the server proves that it knows the shared secret, before a client sends it a token."""

from typing import Annotated

import msgspec

from noonday.api.context import RequestContext
from noonday.api.query import Query
from noonday.api.routing import Route
from noonday.model.errors import NotFound

Nonce = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{32,128}$", description="Random value, used once")]


class ProofQuery(Query, frozen=True):
    nonce: Nonce


class Proof(msgspec.Struct, frozen=True):
    proof: str
    """HMAC of the nonce and of the server's port, under a key derived from the shared secret."""


async def prove(context: RequestContext, query: ProofQuery) -> Proof:
    """Prove that the server knows the shared secret. 404 if its tokens come from an identity provider."""
    proof = context.services.prove(query.nonce)
    if proof is None:
        raise NotFound("this server has no shared secret; its tokens come from an identity provider")
    return Proof(proof)


ROUTES = (Route("GET", "/proof", prove, scope=None),)
