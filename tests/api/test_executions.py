"""Executions of all jobs, and the wait for the end of one."""

import asyncio

import pytest

from tests.api.asgi import Client
from tests.api.engine import NOON_MS, Backstage
from tests.support.crank import Crank
from tests.support.factories import SECOND, report


async def fired(client: Client, backstage: Backstage, **fields: object) -> tuple[str, Crank]:
    """Create a job, and fire it. Returns the execution, and the crank that settles it."""
    target = {"pool": "demo", "handler": "demo.echo"}
    await client.post("/v1/jobs", {"type": "ONE_TIME", "target": target, **fields})
    crank = Crank(backstage.store)  # type: ignore[arg-type]
    await crank.own()
    dispatch = await crank.fire_one(at_ms=NOON_MS)
    await crank.settle(report(dispatch, started_ms=NOON_MS, ended_ms=NOON_MS + 2 * SECOND))
    return dispatch.execution_id, crank


async def test_executions_of_all_jobs_are_listed_with_conditions(client: Client, backstage: Backstage) -> None:
    execution, _ = await fired(client, backstage, name="nightly", tags=["etl"])
    (one,) = (await client.get("/v1/executions")).json["executions"]
    assert (one["executionId"], one["jobName"], one["state"]) == (execution, "nightly", "SUCCEEDED")
    for query, found in (
        ("state=SUCCEEDED&pool=demo&handler=demo.echo&tag=etl", 1),
        ("state=DEAD", 0),
        ("tookOver=1.5", 1),
        ("tookOver=2", 0),
        ("lateOver=1", 0),
        (f"jobId={one['jobId']}&since=2030-01-01T12:00:00Z", 1),
        ("until=2030-01-01T12:00:00Z", 0),
    ):
        response = await client.get(f"/v1/executions?{query}")
        assert (response.status, len(response.json["executions"])) == (200, found), query


@pytest.mark.parametrize("query", ["state=FAILED", "since=yesterday", "lateOver=-1", "limit=501", "job=x"])
async def test_invalid_conditions_are_refused(client: Client, query: str) -> None:
    response = await client.get(f"/v1/executions?{query}")
    assert (response.status, response.flaw["pointer"]) == (422, f"/{query.partition('=')[0]}")


async def test_an_ended_execution_is_returned_without_a_wait(client: Client, backstage: Backstage) -> None:
    execution, _ = await fired(client, backstage)
    response = await client.get(f"/v1/executions/{execution}?wait=60")
    assert (response.status, response.json["state"]) == (200, "SUCCEEDED")
    assert (await client.get(f"/v1/executions/{execution}?wait=61")).status == 422


async def test_waiting_requests_take_no_concurrent_reads(client: Client, backstage: Backstage) -> None:
    """The clock stands still, so the waits last until the process stops."""
    made = await client.post("/v1/jobs", {"type": "ONE_TIME", "target": {"pool": "demo", "handler": "demo.echo"}})
    job = made.json["jobId"]
    execution = (await client.post(f"/v1/jobs/{job}/trigger", {})).json["executionId"]
    waits = [asyncio.create_task(client.get(f"/v1/executions/{execution}?wait=60")) for _ in range(10)]
    assert (await client.get("/v1/executions")).status == 200
    assert not any(wait.done() for wait in waits)
    backstage.services.execution_ends.close()
    assert {(await wait).status for wait in waits} == {200}


async def test_a_request_that_a_stopping_server_cancels_is_answered_with_a_problem(
    client: Client, backstage: Backstage
) -> None:
    made = await client.post("/v1/jobs", {"type": "ONE_TIME", "target": {"pool": "demo", "handler": "demo.echo"}})
    execution = (await client.post(f"/v1/jobs/{made.json['jobId']}/trigger", {})).json["executionId"]
    waiting = asyncio.create_task(client.get(f"/v1/executions/{execution}?wait=60"))
    assert (await client.get("/v1/executions")).status == 200
    waiting.cancel()
    response = await waiting
    assert (response.status, response.code) == (503, "stopping")
    assert "repeat it with the same Idempotency-Key" in response.json["detail"]
    assert "retry-after" in response.headers
