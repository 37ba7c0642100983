from itertools import count
from typing import Any

import pytest

from noonday.model.ids import JobId, TenantId
from tests.api.asgi import Client, Response
from tests.api.engine import Backstage

MAIL = {"type": "EMAIL", "address": "ops@example.com"}
HOOK = {"type": "WEBHOOK", "url": "https://hooks.example.com/x?token=secret"}
PLACE = "/v1/alert-preferences/ops"
JOB = "01900000-0000-7000-8000-000000000001"
_keys = count(1)


async def ask(client: Client, method: str, path: str = PLACE, body: Any = None, key: str | None = None) -> Response:
    """Send a request with a key of its own by default."""
    return await client.call(method, path, body, idempotency_key=key or f"own-{next(_keys)}")


async def put(client: Client, **fields: Any) -> Response:
    return await ask(client, "PUT", body={"channel": MAIL, **fields})


async def test_preference_is_returned_as_it_was_put_with_defaults(client: Client) -> None:
    made = await put(client, user="Sam")
    assert made.status == 200
    assert made.json == {
        "id": "ops",
        "user": "Sam",
        "channel": MAIL,
        "kinds": ["EXHAUSTED", "STOPPED", "DISABLED", "MISSED", "RECOVERED"],
        "digest_seconds": 300,
        "pools": [],
        "job_ids": [],
        "enabled": True,
        "created_at": "2030-01-01T12:00:00Z",
        "updated_at": "2030-01-01T12:00:00Z",
    }
    assert (await client.get(PLACE)).json == made.json
    assert (await client.get("/v1/alert-preferences")).json == {"preferences": [made.json]}


async def test_preference_without_a_user_is_for_its_caller(client: Client) -> None:
    assert (await put(client)).json["user"] == "somebody"


async def test_another_put_replaces_it_whole(client: Client) -> None:
    await put(client, kinds=["SLOW"], pools=["etl"], task_ids=[JOB], digest_seconds=0)
    assert (await client.get(PLACE)).json["job_ids"] == [JOB]
    again = (await ask(client, "PUT", body={"channel": HOOK, "enabled": False})).json
    assert (again["channel"], again["enabled"], again["pools"], again["job_ids"]) == (HOOK, False, [], [])
    assert again["digest_seconds"] == 300


async def test_the_same_key_is_answered_and_not_done_again(client: Client) -> None:
    first = await ask(client, "PUT", body={"channel": MAIL}, key="k")
    await ask(client, "DELETE")
    second = await ask(client, "PUT", body={"channel": MAIL}, key="k")
    assert second.json == first.json
    assert second.headers["idempotency-replay"] == "true"
    assert (await client.get(PLACE)).status == 404


@pytest.mark.parametrize(("method", "path"), [("PUT", PLACE), ("DELETE", PLACE), ("POST", f"{PLACE}/test")])
async def test_every_change_needs_a_key(client: Client, method: str, path: str) -> None:
    response = await client.call(method, path, {"channel": MAIL} if method == "PUT" else None)
    assert (response.status, response.code) == (400, "bad-header")


async def test_a_preference_that_was_deleted_is_gone(client: Client) -> None:
    await put(client)
    assert (await ask(client, "DELETE")).status == 204
    assert (await ask(client, "DELETE")).status == 404
    assert (await client.get(PLACE)).status == 404
    assert (await ask(client, "POST", f"{PLACE}/test")).status == 404


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fields", "pointer"),
    [
        ({"channel": {"type": "EMAIL", "address": "ops"}}, "/channel/address"),
        ({"channel": {"type": "EMAIL"}}, "/channel/address"),
        ({"channel": {**MAIL, "url": "https://x.example"}}, "/channel/url"),
        ({"channel": {"type": "WEBHOOK", "url": "ftp://x.example"}}, "/channel/url"),
        ({"channel": {"type": "WEBHOOK", "url": "https://me:pw@x.example"}}, "/channel/url"),
        ({"channel": {"type": "WEBHOOK"}}, "/channel/url"),
        ({"kinds": []}, "/kinds"),
        ({"digest_seconds": 86_401}, "/digest_seconds"),
        ({"digest_seconds": -1}, "/digest_seconds"),
        ({"pools": ["a b"]}, "/pools/0"),
        ({"job_ids": ["nightly"]}, "/job_ids/0"),
        ({"task_ids": [JOB, "nightly"]}, "/task_ids/1"),
        ({"user": ""}, "/user"),
        ({"user": "a\nb"}, "/user"),
    ],
)
async def test_invalid_preference_is_refused_with_its_pointer(
    client: Client, fields: dict[str, Any], pointer: str
) -> None:
    response = await put(client, **fields)
    assert response.status == 422
    assert response.flaw["pointer"] == pointer


