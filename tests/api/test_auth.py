import asyncio
import hmac
import json
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jwt
import pytest
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given, settings
from hypothesis import strategies as st
from jwt.algorithms import ECAlgorithm, RSAAlgorithm
from jwt.utils import base64url_encode

from noonday.api.auth import TokenAuthenticator
from noonday.crypto.tokens import mint
from noonday.model.caller import SCOPES, Caller
from noonday.model.errors import BadSettings, Forbidden, Unauthorized
from noonday.model.ids import TenantId

NOW = 1_800_000_000.0
SECRET = "a secret of more than thirty-two bytes"


@dataclass(frozen=True)
class Rules:
    algorithm: str = "HS256"
    secret: str | None = SECRET
    jwks_url: str | None = None
    jwks_file: str | None = None
    audience: str | None = None
    issuer: str | None = None


@dataclass
class Clock:
    now: float = NOW

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def claims(**changes: Any) -> dict[str, Any]:
    every = {"sub": "ann", "tenant": "acme", "scope": "read write", "exp": NOW + 60} | changes
    return {name: value for name, value in every.items() if value is not None}


def bearer(key: Any = SECRET, algorithm: str = "HS256", kid: str | None = None, **changes: Any) -> str:
    headers = {"kid": kid} if kid else None
    return "Bearer " + jwt.encode(claims(**changes), key, algorithm=algorithm, headers=headers)


async def refusal(authenticator: TokenAuthenticator, header: str | None) -> str:
    with pytest.raises(Unauthorized) as caught:
        await authenticator.authenticate(header)
    return caught.value.detail


# Callers and their scopes


@pytest.mark.parametrize(
    ("held", "allowed"),
    [
        ("read", {"read"}),
        ("write", {"read", "write"}),
        ("admin", {"read", "write", "admin"}),
        ("operator", set(SCOPES)),
        ("", set()),
    ],
)
def test_scope_includes_lower_ones(held: str, allowed: set[str]) -> None:
    caller = Caller(TenantId("acme"), "ann", frozenset(held.split()))
    assert {scope for scope in SCOPES if caller.may(scope)} == allowed


def test_missing_scope_error_lists_the_scopes_of_the_caller() -> None:
    with pytest.raises(Forbidden, match="needs scope admin; held: read, write") as caught:
        Caller(TenantId("acme"), "ann", frozenset({"write", "read"})).require("admin")
    assert caught.value.context == {"required": "admin", "held": ["read", "write"]}


def test_requiring_a_scope_of_the_caller_passes() -> None:
    Caller(TenantId("acme"), "ann", frozenset({"admin"})).require("read")


# A shared secret


async def test_valid_token_returns_tenant_subject_and_scopes(clock: Clock) -> None:
    caller = await TokenAuthenticator(Rules(), clock).authenticate(bearer())
    assert caller == Caller(TenantId("acme"), "ann", frozenset({"read", "write"}))


async def test_scopes_may_be_a_list_and_foreign_ones_are_ignored(clock: Clock) -> None:
    caller = await TokenAuthenticator(Rules(), clock).authenticate(bearer(scope=["openid", "admin"]))
    assert caller.scopes == {"admin"}


async def test_the_scheme_may_be_written_in_any_case(clock: Clock) -> None:
    header = bearer().replace("Bearer", "bearer ")
    assert (await TokenAuthenticator(Rules(), clock).authenticate(header)).subject == "ann"


@pytest.mark.parametrize(
    ("header", "complaint"),
    [
        (None, "missing Authorization header"),
        ("", "missing Authorization header"),
        ("Bearer", "malformed Authorization header; send: Authorization: Bearer TOKEN"),
        ("Basic YTpi", "malformed Authorization header; send: Authorization: Bearer TOKEN"),
        ("Bearer abc", "malformed"),
        ("Bearer a.b.c", "malformed"),
        ("Bearer é.é.é", "malformed"),
    ],
)
async def test_invalid_authorization_header_explains_the_format(
    clock: Clock, header: str | None, complaint: str
) -> None:
    assert complaint in await refusal(TokenAuthenticator(Rules(), clock), header)


