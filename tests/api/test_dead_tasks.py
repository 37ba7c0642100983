"""Dead letters in the terms of tasks."""

from typing import Any

import pytest

from noonday.model.execution import Outcome
from noonday.model.message import Dispatch
from noonday.model.retry import RetryPolicy
from tests.api.asgi import Client
from tests.api.engine import NOON_MS, Backstage
from tests.api.test_tasks import URL, ask, crank, daily, end, fire, made, once, patched
from tests.support.crank import Crank
from tests.support.factories import MINUTE, failure, job, report, spec

__all__ = ["crank"]
DLQ = "/v1/task-dlq"
OTHER = "http://other.example/x"


async def dead(client: Client, query: str = "") -> list[dict[str, Any]]:
    response = await client.get(DLQ + query)
    assert response.status == 200, response.json
    found: list[dict[str, Any]] = response.json["dead_letters"]
    return found


async def die(crank: Crank, message: str = "answered 400") -> Dispatch:
    dispatch = await fire(crank)
    await crank.settle(report(dispatch, Outcome.FAILED, failure=failure(message, retryable=False)))
    return dispatch


@pytest.mark.slow
async def test_dead_call_is_listed_with_the_definition_of_its_task(client: Client, crank: Crank):
    path = await made(client, once(name="report"))
    dispatch = await end(crank, Outcome.FAILED)
    (letter,) = await dead(client)
    task = (await client.get(path)).json
    assert letter == {
        "id": dispatch.execution_id,
        "task_id": task["id"],
        "task_name": "report",
        "webhook_url": URL,
        "error_type": "OSError",
        "error_message": task["executions"][0]["error_message"],
        "attempts": 1,
        "failed_at": "2030-01-01T12:01:01Z",
        "resolved_at": None,
        "resolved_by": None,
        "retried_as": None,
    }
    assert (await client.get(f"{DLQ}/{dispatch.execution_id}")).json == letter


async def test_dead_letters_of_other_jobs_are_not_listed(client: Client, crank: Crank, backstage: Backstage):
    await crank.add(job(spec(retry_policy=RetryPolicy(max_attempts=1)), now_ms=NOON_MS))
    dispatch = await die(crank)
    assert len((await client.get("/v1/dead-letters")).json["deadLetters"]) == 1
    assert await dead(client) == []
    assert (await client.get(f"{DLQ}/{dispatch.execution_id}")).status == 404
    assert (await ask(client, "POST", f"{DLQ}/{dispatch.execution_id}/retry")).status == 404


async def test_dead_letters_are_found_by_task_endpoint_error_and_time(client: Client, crank: Crank):
    first = await made(client, once())
    here = await die(crank, "TIMEOUT: nothing came")
    await made(client, once(payload={"webhook_url": OTHER}))
    there = await die(crank, "answered 503")

    async def listed(query: str) -> list[str]:
        return [letter["id"] for letter in await dead(client, query)]

    assert len(await listed("")) == 2
    assert await listed(f"?task_id={first.rpartition('/')[2]}") == [here.execution_id]
    assert await listed(f"?endpoint={OTHER}") == [there.execution_id]
    assert await listed("?error=timeout") == [here.execution_id]
    assert await listed("?since=2030-01-01T12:01:02Z") == []
    assert len(await listed("?until=2030-01-01T12:01:02Z")) == 2
    assert await listed("?archived=true") == []


async def test_dead_letters_come_in_pages(client: Client, crank: Crank):
    for _ in range(3):
        await made(client, once())
        await die(crank)
    first = (await client.get(f"{DLQ}?limit=2")).json
    second = (await client.get(f"{DLQ}?limit=2&cursor={first['next']}")).json
    assert [len(first["dead_letters"]), len(second["dead_letters"]), second["next"]] == [2, 1, None]


async def test_a_retry_calls_the_task_as_it_is_now_and_resolves_the_entry(client: Client, crank: Crank):
    path = await made(client, daily(cron_expression="* * * * *"))
    dispatch = await die(crank)
    await patched(client, path, payload={"webhook_url": OTHER})
    response = await ask(client, "POST", f"{DLQ}/{dispatch.execution_id}/retry")
    assert response.status == 201, response.json
    new = response.json
    assert (new["status"], new["retry_of"], new["task_id"]) == ("PENDING", dispatch.execution_id, path[10:])
    assert await dead(client) == []
    letter = (await client.get(f"{DLQ}/{dispatch.execution_id}")).json
    assert (letter["resolved_by"], letter["retried_as"]) == ("RETRY", new["id"])
    assert letter["resolved_at"] is not None
    assert (await crank.look(new["id"])).revision == 2


