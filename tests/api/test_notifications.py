"""/v1/notifications: the door of notifications, over real stores."""

from dataclasses import replace
from typing import Any

import pytest

from noonday.api.app import create_app
from noonday.api.hosts import KnownHosts
from noonday.model.notifications.wire import BATCH_BYTES, BATCH_NOTIFICATIONS
from noonday.notifications.services import NotificationServices
from tests.api.asgi import Client, Response
from tests.api.engine import Backstage

HERE = "/v1/notifications"
BODY: dict[str, Any] = {
    "user_id": "u-17",
    "channels": ["EMAIL"],
    "content": {"title": "Shipped", "text": "Order A-17 is on its way"},
}
LATER = {**BODY, "scheduled_at": "2030-01-02T09:00:00Z"}
SMTP = {"kind": "SMTP", "settings": {"host": "smtp.example.com", "from": "shop@example.com"}}
UNKNOWN = "01a230d5-1280-81a7-9c1e-5b2f6d8e9a01"


@pytest.fixture(autouse=True)
async def account(client: Client) -> None:
    assert (await client.put("/v1/providers/mail", SMTP)).status == 200


async def send(client: Client, body: Any = None, **headers: str) -> Response:
    return await client.post(HERE, BODY if body is None else body, **headers)


async def test_a_notification_is_accepted_and_shown(client: Client) -> None:
    accepted = await send(client, {**LATER, "expires_at": "2030-01-02T21:00:00Z", "priority": "HIGH"})
    assert accepted.status == 202
    id_ = accepted.json["id"]
    assert accepted.json == {"id": id_, "status": "SCHEDULED", "send_at": "2030-01-02T09:00:00Z"}
    assert (await client.get(f"{HERE}/{id_}")).json == {
        "id": id_,
        "user_id": "u-17",
        "channels": ["EMAIL"],
        "priority": "HIGH",
        "send_at": "2030-01-02T09:00:00Z",
        "expires_at": "2030-01-02T21:00:00Z",
        "status": "SCHEDULED",
        "final": False,
        "reason": None,
        "events": [],
    }
    page = (await client.get("/v1/users/u-17/notifications?status=SCHEDULED&limit=1")).json
    assert [each["id"] for each in page["notifications"]] == [id_]
    assert "events" not in page["notifications"][0]
    assert (await client.get("/v1/users/u-17/notifications?status=SENT")).json == {"notifications": [], "next": None}


async def test_a_notification_without_a_time_is_queued_at_once(client: Client) -> None:
    accepted = (await send(client)).json
    assert (accepted["status"], accepted["send_at"]) == ("QUEUED", "2030-01-01T12:00:00Z")


async def test_the_same_key_gives_the_same_id_and_stores_no_response(client: Client) -> None:
    first = await send(client, idempotency_key="k")
    again = await send(client, {**BODY, "content": {"text": "another text"}}, idempotency_key="k")
    assert (again.status, again.json["id"]) == (202, first.json["id"])
    assert "idempotency-replay" not in again.headers
    assert (await send(client, idempotency_key="l")).json["id"] != first.json["id"]


async def test_a_refused_request_does_not_use_up_its_key(client: Client) -> None:
    refused = await send(client, {**BODY, "user_id": ""}, idempotency_key="k")
    assert refused.status == 422
    assert (await send(client, idempotency_key="k")).status == 202


async def test_a_notification_of_another_tenant_is_not_found(client: Client) -> None:
    id_ = (await send(client, LATER)).json["id"]
    other = {"authorization": "Bearer read@globex"}
    assert (await client.get(f"{HERE}/{id_}", **other)).status == 404
    assert (await client.get("/v1/users/u-17/notifications", **other)).json["notifications"] == []
    elsewhere = await send(client, authorization="Bearer write@globex")
    assert (elsewhere.status, elsewhere.code) == (409, "conflict")
    assert "noonday provider put" in elsewhere.json["detail"]


async def test_an_operator_may_read_the_notifications_of_another_tenant(client: Client) -> None:
    id_ = (await send(client, LATER)).json["id"]
    visitor = Client(client.app, {"authorization": "Bearer operator@ops", "noonday-tenant": "acme"})
    shown = await visitor.get(f"{HERE}/{id_}")
    assert shown.status == 200
    assert b"A-17" not in shown.body


