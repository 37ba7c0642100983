from pathlib import Path

import jwt
import pytest
from msgspec.structs import replace

from noonday.cli.server.access import LocalAccess
from noonday.cli.server.local import create_token, read_settings, secret_of, url_of
from noonday.crypto.tokens import load_or_create_secret, secret_file
from noonday.model.errors import BadSettings, NotFound, Unauthorized
from noonday.sdk.problems import ServerUnreachable
from noonday.wiring.settings import Settings

NOWHERE = "http://127.0.0.1:1"
UNCHECKED = {"verify_exp": False, "verify_iat": False}


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("NOONDAY_HOST", "NOONDAY_PORT", "NOONDAY_DATA", "NOONDAY_AUTH_SECRET"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def data(tmp_path: Path) -> str:
    """A data file with a secret next to it."""
    path = str(tmp_path / "noonday.db")
    load_or_create_secret(secret_file(path))
    return path


def test_token_is_created_from_the_secret_next_to_the_data_file(data: str) -> None:
    access = LocalAccess(NOWHERE, None, data, None, "write")
    assert access.token
    claims = jwt.decode(access.token, secret_of(Settings(data=data)), algorithms=["HS256"], options=UNCHECKED)
    assert (claims["tenant"], claims["scope"]) == ("default", "write")


def test_given_token_is_used_as_it_is(data: str) -> None:
    access = LocalAccess(None, "given", data, None, "write")
    assert access.token == "given"
    access.require_own_server()


def test_url_comes_from_the_settings_file(tmp_path: Path) -> None:
    config = tmp_path / "other.toml"
    config.write_text('host = "0.0.0.0"\nport = 9000\n[auth]\nsecret = "a secret of more than thirty-two bytes"\n')
    assert LocalAccess(None, "given", None, config, "read").url == "http://127.0.0.1:9000"


def test_server_of_another_machine_gets_no_token(data: str, tmp_path: Path) -> None:
    config = tmp_path / "other.toml"
    config.write_text('host = "192.0.2.1"\n[auth]\nsecret = "a secret of more than thirty-two bytes"\n')
    assert LocalAccess(None, None, data, config, "read").token is None


def test_missing_secret_file_is_named_in_the_hint(tmp_path: Path) -> None:
    access = LocalAccess(NOWHERE, None, str(tmp_path / "none.db"), None, "read")
    assert access.token is None
    assert access.hint.startswith(f"cannot create a token, {tmp_path}/none.db.secret does not exist")


@pytest.mark.slow
def test_created_token_is_not_sent_before_the_server_proves_itself(data: str) -> None:
    with pytest.raises((ServerUnreachable, Unauthorized)):
        LocalAccess(NOWHERE, None, data, None, "read").require_own_server()


def test_ipv6_host_is_written_in_brackets() -> None:
    assert url_of(Settings(host="::", port=9000)) == "http://[::1]:9000"


def test_secret_of_a_server_that_was_never_started_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="does not exist"):
        secret_of(read_settings(None, data=str(tmp_path / "none.db")))


def test_identity_provider_has_the_tokens() -> None:
    settings = Settings()
    with pytest.raises(BadSettings, match="get tokens from your identity provider"):
        secret_of(replace(settings, auth=replace(settings.auth, algorithm="RS256")))


def test_token_names_the_parties_that_the_server_requires() -> None:
    settings = Settings()
    auth = replace(settings.auth, audience="noonday", issuer="https://id")
    token = create_token(auth, "a secret of more than thirty-two bytes", ["read"], 60, tenant="acme", subject="ann")
    claims = jwt.decode(token, options={"verify_signature": False})
    assert (claims["aud"], claims["iss"], claims["sub"]) == ("noonday", "https://id", "ann")
