"""Host names by which browsers reach the server, and the server's proof of the shared secret."""

import hmac

import jwt
import pytest
from starlette.types import ASGIApp

from noonday.api.hosts import CHECKED_PATHS, HostCheck, KnownHosts
from noonday.crypto.tokens import proof_of
from tests.api.asgi import Client

SECRET = "a secret of more than thirty-two bytes"


@pytest.fixture
def nobody(app: ASGIApp) -> Client:
    """A page in a browser, without a token."""
    return Client(app)


@pytest.mark.parametrize("path", sorted(CHECKED_PATHS))
async def test_public_path_rejects_unknown_host_name(nobody: Client, path: str) -> None:
    response = await nobody.get(path, host="evil.example:8080")
    assert (response.status, response.code) == (421, "unknown-host")
    assert "ui.origins" in response.json["detail"]


@pytest.mark.parametrize(
    "host", ["localhost", "localhost:8080", "LocalHost:8080", "127.0.0.1:8080", "[::1]:8080", "127.0.0.1"]
)
async def test_loopback_names_are_known_hosts(nobody: Client, host: str) -> None:
    assert (await nobody.get("/openapi.json", host=host)).status == 200


@pytest.mark.parametrize("host", ["localhost:9090", "127.0.0.1:80", "localhost.evil.example", "", "127.0.0.1:8080:1"])
async def test_other_ports_and_lookalike_names_are_unknown_hosts(nobody: Client, host: str) -> None:
    assert (await nobody.get("/metrics", host=host)).status == 421


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
async def test_health_accepts_any_host_name(nobody: Client, path: str) -> None:
    assert (await nobody.get(path, host="10.1.2.3:8080")).status == 200


async def test_request_with_token_accepts_any_host_name(client: Client) -> None:
    assert (await client.get("/v1/jobs", host="jobs.internal")).status == 200


async def test_request_without_host_header_is_accepted(nobody: Client) -> None:
    assert (await nobody.get("/metrics")).status == 200


async def test_origins_add_known_hosts(app: ASGIApp) -> None:
    inner = app._app  # type: ignore[attr-defined]
    hosts = KnownHosts("127.0.0.1", 8080, ["https://jobs.example.com", "http://lab:8000"], is_loopback=True)
    browser = Client(HostCheck(inner, hosts))
    for host, status in {"jobs.example.com": 200, "lab:8000": 200, "lab": 421, "jobs.example.com:8080": 421}.items():
        assert (await browser.get("/docs", host=host)).status == status, host


async def test_non_loopback_server_accepts_any_host_name(app: ASGIApp) -> None:
    inner = app._app  # type: ignore[attr-defined]
    scraper = Client(HostCheck(inner, KnownHosts("0.0.0.0", 8080, (), is_loopback=False)))
    assert (await scraper.get("/metrics", host="10.1.2.3:8080")).status == 200


async def test_proof_without_shared_secret_returns_404(nobody: Client) -> None:
    assert (await nobody.get(f"/proof?nonce={'a' * 64}")).status == 404


@pytest.mark.parametrize("query", ["", "?nonce=", "?nonce=short", f"?nonce={'g' * 64}", f"?nonce={'a' * 200}"])
async def test_proof_rejects_invalid_nonce(nobody: Client, query: str) -> None:
    assert (await nobody.get(f"/proof{query}")).status == 422


def test_proof_depends_on_secret_port_and_nonce() -> None:
    proofs = {
        proof_of(SECRET, "a" * 64, 8080),
        proof_of(SECRET, "b" * 64, 8080),
        proof_of(SECRET, "a" * 64, 8081),
        proof_of(SECRET + "!", "a" * 64, 8080),
    }
    assert len(proofs) == 4


def test_proof_never_signs_a_token() -> None:
    token = jwt.encode({"sub": "a"}, SECRET, algorithm="HS256")
    signed = token.rpartition(".")[0]
    signature = hmac.digest(SECRET.encode(), signed.encode(), "sha256").hex()
    assert signature != proof_of(SECRET, signed, 8080)