@pytest.mark.slow
@given(st.lists(st.text(max_size=60) | st.text(alphabet="eyJ.-_=A0", max_size=60), min_size=20))
@settings(max_examples=20)
def test_arbitrary_header_raises_only_unauthorized(noises: list[str]) -> None:
    authenticator = TokenAuthenticator(Rules(), lambda: NOW)

    async def refuse_all() -> None:
        for noise in noises:
            await refusal(authenticator, noise)
            await refusal(authenticator, f"Bearer {noise}")

    asyncio.run(refuse_all())


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"exp": NOW - 31}, "expired at 2027-01-15T07:59:29Z; the server's time is 2027-01-15T08:00:00Z"),
        ({"exp": None}, "missing token claim exp"),
        ({"exp": "soon"}, "claim exp: must be seconds"),
        ({"exp": True}, "claim exp: must be seconds"),
        ({"exp": float("nan")}, "claim exp: must be seconds"),
        ({"exp": -1e300}, "claim exp: must be seconds"),
        ({"nbf": NOW + 31}, "not valid before 2027-01-15T08:00:31Z"),
        ({"nbf": "later"}, "claim nbf: must be seconds"),
        ({"sub": None}, "missing token claim sub"),
        ({"sub": 7}, "claim sub: must be 1 to 255"),
        ({"tenant": None}, "missing token claim tenant"),
        ({"tenant": ""}, "claim tenant: must be 1 to 100"),
        ({"tenant": "a\nb"}, "claim tenant: must be 1 to 100"),
        ({"scope": None}, "missing token claim scope"),
        ({"scope": 3}, "claim scope: must be words"),
        ({"scope": ["read", 3]}, "claim scope: must be words"),
    ],
)
async def test_missing_or_invalid_claim_is_named(clock: Clock, changes: dict[str, Any], complaint: str) -> None:
    assert complaint in await refusal(TokenAuthenticator(Rules(), clock), bearer(**changes))


async def test_clocks_may_differ_by_less_than_30_seconds(clock: Clock) -> None:
    authenticator = TokenAuthenticator(Rules(), clock)
    assert await authenticator.authenticate(bearer(exp=NOW - 29, nbf=NOW + 29))


async def test_a_token_signed_with_another_secret_is_refused_and_not_repeated(clock: Clock) -> None:
    header = bearer("another secret, also of thirty-two bytes")
    detail = await refusal(TokenAuthenticator(Rules(), clock), header)
    assert "invalid token signature" in detail
    assert not any(part in detail for part in header.split()[1].split("."))


async def test_an_unsigned_token_is_refused(clock: Clock) -> None:
    header = "Bearer " + jwt.encode(claims(), None, algorithm="none")
    assert "accepts HS256 only" in await refusal(TokenAuthenticator(Rules(), clock), header)


async def test_a_token_of_a_stronger_algorithm_is_refused_too(clock: Clock) -> None:
    header = bearer(SECRET * 2, "HS512")
    assert "accepts HS256 only" in await refusal(TokenAuthenticator(Rules(secret=SECRET * 2), clock), header)


@pytest.mark.parametrize("aud", ["noonday", ["other", "noonday"]])
async def test_a_token_for_our_audience_and_of_our_issuer_passes(clock: Clock, aud: Any) -> None:
    rules = Rules(audience="noonday", issuer="https://id")
    assert await TokenAuthenticator(rules, clock).authenticate(bearer(aud=aud, iss="https://id"))


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"aud": "other", "iss": "https://id"}, "audience (aud); must be noonday"),
        ({"aud": ["other"], "iss": "https://id"}, "audience (aud); must be noonday"),
        ({"aud": "not-noonday-at-all", "iss": "https://id"}, "audience (aud); must be noonday"),
        ({"iss": "https://id"}, "missing token claim aud"),
        ({"aud": "noonday", "iss": "https://evil"}, "issuer (iss); must be https://id"),
        ({"aud": "noonday"}, "missing token claim iss"),
    ],
)
async def test_token_with_wrong_audience_or_issuer_is_rejected(
    clock: Clock, changes: dict[str, Any], complaint: str
) -> None:
    authenticator = TokenAuthenticator(Rules(audience="noonday", issuer="https://id"), clock)
    assert complaint in await refusal(authenticator, bearer(**changes))


async def test_remembered_token_expires(clock: Clock) -> None:
    authenticator = TokenAuthenticator(Rules(), clock)
    header = bearer()
    await authenticator.authenticate(header)
    clock.now += 89
    assert (await authenticator.authenticate(header)).subject == "ann"
    clock.now += 1
    assert "expired" in await refusal(authenticator, header)


