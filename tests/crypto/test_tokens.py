import stat
from pathlib import Path
from typing import Any

import jwt
import pytest

from noonday.crypto.tokens import check_secret, load_or_create_secret, mint, proof_of
from noonday.model.errors import BadSettings, InvalidInput

NOW = 1_800_000_000.0
SECRET = "a secret of more than thirty-two bytes"


def test_reference_library_reads_a_minted_token() -> None:
    token = mint(SECRET, tenant="acme", subject="Änne", scopes=["read"], ttl_seconds=60, now=NOW, audience="noonday")
    read = jwt.decode(
        token, SECRET, algorithms=["HS256"], options={"verify_exp": False, "verify_iat": False}, audience="noonday"
    )
    assert read == {"sub": "Änne", "tenant": "acme", "scope": "read", "iat": NOW, "exp": NOW + 60, "aud": "noonday"}


@pytest.mark.parametrize(
    ("changes", "pointer"),
    [({"scopes": ["read", "wirte"]}, "/scopes/1"), ({"ttl_seconds": 0}, "/ttlSeconds"), ({"tenant": ""}, "/tenant")],
)
def test_mint_rejects_invalid_claims(changes: dict[str, Any], pointer: str) -> None:
    claims = {"tenant": "acme", "subject": "ann", "scopes": ["read"], "ttl_seconds": 60, "now": NOW} | changes
    with pytest.raises(InvalidInput) as caught:
        mint(SECRET, **claims)
    assert caught.value.flaws[0].pointer == pointer


def test_a_misspelt_scope_gets_the_nearest_one() -> None:
    with pytest.raises(InvalidInput) as caught:
        mint(SECRET, tenant="acme", subject="ann", scopes=["wirte"], ttl_seconds=60, now=NOW)
    assert caught.value.flaws[0].nearest == "write"


def test_minting_with_a_short_secret_is_refused() -> None:
    with pytest.raises(BadSettings, match="has 5 bytes"):
        mint("short", tenant="acme", subject="ann", scopes=["read"], ttl_seconds=60, now=NOW)


def test_the_secret_is_made_once_and_only_its_owner_can_read_it(tmp_path: Path) -> None:
    path = tmp_path / "noonday.db.secret"
    secret = load_or_create_secret(path)
    assert len(secret) == 43
    assert load_or_create_secret(path) == secret
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_secret_file_that_was_emptied_is_named(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.touch(mode=0o600)
    with pytest.raises(BadSettings, match=f"the secret in {path} has 0 bytes"):
        load_or_create_secret(path)


@pytest.mark.parametrize(
    "key",
    [
        "-----BEGIN PUBLIC KEY-----\nMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE\n-----END PUBLIC KEY-----",
        "---- BEGIN SSH2 PUBLIC KEY ----\nAAAAC3NzaC1lZDI1NTE5AAAAI\n---- END SSH2 PUBLIC KEY ----",
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ8M ann@example.com",
        "ecdsa-sha2-nistp256 AAAAE2VjZHNhLXNoYTItbmlzdHAyNTYAAAAI ann@example.com",
    ],
)
def test_asymmetric_key_is_no_secret(key: str) -> None:
    with pytest.raises(BadSettings, match="is a public or private key, not a secret"):
        check_secret(key)


def test_proof_depends_on_secret_nonce_and_port() -> None:
    proofs = {
        proof_of(SECRET, "a", 80),
        proof_of(SECRET[1:], "a", 80),
        proof_of(SECRET, "b", 80),
        proof_of(SECRET, "a", 81),
    }
    assert len(proofs) == 4
