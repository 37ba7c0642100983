"""`client.endpoints`, against a server with prepared answers."""

import inspect

import pytest

from noonday.model.endpoint import Condition, EndpointSettings, endpoint_id
from noonday.model.endpoint_view import EndpointHealthView, EndpointPage, EndpointView
from noonday.model.errors import InvalidInput, NotFound
from noonday.sdk.client import Client
from noonday.sdk.endpoints import EndpointsClient
from noonday.sdk.sync import SyncClient, SyncEndpoints
from tests.sdk.test_client import Wire, listening, problem, served_from_a_thread

THERE = "https://api.example.com:443"
ID = endpoint_id(THERE)
HEALTH = EndpointHealthView(Condition.HEALTHY, None, 0, None, None, None, None, None)
VIEW = EndpointView(ID, THERE, EndpointSettings(rate_per_sec=10), HEALTH)


@pytest.fixture
async def wire():
    async with listening(Wire()) as served:
        yield served


@pytest.fixture
async def client(wire):
    async with Client(wire.url, "a-token", sleep=wire.sleep) as opened:
        yield opened


@pytest.mark.parametrize("named", ["https://api.example.com", "https://API.example.com/a/path?b", THERE, ID])
async def test_endpoint_is_named_by_a_url_or_by_its_id(client, wire, named):
    wire.will(VIEW)
    assert await client.endpoints.get(named) == VIEW
    assert wire.asked[0].path == f"/v1/webhook-endpoints/{ID}"


async def test_settings_are_given_whole_or_in_fields(client, wire):
    wire.will(VIEW, VIEW)
    await client.endpoints.set(THERE, EndpointSettings(max_concurrency=5))
    await client.endpoints.set(THERE, rate_per_sec=10, burst=20, idempotency_key="k")
    assert [(asked.method, asked.body["max_concurrency"], asked.body["burst"]) for asked in wire.asked] == [
        ("PUT", 5, 1),
        ("PUT", None, 20),
    ]
    assert wire.asked[1].headers["Idempotency-Key"] == '"k"'
    with pytest.raises(InvalidInput, match="did you mean rate_per_sec"):
        await client.endpoints.set(THERE, rate_per_second=10)


async def test_endpoints_are_enabled_and_disabled(client, wire):
    wire.will(VIEW, problem(404, "not-found"))
    await client.endpoints.disable(THERE)
    with pytest.raises(NotFound):
        await client.endpoints.enable(THERE)
    assert [(asked.method, asked.path.rpartition("/")[2]) for asked in wire.asked] == [
        ("POST", "disable"),
        ("POST", "enable"),
    ]


async def test_endpoints_are_listed_in_pages(client, wire):
    wire.will(EndpointPage(endpoints=(VIEW,), next=ID))
    page = await client.endpoints.list(limit=1, cursor="ep_x")
    assert (page.endpoints, page.next) == ((VIEW,), ID)
    assert wire.asked[0].query == {"cursor": "ep_x", "limit": "1"}


def test_synchronous_client_has_the_same_methods():
    with served_from_a_thread() as wire, SyncClient(wire.url) as client:
        wire.will(VIEW)
        assert client.endpoints.get(THERE) == VIEW
    public = {name for name, _ in inspect.getmembers(EndpointsClient, inspect.isfunction) if not name.startswith("_")}
    assert public <= set(dir(SyncEndpoints))
