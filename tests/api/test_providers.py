"""/v1/providers: accounts at providers."""

from typing import Any

import pytest

from noonday.notifications.account_service import MOST
from tests.api.asgi import Client

HERE = "/v1/providers/mail"
SMTP: dict[str, Any] = {
    "kind": "SMTP",
    "channel": "EMAIL",
    "order": 2,
    "limits": {"rate_per_sec": 10.0, "max_concurrency": 5},
    "settings": {"host": "smtp.example.com", "port": 587, "from": "shop@example.com"},
    "secrets": {"username": "shop", "password": "hunter2"},
}


async def test_an_account_is_shown_without_its_secrets(client: Client) -> None:
    made = await client.put(HERE, SMTP)
    assert made.status == 200
    assert made.json == {
        "name": "mail",
        "kind": "SMTP",
        "channel": "EMAIL",
        "order": 2,
        "limits": SMTP["limits"],
        "settings": SMTP["settings"],
        "secret_names": ["password", "username"],
        "fault": None,
        "fault_at": None,
        "created_at": "2030-01-01T12:00:00Z",
        "updated_at": "2030-01-01T12:00:00Z",
    }
    assert (await client.get(HERE)).json == made.json
    assert (await client.get("/v1/providers")).json == {"providers": [made.json]}
    for response in (made, await client.get(HERE), await client.get("/v1/audit")):
        assert b"hunter2" not in response.body


async def test_accounts_are_listed_in_the_order_in_which_they_are_tried(client: Client) -> None:
    for name, order in (("c", 1), ("a", 2), ("b", 1)):
        await client.put(f"/v1/providers/{name}", {**SMTP, "order": order})
    assert [each["name"] for each in (await client.get("/v1/providers")).json["providers"]] == ["b", "c", "a"]


async def test_only_an_admin_changes_accounts(client: Client) -> None:
    for method, body in (("PUT", SMTP), ("DELETE", None)):
        response = await client.call(method, HERE, body, authorization="Bearer write")
        assert (response.status, response.json["required"]) == (403, "admin")
    assert (await client.put(HERE, SMTP, authorization="Bearer admin")).status == 200


async def test_each_tenant_has_its_own_accounts(client: Client) -> None:
    await client.put(HERE, SMTP)
    other = {"authorization": "Bearer admin@globex"}
    assert (await client.get(HERE, **other)).status == 404
    assert (await client.get("/v1/providers", **other)).json == {"providers": []}
    assert (await client.call("DELETE", HERE, **other)).status == 404


async def test_an_account_that_was_deleted_is_gone(client: Client) -> None:
    await client.put(HERE, SMTP)
    assert (await client.call("DELETE", HERE, idempotency_key="k")).status == 204
    assert (await client.call("DELETE", HERE, idempotency_key="k")).status == 204
    assert (await client.get(HERE)).status == 404


async def test_changes_are_audited(client: Client) -> None:
    await client.put(HERE, SMTP)
    await client.call("DELETE", HERE)
    entries = (await client.get("/v1/audit")).json["entries"]
    assert [(entry["action"], entry["target"]) for entry in entries[:2]] == [
        ("provider.delete", "mail"),
        ("provider.put", "mail"),
    ]
    assert entries[1]["detail"] == {"kind": "SMTP"}


async def test_the_same_key_is_answered_and_not_done_again(client: Client) -> None:
    first = await client.put(HERE, SMTP, idempotency_key="k")
    await client.call("DELETE", HERE)
    again = await client.put(HERE, SMTP, idempotency_key="k")
    assert (again.json, again.headers["idempotency-replay"]) == (first.json, "true")
    assert (await client.get(HERE)).status == 404


@pytest.mark.parametrize(
    ("fields", "pointer"),
    [
        ({"kind": "FAX"}, "/kind"),
        ({"channel": "SMS"}, "/channel"),
        ({"settings": {"from": "shop@example.com"}}, "/settings/host"),
        ({"settings": {**SMTP["settings"], "hots": "x"}}, "/settings/hots"),
        ({"secrets": {"password": "hunter2"}}, "/secrets"),
        ({"order": 0}, "/order"),
        ({"order": 1_001}, "/order"),
        ({"limits": {"rate_per_sec": 0}}, "/limits/rate_per_sec"),
        ({"limits": {"max_concurrency": 0}}, "/limits/max_concurrency"),
        ({"limits": {"burst": 1}}, "/limits/burst"),
        ({"settings": {"host": "x" * 65_537}}, "/settings/host"),
        ({"settings": {"host": {"a": 1}}}, "/settings/host"),
        ({"settings": {str(number): 1 for number in range(21)}}, "/settings"),
        ({"secrets": {"password": ""}}, "/secrets/password"),
        ({"secrets": {"password": 5}}, "/secrets/password"),
        ({"secrets": {"pass/word": "x" * 8_193}}, "/secrets/pass~1word"),
    ],
)
async def test_invalid_account_is_refused_with_its_pointer(
    client: Client, fields: dict[str, Any], pointer: str
) -> None:
    response = await client.put(HERE, {**SMTP, **fields})
    assert (response.status, response.flaw["pointer"]) == (422, pointer)


@pytest.mark.parametrize("name", ["-mail", "a b", "x" * 64, "ä"])
async def test_a_name_is_a_plain_word(client: Client, name: str) -> None:
    assert (await client.put(f"/v1/providers/{name}", SMTP)).flaw["pointer"] == "/name"


async def test_no_error_repeats_a_secret(client: Client) -> None:
    body = {**SMTP, "kind": "TWILIO", "secrets": {"password": "hunter2" * 2_000}}
    response = await client.put(HERE, body)
    assert response.status == 422
    assert b"hunter2" not in response.body


async def test_a_tenant_has_a_bounded_number_of_accounts(client: Client) -> None:
    for number in range(MOST):
        assert (await client.put(f"/v1/providers/a{number}", SMTP)).status == 200
    refused = await client.put(HERE, SMTP)
    assert (refused.status, refused.json["limit"]) == (409, MOST)
    assert (await client.put("/v1/providers/a0", SMTP)).status == 200