@pytest.mark.parametrize("id_", [UNKNOWN, "nonsense"])
async def test_an_unknown_notification_is_not_found(client: Client, id_: str) -> None:
    assert (await client.get(f"{HERE}/{id_}")).status == 404


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fields", "pointer"),
    [
        ({"user_id": "a/b"}, "/user_id"),
        ({"user_id": None}, "/user_id"),
        ({"channels": []}, "/channels"),
        ({"channels": ["FAX"]}, "/channels/0"),
        ({"channels": ["EMAIL", "EMAIL"]}, "/channels/1"),
        ({"priority": "URGENT"}, "/priority"),
        ({"content": {}}, "/content"),
        ({"content": {"title": "t", "body": "b"}}, "/content/body"),
        ({"scheduled_at": "2030-01-01T11:58:59Z"}, "/scheduled_at"),
        ({"scheduled_at": "2031-01-03T12:00:00Z"}, "/scheduled_at"),
        ({"scheduled_at": "2030-01-02T09:00:00"}, "/scheduled_at"),
        ({"scheduled_at": "tomorrow"}, "/scheduled_at"),
        ({"local_time": "2030-01-02T09:00"}, "/local_time"),
        ({"scheduled_at": "2030-01-02T09:00:00Z", "local_time": "2030-01-02T09:00"}, "/local_time"),
        ({"expires_at": "2030-01-01T11:00:00Z"}, "/expires_at"),
        ({"expires_at": "2030-01-09T12:00:00Z"}, "/expires_at"),
        ({"dedupe_key": "x" * 256}, "/dedupe_key"),
        ({"dedupe_key": "x", "dedupe_seconds": 0}, "/dedupe_seconds"),
        ({"dedupe_key": "x", "dedupe_seconds": 30 * 86_400 + 1}, "/dedupe_seconds"),
        ({"if_past": "DROP"}, "/if_past"),
        ({"template": "shipped"}, "/template"),
        ({"campaign": "winter"}, "/campaign"),
        ({"digest": {"key": "orders", "window_seconds": 900}}, "/digest"),
    ],
)
async def test_invalid_notification_is_refused_with_its_pointer(
    client: Client, fields: dict[str, Any], pointer: str
) -> None:
    response = await send(client, {**BODY, **fields})
    assert (response.status, response.flaw["pointer"]) == (422, pointer)


async def test_misspelt_channel_gets_the_nearest_one(client: Client) -> None:
    assert (await send(client, {**BODY, "channels": ["EMAI"]})).flaw["nearest"] == "EMAIL"


async def test_a_lone_surrogate_is_refused(client: Client) -> None:
    raw = b'{"user_id": "\\ud800", "channels": ["EMAIL"], "content": {"text": "t"}}'
    assert (await client.post(HERE, raw)).status in (400, 422)


# -- batches -----------------------------------------------------------------------------------------------------------


async def batch(client: Client, *bodies: Any, **headers: str) -> Response:
    return await client.post(f"{HERE}/batch", {"notifications": bodies}, **headers)


async def test_each_entry_of_a_batch_has_its_answer_in_its_place(client: Client) -> None:
    wrong = {**BODY, "chanels": ["EMAIL"]}
    response = await batch(client, LATER, wrong, "nonsense", {**BODY, "channels": ["SMS"]}, BODY)
    assert response.status == 200
    first, misspelt, malformed, without_account, last = response.json["notifications"]
    assert (first["status"], last["status"]) == ("SCHEDULED", "QUEUED")
    assert (misspelt["status"], misspelt["instance"]) == (422, "/v1/notifications/batch#/notifications/1")
    assert misspelt["errors"][0]["nearest"] == "channels"
    assert (malformed["status"], without_account["status"]) == (422, 409)


async def test_a_repeated_batch_gives_the_same_ids(client: Client) -> None:
    first = await batch(client, LATER, BODY, idempotency_key="k")
    again = await batch(client, LATER, BODY, idempotency_key="k")
    ids = [each["id"] for each in first.json["notifications"]]
    assert [each["id"] for each in again.json["notifications"]] == ids
    assert len(set(ids)) == 2


async def test_an_empty_batch_is_answered(client: Client) -> None:
    assert (await batch(client)).json == {"notifications": []}


@pytest.mark.slow
async def test_a_batch_that_is_too_large_is_refused_whole(client: Client) -> None:
    many = await batch(client, *[1] * (BATCH_NOTIFICATIONS + 1))
    assert (many.status, many.json["limitNotifications"]) == (413, BATCH_NOTIFICATIONS)
    long = await client.post(f"{HERE}/batch", b" " * (BATCH_BYTES + 1))
    assert (long.status, long.json["limitBytes"]) == (413, BATCH_BYTES)


# -- quota and mode ----------------------------------------------------------------------------------------------------


@pytest.mark.slow
async def test_a_user_has_a_quota_for_each_day(client: Client) -> None:
    filled = await batch(client, *[BODY] * 10_000)
    assert {each["status"] for each in filled.json["notifications"]} == {"QUEUED"}
    response = await send(client)
    assert (response.status, response.code) == (429, "quota-exceeded")
    assert response.headers["retry-after"] == "43200"
    assert response.headers["ratelimit"] == '"notifications-per-user";r=0;t=43200'
    assert (await batch(client, BODY)).json["notifications"][0]["status"] == 429


async def test_a_mode_without_stores_for_notifications_says_so(backstage: Backstage) -> None:
    services = backstage.api_services()
    known = services.notifications
    without = NotificationServices(known.users, known.accounts, None, None)
    hosts = KnownHosts("127.0.0.1", 8080, ["http://testserver"], is_loopback=True)
    app = create_app(replace(services, notifications=without), hosts)
    client = Client(app, {"authorization": "Bearer operator"})
    answers = [
        await client.post(HERE, BODY),
        await client.post(f"{HERE}/batch", {"notifications": [BODY]}),
        await client.get(f"{HERE}/{UNKNOWN}"),
        await client.get("/v1/users/u-17/notifications"),
    ]
    assert {(each.status, each.code) for each in answers} == {(409, "not-in-this-mode")}
    assert "noonday up" in answers[0].json["detail"]
    assert (await client.put("/v1/users/u-17", {})).status == 200
