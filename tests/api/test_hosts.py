"""Names that browsers call the server by, and the server's proof of the shared secret."""

import hmac

import jwt
import pytest
from starlette.types import ASGIApp

from noonday.api.auth import proof_of
from noonday.api.hosts import CHECKED_PATHS, HostCheck, KnownHosts
from tests.api.asgi import Client

SECRET = "a secret of more than thirty-two bytes"


@pytest.fixture
def nobody(app: ASGIApp) -> Client:
    """A page in a browser, which has no token."""
    return Client(app)


@pytest.mark.parametrize("path", sorted(CHECKED_PATHS))
async def test_what_needs_no_token_is_not_shown_under_a_name_that_is_not_ours(nobody: Client, path: str) -> None:
    response = await nobody.get(path, host="evil.example:8080")
    assert (response.status, response.code) == (421, "unknown-host")
    assert "ui.origins" in response.json["detail"]


@pytest.mark.parametrize(
    "host", ["localhost", "localhost:8080", "LocalHost:8080", "127.0.0.1:8080", "[::1]:8080", "127.0.0.1"]
)
async def test_loopback_is_known_by_its_names(nobody: Client, host: str) -> None:
    assert (await nobody.get("/openapi.json", host=host)).status == 200


@pytest.mark.parametrize("host", ["localhost:9090", "127.0.0.1:80", "localhost.evil.example", "", "127.0.0.1:8080:1"])
async def test_other_ports_and_lookalikes_are_not_ours(nobody: Client, host: str) -> None:
    assert (await nobody.get("/metrics", host=host)).status == 421


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
async def test_health_is_answered_under_any_name(nobody: Client, path: str) -> None:
    assert (await nobody.get(path, host="10.1.2.3:8080")).status == 200


async def test_a_request_with_a_token_is_answered_under_any_name(client: Client) -> None:
    assert (await client.get("/v1/jobs", host="jobs.internal")).status == 200


async def test_a_client_that_names_no_host_is_no_browser(nobody: Client) -> None:
    assert (await nobody.get("/metrics")).status == 200


async def test_further_names_are_those_of_the_origins(app: ASGIApp) -> None:
    inner = app._app  # type: ignore[attr-defined]
    hosts = KnownHosts("127.0.0.1", 8080, ["https://jobs.example.com", "http://lab:8000"], is_loopback=True)
    browser = Client(HostCheck(inner, hosts))
    for host, status in {"jobs.example.com": 200, "lab:8000": 200, "lab": 421, "jobs.example.com:8080": 421}.items():
        assert (await browser.get("/docs", host=host)).status == status, host


async def test_a_server_for_others_shows_its_metrics_under_any_name(app: ASGIApp) -> None:
    inner = app._app  # type: ignore[attr-defined]
    scraper = Client(HostCheck(inner, KnownHosts("0.0.0.0", 8080, (), is_loopback=False)))
    assert (await scraper.get("/metrics", host="10.1.2.3:8080")).status == 200


async def test_a_server_without_a_shared_secret_proves_nothing(nobody: Client) -> None:
    assert (await nobody.get(f"/proof?nonce={'a' * 64}")).status == 404


@pytest.mark.parametrize("query", ["", "?nonce=", "?nonce=short", f"?nonce={'g' * 64}", f"?nonce={'a' * 200}"])
async def test_a_challenge_that_is_none_is_refused(nobody: Client, query: str) -> None:
    assert (await nobody.get(f"/proof{query}")).status == 422


def test_a_proof_is_bound_to_the_secret_the_port_and_the_nonce() -> None:
    proofs = {
        proof_of(SECRET, "a" * 64, 8080),
        proof_of(SECRET, "b" * 64, 8080),
        proof_of(SECRET, "a" * 64, 8081),
        proof_of(SECRET + "!", "a" * 64, 8080),
    }
    assert len(proofs) == 4


def test_a_challenge_never_makes_the_server_sign_a_token() -> None:
    token = jwt.encode({"sub": "a"}, SECRET, algorithm="HS256")
    signed = token.rpartition(".")[0]
    signature = hmac.digest(SECRET.encode(), signed.encode(), "sha256").hex()
    assert signature != proof_of(SECRET, signed, 8080)
