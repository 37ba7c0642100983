"""Commands that read files only: tokens, keys, settings."""

import json
from pathlib import Path
from time import time

import jwt
import pytest

from noonday.api.auth import TokenAuthenticator
from noonday.cli import exits
from noonday.crypto.keyring import load_or_create
from noonday.crypto.tokens import load_or_create_secret
from noonday.wiring.settings.access import AuthSettings
from noonday.wiring.settings.reference import describe_settings
from tests.cli.conftest import Run

SECRET = "a secret of more than thirty-two bytes"


def claims_of(token: str, secret: str) -> dict[str, object]:
    claims: dict[str, object] = jwt.decode(token, secret, algorithms=["HS256"])
    return claims


async def test_a_token_is_printed_and_nothing_else_and_the_server_takes_it(run: Run, tmp_path: Path) -> None:
    secret = load_or_create_secret(tmp_path / "x.db.secret")
    result = run("token", "--data", "x.db", "--tenant", "acme", "--scopes", "read,write")
    assert (result.exit_code, result.stderr) == (0, "")
    (token,) = result.stdout.splitlines()
    caller = await TokenAuthenticator(AuthSettings(secret=secret), time).authenticate(f"Bearer {token}")
    assert (str(caller.tenant), set(caller.scopes)) == ("acme", {"read", "write"})


def test_token_lasts_as_long_as_the_flag_says(run: Run) -> None:
    result = run("token", "--ttl", "2h", "--subject", "anna", env={"NOONDAY_AUTH_SECRET": SECRET})
    claims = claims_of(result.stdout.strip(), SECRET)
    assert claims["sub"] == "anna"
    assert int(str(claims["exp"])) - int(str(claims["iat"])) == 7200


def test_a_token_carries_the_audience_and_issuer_that_the_server_asks_for(run: Run) -> None:
    env = {"NOONDAY_AUTH_SECRET": SECRET, "NOONDAY_AUTH_AUDIENCE": "noonday", "NOONDAY_AUTH_ISSUER": "us"}
    token = run("token", env=env).stdout.strip()
    claims = jwt.decode(token, SECRET, algorithms=["HS256"], audience="noonday")
    assert claims["iss"] == "us"


def test_without_a_secret_no_token_is_made_and_no_file(run: Run, tmp_path: Path) -> None:
    result = run("token")
    assert (result.exit_code, result.stdout) == (exits.NOT_FOUND, "")
    assert "--data" in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_scope_names_the_nearest(run: Run) -> None:
    result = run("token", "--scopes", "reed", env={"NOONDAY_AUTH_SECRET": SECRET})
    assert result.exit_code == exits.FAILED
    assert "did you mean read?" in result.stderr


def test_token_command_refuses_to_sign_for_an_identity_provider(run: Run) -> None:
    env = {"NOONDAY_AUTH_ALGORITHM": "RS256", "NOONDAY_AUTH_JWKS_URL": "https://id.example.org/keys"}
    result = run("token", env=env)
    assert result.exit_code == exits.USAGE
    assert "identity provider" in result.stderr


def test_a_new_key_encrypts_and_the_old_one_stays(run: Run, tmp_path: Path) -> None:
    old = load_or_create(tmp_path / "noonday.db.keys").current
    assert run("keys", "rotate").exit_code == 0
    listed = json.loads(run("keys", "list", "--json").stdout)
    assert listed["keys"] == [old, listed["current"]]
    assert listed["current"] != old


def test_keys_are_listed_by_id_only(run: Run, tmp_path: Path) -> None:
    load_or_create(tmp_path / "noonday.db.keys")
    stored = json.loads((tmp_path / "noonday.db.keys").read_text())
    output = run("keys", "list").output + run("keys", "list", "--json").output
    assert stored["current"] in output
    assert not any(key in output for key in stored["keys"].values())


def test_keys_that_are_not_there_are_not_made(run: Run, tmp_path: Path) -> None:
    assert run("keys", "list").exit_code == exits.NOT_FOUND
    assert run("keys", "rotate").exit_code == exits.NOT_FOUND
    assert list(tmp_path.iterdir()) == []


def test_settings_are_printed_with_the_source_of_each_value(run: Run, tmp_path: Path) -> None:
    (tmp_path / "noonday.toml").write_text("port = 9000\nhost = 'localhost'\n[worker]\nthreads = 3\n")
    listed = {one["key"]: one for one in json.loads(run("settings", "--json", env={"NOONDAY_PORT": "9001"}).stdout)}
    assert (listed["port"]["value"], listed["port"]["source"]) == (9001, "NOONDAY_PORT")
    assert (listed["worker.threads"]["value"], listed["worker.threads"]["source"]) == (3, "noonday.toml")
    assert listed["host"]["source"] == "noonday.toml"
    assert listed["log_level"]["source"] == "default"
    assert list(listed) == [doc.key for doc in describe_settings()]


@pytest.mark.slow
def test_settings_never_show_a_secret(run: Run) -> None:
    env = {"NOONDAY_AUTH_SECRET": SECRET}
    for words in (["settings"], ["settings", "--json"]):
        result = run(*words, env=env)
        assert SECRET not in result.output
        assert "(hidden)" in result.output


def test_settings_can_be_narrowed_down(run: Run) -> None:
    lines = run("settings", "retention").stdout.splitlines()[1:]
    assert lines
    assert all("retention" in line.split()[0] for line in lines)


@pytest.mark.parametrize("words", [["settings"], ["token"], ["job", "list"], ["up"], ["doctor"]])
def test_a_misspelt_variable_is_refused_everywhere(run: Run, words: list[str]) -> None:
    result = run(*words, env={"NOONDAY_PROT": "1", "NOONDAY_URL": ""})
    assert result.exit_code == exits.USAGE
    assert "did you mean NOONDAY_PORT?" in result.stderr