async def test_misspelt_kind_gets_the_nearest_one(client: Client) -> None:
    flaw = (await put(client, kinds=["EXAUSTED"])).flaw
    assert (flaw["pointer"], flaw["nearest"]) == ("/kinds/0", "EXHAUSTED")


async def test_every_flaw_is_named(client: Client) -> None:
    response = await put(client, channel={"type": "EMAIL", "address": "ops"}, pools=["a b"])
    assert [flaw["pointer"] for flaw in response.json["errors"]] == ["/pools/0", "/channel/address"]


async def test_a_channel_that_is_not_set_up_is_refused_in_words(client: Client) -> None:
    response = await put(client, channel={"type": "PUSH", "address": "phone"})
    assert (response.status, response.code) == (409, "conflict")
    assert response.json["detail"] == "push is not available; use EMAIL or WEBHOOK"


async def test_an_id_is_a_plain_word(client: Client) -> None:
    assert (await ask(client, "PUT", "/v1/alert-preferences/Ops", {"channel": MAIL})).status == 422
    assert (await ask(client, "PUT", "/v1/alert-preferences/ops-team-2", {"channel": MAIL})).status == 200


async def test_a_test_makes_the_job_that_sends_it(client: Client, backstage: Backstage) -> None:
    await put(client)
    sent = await ask(client, "POST", f"{PLACE}/test", key="t")
    assert sent.status == 202
    again = await ask(client, "POST", f"{PLACE}/test", key="t")
    assert again.json == sent.json
    row = await backstage.store.query_store.find_job(TenantId("acme"), JobId(sent.json["job_id"]))
    assert row is not None
    assert (row.job.spec.target.pool, row.job.spec.target.handler) == ("notices", "notice.email")
    assert row.job.spec.unique_key == f"notice:{sent.json['notice_id']}"
    assert len(await backstage.store.query_store.declared_keys(TenantId("acme"), "notice:")) == 1


async def test_channel_addresses_are_encrypted_in_the_store(client: Client, backstage: Backstage) -> None:
    await ask(client, "PUT", body={"channel": HOOK})
    (kept,) = await backstage.store.notices.preferences(["acme"])
    assert b"hooks.example.com" not in kept.channel


async def test_changes_are_audited(client: Client) -> None:
    await put(client)
    await ask(client, "POST", f"{PLACE}/test")
    await ask(client, "DELETE")
    entries = (await client.get("/v1/audit")).json["entries"]
    made = [each for each in entries if each["action"].startswith("alert-preference.")]
    assert [(each["action"], each["target"]) for each in made] == [
        ("alert-preference.delete", "ops"),
        ("alert-preference.test", "ops"),
        ("alert-preference.put", "ops"),
    ]


@pytest.mark.slow
async def test_a_tenant_has_at_most_a_hundred(client: Client) -> None:
    for number in range(100):
        assert (await ask(client, "PUT", f"/v1/alert-preferences/p{number}", {"channel": MAIL})).status == 200
    response = await put(client)
    assert (response.status, response.json["limit"]) == (409, 100)


async def test_reading_is_for_readers_and_changing_for_writers(client: Client) -> None:
    reader = Client(client.app, {"authorization": "Bearer read"})
    assert (await reader.get("/v1/alert-preferences")).status == 200
    assert (await put(reader)).status == 403


async def test_write_token_sends_no_mail(client: Client) -> None:
    await put(client)
    client.headers["authorization"] = "Bearer write"
    for method, path, body in (
        ("PUT", PLACE, {"channel": MAIL}),
        ("POST", f"{PLACE}/test", None),
        ("POST", "/v1/jobs", {"type": "ONE_TIME", "target": {"pool": "notices", "handler": "notice.email"}}),
    ):
        assert (await ask(client, method, path, body)).status in (403, 422)
    assert (await ask(client, "PUT", body={"channel": HOOK})).status == 200


async def test_test_notice_is_sent_once_a_minute_and_never_run_again(client: Client) -> None:
    await put(client)
    first = await ask(client, "POST", f"{PLACE}/test")
    second = await ask(client, "POST", f"{PLACE}/test")
    assert first.json == second.json
    assert (await ask(client, "POST", f"/v1/jobs/{first.json['job_id']}/trigger")).status == 409
