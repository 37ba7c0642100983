"""/v1/operations, and groups of dead letters and executions."""

from typing import Any

from noonday.intake.operation_runner import OperationRunner
from tests.api.asgi import Client
from tests.api.engine import Backstage, StandingClock

NOBODY = "00000000-0000-7000-8000-000000000000"
FAR = {"type": "ONE_TIME", "target": {"pool": "demo", "handler": "demo.echo"}, "runAt": "2031-01-01T00:00:00Z"}
PAUSE: dict[str, Any] = {"kind": "PAUSE_JOBS", "filter": {"tag": "etl"}}


async def created(client: Client, count: int) -> list[str]:
    answers = [await client.post("/v1/jobs", {**FAR, "tags": ["etl"]}) for _ in range(count)]
    return [answer.json["jobId"] for answer in answers]


async def test_an_operation_is_previewed_started_and_done(client: Client, backstage: Backstage) -> None:
    jobs = await created(client, 3)
    preview = await client.post("/v1/operations/preview", PAUSE, authorization="Bearer read")
    assert (preview.status, preview.json["affected"]) == (200, {"count": 3, "isLeast": False})
    assert {sample["id"] for sample in preview.json["samples"]} == set(jobs)
    started = await client.post("/v1/operations", {**PAUSE, "until": preview.json["until"]})
    assert (started.status, started.json["state"], started.json["left"]) == (201, "RUNNING", 3)
    path = f"/v1/operations/{started.json['id']}"
    assert started.headers["location"] == path
    runner = OperationRunner(backstage.store.operations, backstage.services.operation_items, StandingClock())
    await runner.run_once(StandingClock().now_ms())
    seen = (await client.get(path)).json
    assert (seen["done"], seen["left"], seen["filter"]) == (3, 0, {"tag": "etl"})
    assert {(await client.get(f"/v1/jobs/{job}")).json["state"] for job in jobs} == {"PAUSED"}
    stopped = await client.call("DELETE", path)
    assert (stopped.json["state"], stopped.json["stoppedBecause"]) == ("STOPPED", "stopped by somebody")
    assert [each["id"] for each in (await client.get("/v1/operations")).json["operations"]] == [seen["id"]]


async def test_a_repeated_request_has_one_operation(client: Client) -> None:
    first = await client.post("/v1/operations", PAUSE, idempotency_key="k")
    second = await client.post("/v1/operations", PAUSE, idempotency_key="k")
    assert first.json["id"] == second.json["id"]
    assert len((await client.get("/v1/operations")).json["operations"]) == 1


async def test_flaws_of_an_operation_are_named(client: Client) -> None:
    foreign = await client.post("/v1/operations", {"kind": "PAUSE_JOBS", "filter": {"worker": "w"}})
    assert (foreign.status, foreign.json["errors"][0]["pointer"]) == (422, "/filter/worker")
    without = await client.post("/v1/operations", {"kind": "PAUSE_JOBS"})
    assert (without.status, without.json["errors"][0]["pointer"]) == (422, "/filter")
    unknown = await client.post("/v1/operations", {"kind": "TRIGGER_JOBS", "filter": {}})
    assert (unknown.status, unknown.json["errors"][0]["pointer"]) == (422, "/kind")
    assert (await client.get(f"/v1/operations/{NOBODY}")).status == 404
    assert (await client.post("/v1/operations", PAUSE, authorization="Bearer read")).status == 403


async def test_too_many_running_operations_are_refused(client: Client) -> None:
    for _ in range(5):
        assert (await client.post("/v1/operations", PAUSE)).status == 201
    refused = await client.post("/v1/operations", PAUSE)
    assert (refused.status, refused.code, refused.json["limit"]) == (409, "conflict", 5)


async def test_groups_are_listed(client: Client) -> None:
    assert (await client.get("/v1/dead-letters/groups")).json == {"groups": [], "isLeast": False}
    assert (await client.get("/v1/executions/groups?by=waitingFor")).json == {"groups": [], "isLeast": False}
    refused = await client.get("/v1/executions/groups?by=waitingFor&state=DEAD")
    assert (refused.status, refused.json["errors"][0]["pointer"]) == (422, "/state")
    assert (await client.get("/v1/executions/groups")).status == 422


async def test_malformed_cursors_and_prefixes_are_refused(client: Client) -> None:
    for query, pointer in (("cursor=x", "/cursor"), ("idPrefix=xyz", "/idPrefix")):
        refused = await client.get(f"/v1/executions?{query}")
        assert (refused.status, refused.json["errors"][0]["pointer"]) == (422, pointer)
