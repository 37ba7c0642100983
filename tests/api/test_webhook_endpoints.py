from typing import Any

import pytest

from noonday.model.endpoint import EndpointSettings, Failures, endpoint_id, endpoint_named
from tests.api.asgi import Client, Response
from tests.api.engine import NOON_MS, Backstage
from tests.api.test_tasks import ask, daily, made, status_at

THERE, ELSEWHERE = "https://api.example.com:443", "https://b.example:443"
LIST = "/v1/webhook-endpoints"
PLACE = f"{LIST}/{endpoint_id(THERE)}"
SETTINGS = {"max_concurrency": 5, "rate_per_sec": 10.0, "burst": 20, "disable_after_days": 0.5}
UNSET = {"max_concurrency": None, "rate_per_sec": None, "burst": 1, "disable_after_days": 5.0}


async def put(client: Client, path: str = PLACE, **fields: Any) -> Response:
    return await ask(client, "PUT", path, fields)


async def failed(backstage: Backstage, endpoint: str = THERE) -> None:
    tenant = (await backstage.tokens.authenticate("Bearer operator")).tenant
    await backstage.store.endpoints.note_calls([], {(tenant, endpoint): Failures(3, "answered 500")}, NOON_MS)


def test_an_id_is_made_of_the_endpoint_and_leads_back_to_it() -> None:
    assert endpoint_id(THERE) == "ep_aHR0cHM6Ly9hcGkuZXhhbXBsZS5jb206NDQz"
    assert endpoint_named(endpoint_id(THERE)) == THERE
    assert endpoint_named("ep_!!!!") is None
    assert endpoint_named("ep_aHR0cHM6Ly9hcGkuZXhhbXBsZS5jb206NDQ") != THERE


async def test_settings_that_were_set_are_returned(client: Client) -> None:
    response = await put(client, **SETTINGS)
    assert response.status == 200
    assert response.json["endpoint"] == THERE
    assert response.json["settings"] == SETTINGS
    assert response.json == (await client.get(PLACE)).json
    assert (await put(client)).json["settings"] == UNSET


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_concurrency", 0),
        ("rate_per_sec", 0),
        ("rate_per_sec", -1),
        ("burst", 0),
        ("disable_after_days", -1),
        ("max_concurrency", "many"),
        ("rate", 5),
    ],
)
async def test_invalid_setting_is_refused_by_name(client: Client, name: str, value: object) -> None:
    response = await put(client, **{name: value})
    assert response.status in (400, 422)
    assert response.flaw["pointer"] == f"/{name}"


async def test_unknown_endpoint_is_not_found(client: Client) -> None:
    response = await client.get(PLACE)
    assert (response.status, response.json["endpoint"]) == (404, THERE)
    assert (await ask(client, "POST", f"{PLACE}/enable")).status == 404
    for wrong in (
        "https://api.example.com",
        "https://api.example.com:443/x",
        "ftp://api.example.com:21",
        "nonsense.....",
    ):
        assert (await put(client, f"{LIST}/{endpoint_id(wrong)}")).status == 404


async def test_endpoints_are_listed_by_name_in_pages(client: Client, backstage: Backstage) -> None:
    await put(client, f"{LIST}/{endpoint_id(ELSEWHERE)}")
    await failed(backstage)
    first = (await client.get(f"{LIST}?limit=1")).json
    assert [each["endpoint"] for each in first["endpoints"]] == [THERE]
    second = (await client.get(f"{LIST}?limit=1&cursor={first['next']}")).json
    assert [each["endpoint"] for each in second["endpoints"]] == [ELSEWHERE]
    assert second["next"] is None


async def test_health_is_shown(client: Client, backstage: Backstage) -> None:
    await failed(backstage)
    assert (await client.get(PLACE)).json["health"] == {
        "status": "FAILING",
        "failing_since": "2030-01-01T12:00:00Z",
        "failures": 3,
        "last_success_at": None,
        "last_failure_at": "2030-01-01T12:00:00Z",
        "last_error": "answered 500",
        "disabled_at": None,
        "disabled_because": None,
    }


async def test_a_disabled_endpoint_stops_its_tasks_until_it_is_enabled(client: Client) -> None:
    task = await made(client, daily())
    response = await ask(client, "POST", f"{PLACE}/disable")
    assert (response.status, response.json["health"]["status"]) == (200, "DISABLED")
    assert response.json["health"]["disabled_because"] == "was disabled by somebody"
    assert await status_at(client, task) == "FAILED"
    refused = await ask(client, "POST", "/v1/tasks", daily())
    assert (refused.status, refused.code, refused.json["endpoint"]) == (409, "conflict", THERE)
    assert (await ask(client, "POST", f"{PLACE}/enable")).json["health"]["status"] == "HEALTHY"
    assert await status_at(client, task) == "SCHEDULED"
    assert (await ask(client, "POST", "/v1/tasks", daily())).status == 201


async def test_every_change_needs_a_key_and_is_made_once(client: Client) -> None:
    assert (await client.put(PLACE, SETTINGS)).status == 400
    assert (await client.post(f"{PLACE}/disable")).status == 400
    first = await ask(client, "PUT", PLACE, SETTINGS, key="k")
    await put(client, burst=3)
    again = await ask(client, "PUT", PLACE, SETTINGS, key="k")
    assert again.headers["idempotency-replay"] == "true"
    assert again.json == first.json
    assert (await client.get(PLACE)).json["settings"]["burst"] == 3


async def test_every_change_is_in_the_audit(client: Client) -> None:
    await put(client, **SETTINGS)
    await ask(client, "POST", f"{PLACE}/disable")
    await ask(client, "POST", f"{PLACE}/disable")
    await ask(client, "POST", f"{PLACE}/enable")
    entries = (await client.get(f"/v1/audit?target={THERE}")).json["entries"]
    assert [each["action"] for each in entries] == ["endpoint.enable", "endpoint.disable", "endpoint.put"]


def test_settings_without_a_limit_have_no_limits() -> None:
    assert EndpointSettings(burst=9).limits is None
