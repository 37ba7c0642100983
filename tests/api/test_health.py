from tests.api.asgi import Client
from tests.api.engine import Backstage


async def test_health_needs_no_token(client: Client):
    client.headers.clear()
    for path in ("/healthz", "/readyz"):
        response = await client.get(path)
        assert (response.status, response.json) == (200, {"status": "UP"})


async def test_unready_process_returns_reasons(client: Client, backstage: Backstage):
    backstage.pulse.reasons = ["the tick loop has stood still for 12 s"]
    response = await client.get("/readyz")
    assert (response.status, response.code) == (503, "not-ready")
    assert response.json["reasons"] == ["the tick loop has stood still for 12 s"]
    assert (await client.get("/healthz")).status == 200


async def test_dead_process_fails_liveness(client: Client, backstage: Backstage):
    backstage.pulse.alive = False
    assert (await client.get("/healthz")).status == 503


async def test_metrics_are_prometheus_text(client: Client):
    client.headers.clear()
    response = await client.get("/metrics")
    assert (response.status, response.body) == (200, b"noonday_due 0\n")
    assert response.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