async def test_remembered_tokens_evict_the_least_recently_used(clock: Clock) -> None:
    authenticator = TokenAuthenticator(Rules(), clock, remember=2)
    used, idle, new = (bearer(sub=name) for name in ("used", "idle", "new"))
    first = [await authenticator.authenticate(header) for header in (used, idle)]
    again = await authenticator.authenticate(used)
    await authenticator.authenticate(new)
    assert again is first[0]
    assert await authenticator.authenticate(used) is first[0]
    assert await authenticator.authenticate(idle) is not first[1]


@pytest.mark.parametrize(
    ("rules", "complaint"),
    [
        (Rules(secret=None), "HS256 needs auth.secret"),
        (Rules(secret="short"), "auth.secret has 5 bytes; HS256 needs at least 32"),
        (Rules(secret="-----BEGIN PUBLIC KEY-----\nMFk=\n-----END PUBLIC KEY-----"), "not a secret"),
        (Rules("RS256"), "RS256 needs auth.jwks_url or auth.jwks_file"),
        (Rules("none"), "'none': must be HS256, RS256 or ES256"),
        (Rules("ES256", jwks_file="/nowhere/keys"), "cannot read the key set /nowhere/keys: No such file"),
    ],
)
def test_invalid_rules_raise_bad_settings(clock: Clock, rules: Rules, complaint: str) -> None:
    with pytest.raises(BadSettings, match=re.escape(complaint)):
        TokenAuthenticator(rules, clock)


# Minting


async def test_a_minted_token_is_accepted_until_its_time_is_over(clock: Clock) -> None:
    token = mint(SECRET, tenant="acme", subject="ann", scopes=["write", "read"], ttl_seconds=3600, now=NOW)
    authenticator = TokenAuthenticator(Rules(), clock)
    caller = await authenticator.authenticate(f"Bearer {token}")
    assert caller == Caller(TenantId("acme"), "ann", frozenset({"read", "write"}))
    clock.now += 3630
    assert "expired" in await refusal(authenticator, f"Bearer {token}")


async def test_a_token_can_be_minted_for_a_server_that_names_its_parties(clock: Clock) -> None:
    claims: dict[str, Any] = {"tenant": "acme", "subject": "ann", "scopes": ["read"], "ttl_seconds": 60, "now": NOW}
    token = mint(SECRET, **claims, audience="noonday", issuer="https://id")
    rules = Rules(audience="noonday", issuer="https://id")
    assert await TokenAuthenticator(rules, clock).authenticate(f"Bearer {token}")


# A key set

RSA_KEY = rsa.generate_private_key(65537, 2048)
OTHER_RSA_KEY = rsa.generate_private_key(65537, 2048)
EC_KEY = ec.generate_private_key(ec.SECP256R1())


def rsa_entry(kid: str, key: rsa.RSAPrivateKey = RSA_KEY, **more: Any) -> dict[str, Any]:
    return RSAAlgorithm.to_jwk(key.public_key(), as_dict=True) | {"kid": kid} | more


def ec_entry(kid: str) -> dict[str, Any]:
    return ECAlgorithm.to_jwk(EC_KEY.public_key(), as_dict=True) | {"kid": kid}


@dataclass
class Provider:
    """An identity provider on a real socket."""

    url: str = ""
    keys: list[dict[str, Any]] = field(default_factory=list)
    status: int = 200
    reads: int = 0
    asked: asyncio.Event = field(default_factory=asyncio.Event)
    ready: asyncio.Event = field(default_factory=asyncio.Event)

    async def answer(self, _request: web.Request) -> web.Response:
        self.reads += 1
        self.asked.set()
        await self.ready.wait()
        return web.json_response({"keys": self.keys}, status=self.status)


