"""/v1/users: profiles of the users of an application."""

from typing import Any

import pytest

from tests.api.asgi import Client

HERE = "/v1/users/u-17"
PROFILE = {"zone": "Europe/Berlin", "locale": "de", "email": "a@example.com", "phone": "+4930123456"}


async def test_a_profile_is_returned_as_it_was_put(client: Client) -> None:
    made = await client.put(HERE, PROFILE)
    at = "2030-01-01T12:00:00Z"
    assert (made.status, made.json) == (200, {"user_id": "u-17", **PROFILE, "created_at": at, "updated_at": at})
    assert (await client.get(HERE)).json == made.json


async def test_another_put_replaces_it_whole(client: Client) -> None:
    await client.put(HERE, PROFILE)
    again = (await client.put(HERE, {"phone": "+4930999999"})).json
    assert (again["email"], again["zone"], again["phone"]) == (None, None, "+4930999999")
    assert (await client.get(HERE)).json == again


async def test_the_same_key_is_answered_and_not_done_again(client: Client) -> None:
    first = await client.put(HERE, PROFILE, idempotency_key="k")
    await client.put(HERE, {})
    again = await client.put(HERE, PROFILE, idempotency_key="k")
    assert (again.json, again.headers["idempotency-replay"]) == (first.json, "true")
    assert (await client.get(HERE)).json["email"] is None


async def test_a_profile_that_was_deleted_is_gone(client: Client) -> None:
    await client.put(HERE, PROFILE)
    assert (await client.call("DELETE", HERE, idempotency_key="k")).status == 204
    assert (await client.call("DELETE", HERE, idempotency_key="k")).status == 204
    assert (await client.call("DELETE", HERE)).status == 404
    assert (await client.get(HERE)).status == 404


async def test_each_tenant_has_its_own_users(client: Client) -> None:
    await client.put(HERE, PROFILE)
    other = {"authorization": "Bearer write@globex"}
    assert (await client.get(HERE, **other)).status == 404
    assert (await client.call("DELETE", HERE, **other)).status == 404
    await client.put(HERE, {"email": "b@example.com"}, **other)
    assert (await client.get(HERE)).json["email"] == "a@example.com"


async def test_an_operator_of_another_tenant_sees_no_addresses(client: Client) -> None:
    await client.put(HERE, PROFILE)
    visitor = Client(client.app, {"authorization": "Bearer operator@ops", "noonday-tenant": "acme"})
    shown = (await visitor.get(HERE)).json
    assert (shown["email"], shown["phone"], shown["redacted"]) == (None, None, True)
    assert shown["zone"] == "Europe/Berlin"


@pytest.mark.parametrize(
    ("fields", "pointer"),
    [
        ({"email": "nobody"}, "/email"),
        ({"email": "A <a@example.com>"}, "/email"),
        ({"email": "a@example.com\nBcc: b@example.com"}, "/email"),
        ({"phone": "030 123456"}, "/phone"),
        ({"phone": "+0123456789"}, "/phone"),
        ({"zone": "Berlin"}, "/zone"),
        ({"locale": "german"}, "/locale"),
        ({"mail": "a@example.com"}, "/mail"),
        ({"devices": []}, "/devices"),
    ],
)
async def test_invalid_profile_is_refused_with_its_pointer(
    client: Client, fields: dict[str, Any], pointer: str
) -> None:
    response = await client.put(HERE, {**PROFILE, **fields})
    assert (response.status, response.flaw["pointer"]) == (422, pointer)


async def test_unknown_zone_gets_the_nearest_one(client: Client) -> None:
    assert (await client.put(HERE, {"zone": "Berlin"})).flaw["nearest"] == "Europe/Berlin"


async def test_every_flaw_is_named(client: Client) -> None:
    response = await client.put(HERE, {"email": "x", "phone": "1", "zone": "Nowhere/Land", "locale": "x"})
    assert [flaw["pointer"] for flaw in response.json["errors"]] == ["/zone", "/locale", "/email", "/phone"]


@pytest.mark.parametrize("name", [".hidden", "x" * 256, "a\x00b", "a\x7fb"])
async def test_an_id_that_cannot_be_in_a_path_is_refused(client: Client, name: str) -> None:
    response = await client.put(f"/v1/users/{name}", {})
    assert (response.status, response.flaw["pointer"]) == (422, "/user_id")


@pytest.mark.parametrize("name", ["auth0|5f7", "a@example.com", "Jörg 2", "x" * 255])
async def test_an_id_may_be_what_applications_use(client: Client, name: str) -> None:
    assert (await client.put(f"/v1/users/{name}", {})).json["user_id"] == name
