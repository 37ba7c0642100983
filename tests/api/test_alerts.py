from itertools import count
from typing import Any

import pytest

from noonday.model.alert import AlertKind, Observation
from noonday.model.ids import TenantId
from noonday.model.job import Target
from tests.api.asgi import Client, Response
from tests.api.engine import NOON_MS, Backstage
from tests.support.crank import Crank
from tests.support.factories import HANDLER, POOL, job, spec

ENDPOINT = "https://a.example:443"
NOBODY = "00000000-0000-7000-8000-000000000000"
_keys = count(1)


async def ask(client: Client, path: str, body: Any = None, key: str | None = None) -> Response:
    return await client.post(path, body, idempotency_key=key or f"own-{next(_keys)}")


async def raise_one(backstage: Backstage, about: str = "", **fields: Any) -> str:
    """Raise an alert. Returns the id of its job."""
    name = about or job().id
    given = {
        "kind": AlertKind.FAILED,
        "tenant": TenantId("acme"),
        "message": "answered 503",
        "at_ms": NOON_MS,
        **fields,
    }
    await backstage.store.alerts.record([Observation(about=name, job_id=name, **given)])
    return name


async def listed(client: Client, query: str = "") -> list[Any]:
    response = await client.get(f"/v1/alerts{query}")
    assert response.status == 200, response.json
    return list(response.json["alerts"])


@pytest.fixture
def reader(client: Client) -> Client:
    return Client(client.app, {"authorization": "Bearer read"})


async def test_an_empty_inbox(client: Client) -> None:
    assert (await client.get("/v1/alerts")).json == {"alerts": [], "unread": 0}


async def test_alert_of_a_task_names_the_task_and_its_failure(client: Client, backstage: Backstage) -> None:
    target = Target("webhooks", "webhook.call", endpoint=ENDPOINT)
    one = job(spec(name="report", target=target))
    await Crank(backstage.store).add(one)
    await raise_one(backstage, one.id, execution_id="x")
    await raise_one(backstage, one.id, execution_id="y", at_ms=NOON_MS + 1000)
    (alert,) = await listed(client)
    assert alert == {
        "id": alert["id"],
        "kind": "FAILED",
        "status": "OPEN",
        "message": "answered 503",
        "count": 2,
        "first_at": "2030-01-01T12:00:00Z",
        "last_at": "2030-01-01T12:00:01Z",
        "job_id": one.id,
        "task_id": one.id,
        "name": "report",
        "execution_id": "y",
        "endpoint": ENDPOINT,
    }
    assert (await client.get(f"/v1/alerts/{alert['id'].upper()}")).json == alert


async def test_an_alert_of_another_job_has_no_task(client: Client, backstage: Backstage) -> None:
    one = job(spec(target=Target(POOL, HANDLER)))
    await Crank(backstage.store).add(one)
    await raise_one(backstage, one.id)
    (alert,) = await listed(client)
    assert (alert["job_id"], "task_id" in alert) == (one.id, False)


async def test_alerts_are_paged_and_filtered(client: Client, backstage: Backstage) -> None:
    names = [await raise_one(backstage, at_ms=NOON_MS + at) for at in range(3)]
    await raise_one(backstage, names[0], kind=AlertKind.SLOW, at_ms=NOON_MS + 9)
    first = (await client.get("/v1/alerts?limit=3")).json
    assert ([each["kind"] for each in first["alerts"]], first["unread"]) == (["SLOW", "FAILED", "FAILED"], 4)
    rest = (await client.get(f"/v1/alerts?limit=3&cursor={first['next_cursor']}")).json
    assert ([each["job_id"] for each in rest["alerts"]], "next_cursor" in rest) == ([names[0]], False)
    assert len(await listed(client, "?kind=FAILED")) == 3
    assert [each["kind"] for each in await listed(client, f"?task_id={names[0]}")] == ["SLOW", "FAILED"]