async def test_a_retry_is_done_once_under_its_key_and_refused_under_another(client: Client, crank: Crank):
    await made(client, once())
    path = f"{DLQ}/{(await die(crank)).execution_id}/retry"
    assert (await client.post(path)).status == 400
    first, again = await ask(client, "POST", path, key="k"), await ask(client, "POST", path, key="k")
    assert (first.status, again.status, again.json) == (201, 201, first.json)
    assert (await ask(client, "POST", path)).status == 409


async def test_an_archived_entry_is_resolved_and_listed_only_when_asked_for(client: Client, crank: Crank):
    await made(client, once())
    path = f"{DLQ}/{(await die(crank)).execution_id}"
    response = await ask(client, "POST", f"{path}/archive", key="k")
    assert (response.status, response.json["resolved_by"], response.json["retried_as"]) == (200, "ARCHIVE", None)
    assert response.json["resolved_at"] is not None
    assert await dead(client) == []
    assert await dead(client, "?archived=true") == [response.json]
    assert (await ask(client, "POST", f"{path}/archive", key="k")).json == response.json


@pytest.mark.parametrize(("action", "archived"), [("retry", 0), ("archive", 2)])
async def test_many_are_dealt_with_by_a_filter(client: Client, crank: Crank, action: str, archived: int):
    for url in (URL, OTHER, OTHER):
        await made(client, once(payload={"webhook_url": url}))
        await die(crank)
    assert (await client.post(f"{DLQ}/{action}", {})).status == 400
    response = await ask(client, "POST", f"{DLQ}/{action}", {"endpoint": OTHER})
    assert (response.status, response.json) == (200, {"changed": 2, "more": False})
    assert [letter["webhook_url"] for letter in await dead(client)] == [URL]
    assert len(await dead(client, "?archived=true")) == archived


async def test_a_dead_letter_of_a_deleted_task_can_be_archived_and_not_retried(client: Client, crank: Crank):
    path = await made(client, once())
    dispatch = await die(crank)
    await ask(client, "DELETE", path)
    assert len(await dead(client)) == 1
    assert (await ask(client, "POST", f"{DLQ}/{dispatch.execution_id}/retry")).status == 409
    assert (await ask(client, "POST", f"{DLQ}/{dispatch.execution_id}/archive")).status == 200


async def test_execution_that_did_not_die_is_no_dead_letter(client: Client, crank: Crank):
    await made(client, once())
    dispatch = await crank.fire_one(at_ms=NOON_MS + MINUTE)
    for path in (f"{DLQ}/{dispatch.execution_id}", f"{DLQ}/{dispatch.execution_id[:-1]}", f"{DLQ}/nonsense"):
        assert (await client.get(path)).status == 404


async def test_a_filter_that_cannot_be_is_refused_by_name(client: Client):
    response = await client.get(f"{DLQ}?endpoint=example")
    assert (response.status, response.flaw["pointer"]) == (422, "/endpoint")
    response = await ask(client, "POST", f"{DLQ}/retry", {"task": "x"})
    assert (response.status, response.flaw["nearest"]) == (422, "task_id")


@pytest.mark.parametrize("door", [DLQ, "/v1/dead-letters"])
@pytest.mark.parametrize("verb", ["retry", "archive"])
async def test_repeated_request_gets_the_first_response(client: Client, crank: Crank, door: str, verb: str):
    await made(client, once())
    path = f"{door}/{(await die(crank)).execution_id}"
    first = await ask(client, "POST", f"{path}/{verb}", key="one")
    if verb == "archive":
        await ask(client, "POST", f"{path}/retry", key="between")
    again = await ask(client, "POST", f"{path}/{verb}", key="one")
    assert first.status in (200, 201)
    assert (again.status, again.json) == (first.status, first.json)
    other = await ask(client, "POST", f"{path}/retry", key="two")
    assert other.status == 409
