"""The responses of the API are counted, so that its availability can be monitored."""

import pytest
from prometheus_client import CollectorRegistry

from noonday.api.app import create_app
from noonday.api.hosts import KnownHosts
from noonday.model.errors import StoreUnavailable
from noonday.runtime.metrics import Metrics
from tests.api.asgi import Client
from tests.api.engine import Backstage


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
def counted(backstage: Backstage, metrics: Metrics) -> Client:
    hosts = KnownHosts("127.0.0.1", 8080, (), is_loopback=True)
    app = create_app(backstage.api_services(on_answer=metrics.count_answer), hosts)
    return Client(app, {"authorization": "Bearer operator"})


def answers(registry: CollectorRegistry) -> dict[str, float]:
    classes = [f"{first}xx" for first in range(1, 6)]
    found = {name: registry.get_sample_value("noonday_api_answers_total", {"class": name}) or 0 for name in classes}
    return {name: count for name, count in found.items() if count}


async def test_answers_are_counted_by_class(counted: Client, backstage: Backstage, metrics: Metrics) -> None:
    await counted.get("/v1/jobs")
    await counted.get("/v1/pools")
    await counted.get("/v1/jobs?limit=none")
    backstage.tokens.trouble = StoreUnavailable("away")
    assert (await counted.get("/v1/jobs")).status == 503
    assert answers(metrics.registry) == {"2xx": 2, "4xx": 1, "5xx": 1}


async def test_probes_are_not_counted(counted: Client, backstage: Backstage, metrics: Metrics) -> None:
    backstage.pulse.reasons = ["stuck"]
    for path in ("/healthz", "/readyz", "/metrics", "/docs", "/nothing"):
        await counted.get(path)
    assert answers(metrics.registry) == {}