async def test_alert_is_acknowledged_once_and_names_its_caller(client: Client, backstage: Backstage) -> None:
    await raise_one(backstage)
    (alert,) = await listed(client, "?unread=true")
    path = f"/v1/alerts/{alert['id']}/acknowledge"
    assert (await client.post(path)).code == "bad-header"
    seen = await ask(client, path, key="k")
    assert (seen.status, seen.json["status"], seen.json["acknowledged_by"]) == (200, "ACKNOWLEDGED", "somebody")
    assert seen.json["acknowledged_at"] == "2030-01-01T12:00:00Z"
    again = await ask(client, path, key="k")
    assert (again.json, again.headers["idempotency-replay"]) == (seen.json, "true")
    assert (await ask(client, path)).json == seen.json
    assert await listed(client, "?unread=true") == []
    assert await listed(client, "?unread=false") == [seen.json]
    entries = (await client.get("/v1/audit")).json["entries"]
    assert [(each["action"], each["target"]) for each in entries[:1]] == [("alert.acknowledge", alert["id"])]
    assert [each["action"] for each in entries].count("alert.acknowledge") == 1


async def test_many_are_acknowledged_at_once(client: Client, backstage: Backstage) -> None:
    names = [await raise_one(backstage, at_ms=NOON_MS - at * 1000) for at in range(5)]
    await raise_one(backstage, names[0], kind=AlertKind.SLOW)
    path = "/v1/alerts/acknowledge"
    assert (await ask(client, path, {"kind": "SLOW"})).json == {"acknowledged": 1}
    assert (await ask(client, path, {"task_id": names[0]})).json == {"acknowledged": 1}
    assert (await ask(client, path, {"until": "2030-01-01T11:59:57Z"})).json == {"acknowledged": 2}
    first = await ask(client, path, {}, key="all")
    assert first.json == {"acknowledged": 2}
    assert (await ask(client, path, {}, key="all")).json == first.json
    assert (await ask(client, path, {})).json == {"acknowledged": 0}
    assert (await client.get("/v1/alerts")).json["unread"] == 0


@pytest.mark.slow
async def test_more_than_a_step_are_acknowledged(client: Client, backstage: Backstage) -> None:
    seen = [
        Observation(
            kind=AlertKind.FAILED,
            tenant=TenantId("acme"),
            about=f"job-{n}",
            message="no",
            at_ms=NOON_MS,
            job_id=f"job-{n}",
        )
        for n in range(1_100)
    ]
    await backstage.store.alerts.record(seen)
    assert (await client.get("/v1/alerts")).json["unread"] == 1_000
    assert (await ask(client, "/v1/alerts/acknowledge", {})).json == {"acknowledged": 1_100}


async def test_unknown_alert_is_not_found(client: Client) -> None:
    assert (await client.get(f"/v1/alerts/{NOBODY}")).code == "not-found"
    assert (await ask(client, f"/v1/alerts/{NOBODY}/acknowledge")).code == "not-found"


async def test_caller_with_scope_read_cannot_acknowledge(reader: Client, backstage: Backstage) -> None:
    await raise_one(backstage)
    (alert,) = await listed(reader)
    assert (await ask(reader, f"/v1/alerts/{alert['id']}/acknowledge")).status == 403
    assert (await ask(reader, "/v1/alerts/acknowledge", {})).status == 403


@pytest.mark.parametrize(
    ("query", "pointer"),
    [("kind=BROKEN", "/kind"), ("taskId=x", "/taskId"), ("task_id=x", "/task_id"), ("cursor=~", "/cursor")],
)
async def test_a_wrong_question_is_refused_by_name(client: Client, query: str, pointer: str) -> None:
    response = await client.get(f"/v1/alerts?{query}")
    assert (response.code, response.flaw["pointer"]) == ("invalid-input", pointer)


@pytest.mark.parametrize("until", ["2030-01-01T11:59:57", "0001-01-01T00:00:00Z"])
async def test_an_instant_must_have_an_offset_and_be_in_reach(client: Client, until: str) -> None:
    response = await ask(client, "/v1/alerts/acknowledge", {"until": until})
    assert (response.code, response.flaw["pointer"]) == ("invalid-input", "/until")