@pytest.fixture
async def provider() -> AsyncIterator[Provider]:
    serving = Provider(keys=[rsa_entry("r1"), ec_entry("e1")])
    serving.ready.set()
    app = web.Application()
    app.router.add_get("/jwks", serving.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    serving.url = f"http://127.0.0.1:{runner.addresses[0][1]}/jwks"
    yield serving
    await runner.cleanup()


@pytest.mark.parametrize(("algorithm", "key", "kid"), [("RS256", RSA_KEY, "r1"), ("ES256", EC_KEY, "e1")])
async def test_a_token_signed_by_the_identity_provider_passes(
    clock: Clock, provider: Provider, algorithm: str, key: Any, kid: str
) -> None:
    authenticator = TokenAuthenticator(Rules(algorithm, None, jwks_url=provider.url), clock)
    assert (await authenticator.authenticate(bearer(key, algorithm, kid))).subject == "ann"
    assert (await authenticator.authenticate(bearer(key, algorithm, kid, sub="bob"))).subject == "bob"
    assert provider.reads == 1


async def test_a_token_without_key_id_passes_where_only_one_key_fits(clock: Clock, provider: Provider) -> None:
    authenticator = TokenAuthenticator(Rules("RS256", None, jwks_url=provider.url), clock)
    assert await authenticator.authenticate(bearer(RSA_KEY, "RS256"))


async def test_a_token_without_key_id_is_refused_where_several_fit(clock: Clock, provider: Provider) -> None:
    provider.keys.append(rsa_entry("r2", OTHER_RSA_KEY))
    authenticator = TokenAuthenticator(Rules("RS256", None, jwks_url=provider.url), clock)
    assert "names no signing key (kid), and the server has 2" in await refusal(authenticator, bearer(RSA_KEY, "RS256"))


@pytest.mark.parametrize(("alg", "complaint"), [("HS256", "accepts RS256 only"), ("RS256", "invalid token signature")])
async def test_a_token_signed_with_the_public_key_as_a_secret_is_refused(
    clock: Clock, provider: Provider, alg: str, complaint: str
) -> None:
    public_key = RSA_KEY.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    parts = [base64url_encode(json.dumps(part).encode()) for part in ({"alg": alg, "kid": "r1"}, claims())]
    forged = b".".join([*parts, base64url_encode(hmac.digest(public_key, b".".join(parts), "sha256"))])
    authenticator = TokenAuthenticator(Rules("RS256", None, jwks_url=provider.url), clock)
    assert complaint in await refusal(authenticator, f"Bearer {forged.decode()}")


async def test_tokens_of_another_algorithm_never_refresh_the_key_set(clock: Clock, provider: Provider) -> None:
    authenticator = TokenAuthenticator(Rules("RS256", None, jwks_url=provider.url), clock)
    assert "accepts RS256 only" in await refusal(authenticator, bearer())
    assert provider.reads == 0


async def test_token_signed_with_another_key_of_same_id_is_rejected(clock: Clock, provider: Provider) -> None:
    authenticator = TokenAuthenticator(Rules("RS256", None, jwks_url=provider.url), clock)
    assert "invalid token signature" in await refusal(authenticator, bearer(OTHER_RSA_KEY, "RS256", "r1"))


async def test_unknown_keys_refresh_the_key_set_at_most_every_30_seconds(clock: Clock, provider: Provider) -> None:
    authenticator = TokenAuthenticator(Rules("RS256", None, jwks_url=provider.url), clock)
    header = bearer(OTHER_RSA_KEY, "RS256", "r2")
    assert "unknown signing key (kid)" in await refusal(authenticator, header)
    provider.keys.append(rsa_entry("r2", OTHER_RSA_KEY))
    clock.now += 29
    assert "unknown signing key (kid)" in await refusal(authenticator, header)
    assert provider.reads == 1
    clock.now += 1
    assert await authenticator.authenticate(header)
    assert provider.reads == 2


async def test_concurrent_callers_read_the_key_set_once(clock: Clock, provider: Provider) -> None:
    authenticator = TokenAuthenticator(Rules("RS256", None, jwks_url=provider.url), clock)
    headers = [bearer(RSA_KEY, "RS256", "r1", sub=f"user-{n}") for n in range(10)]
    callers = await asyncio.gather(*(authenticator.authenticate(header) for header in headers))
    assert len(callers) == 10
    assert provider.reads == 1


async def test_removed_signing_key_is_rejected(clock: Clock, provider: Provider) -> None:
    authenticator = TokenAuthenticator(Rules("RS256", None, jwks_url=provider.url), clock)
    header = bearer(RSA_KEY, "RS256", "r1", exp=NOW + 86_400)
    await authenticator.authenticate(header)
    provider.keys = [rsa_entry("r2", OTHER_RSA_KEY)]
    clock.now += 600
    assert "unknown signing key (kid)" in await refusal(authenticator, header)


async def test_old_keys_stay_in_use_while_the_provider_is_unavailable(clock: Clock, provider: Provider) -> None:
    authenticator = TokenAuthenticator(Rules("RS256", None, jwks_url=provider.url), clock)
    header = bearer(RSA_KEY, "RS256", "r1", exp=NOW + 86_400)
    await authenticator.authenticate(header)
    provider.status = 500
    clock.now += 600
    assert await authenticator.authenticate(header)
    assert provider.reads == 2


async def test_known_keys_work_while_a_slow_provider_is_asked_for_others(clock: Clock, provider: Provider) -> None:
    authenticator = TokenAuthenticator(Rules("RS256", None, jwks_url=provider.url), clock)
    await authenticator.authenticate(bearer(RSA_KEY, "RS256", "r1"))
    clock.now += 600
    provider.asked.clear()
    provider.ready.clear()
    waiting = asyncio.create_task(refusal(authenticator, bearer(OTHER_RSA_KEY, "RS256", "r2", exp=NOW + 900)))
    async with asyncio.timeout(60):
        await provider.asked.wait()
        assert await authenticator.authenticate(bearer(RSA_KEY, "RS256", "r1", exp=NOW + 900))
    assert not waiting.done()
    provider.ready.set()
    assert "unknown signing key (kid)" in await waiting


async def test_failed_key_set_read_is_retried_after_5_seconds(clock: Clock, provider: Provider) -> None:
    provider.status = 503
    authenticator = TokenAuthenticator(Rules("RS256", None, jwks_url=provider.url), clock)
    header = bearer(RSA_KEY, "RS256", "r1")
    detail = await refusal(authenticator, header)
    assert "cannot validate the token" in detail
    assert provider.url not in detail
    provider.status = 200
    clock.now += 4
    assert "cannot validate the token" in await refusal(authenticator, header)
    clock.now += 1
    assert await authenticator.authenticate(header)


async def test_clock_set_back_does_not_block_key_set_refreshes(clock: Clock, provider: Provider) -> None:
    authenticator = TokenAuthenticator(Rules("RS256", None, jwks_url=provider.url), clock)
    await authenticator.authenticate(bearer(RSA_KEY, "RS256", "r1"))
    provider.keys.append(rsa_entry("r2", OTHER_RSA_KEY))
    clock.now -= 3600
    assert await authenticator.authenticate(bearer(OTHER_RSA_KEY, "RS256", "r2"))


async def test_a_key_set_may_be_a_file_and_is_read_again_when_it_changes(clock: Clock, tmp_path: Path) -> None:
    path = tmp_path / "jwks.json"
    path.write_text(json.dumps({"keys": [rsa_entry("r1")]}))
    authenticator = TokenAuthenticator(Rules("RS256", None, jwks_file=str(path)), clock)
    assert await authenticator.authenticate(bearer(RSA_KEY, "RS256", "r1"))
    path.write_text(json.dumps({"keys": [rsa_entry("r2", OTHER_RSA_KEY)]}))
    clock.now += 30
    assert await authenticator.authenticate(bearer(OTHER_RSA_KEY, "RS256", "r2"))


SMALL_RSA_KEY = rsa.generate_private_key(65537, 1024)


@pytest.mark.parametrize(
    ("document", "complaint"),
    [
        ("{", "the key set is not a JWKS"),
        ('{"keys": 5}', "the key set is not a JWKS"),
        ('{"keys": []}', "no public key for RS256 (of 0 keys)"),
        (json.dumps({"keys": [ec_entry("e1")]}), "no public key for RS256 (of 1 keys)"),
        (json.dumps({"keys": [rsa_entry("r1", use="enc")]}), "no public key for RS256 (of 1 keys)"),
        (json.dumps({"keys": [rsa_entry("r1", alg="RS512")]}), "no public key for RS256 (of 1 keys)"),
        (json.dumps({"keys": [rsa_entry("r1", SMALL_RSA_KEY)]}), "no public key for RS256 (of 1 keys)"),
        ('{"keys": [{"kty": "RSA"}, {"kty": "oct", "k": "AAAA"}]}', "no public key for RS256 (of 2 keys)"),
        (
            json.dumps({"keys": [RSAAlgorithm.to_jwk(RSA_KEY, as_dict=True)]}),
            "no public key for RS256 (of 1 keys)",
        ),
    ],
)
def test_a_key_set_file_without_a_usable_key_is_refused_at_once(
    clock: Clock, tmp_path: Path, document: str, complaint: str
) -> None:
    path = tmp_path / "jwks.json"
    path.write_text(document)
    with pytest.raises(BadSettings, match=re.escape(complaint)):
        TokenAuthenticator(Rules("RS256", None, jwks_file=str(path)), clock)
