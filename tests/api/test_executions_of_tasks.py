"""Calls of all tasks, and calls that are resent."""

from typing import Any

import pytest

from noonday.model.execution import Outcome
from noonday.model.message import Dispatch
from tests.api.asgi import Client, Response
from tests.api.engine import NOON_MS, Backstage
from tests.api.test_tasks import CALL, URL, ask, crank, daily, end, fire, made, once, patched
from tests.support.crank import Crank
from tests.support.factories import MINUTE, failure, report

__all__ = ["crank"]
OTHER = "http://other.example:8080/x"
ALL = "/v1/task-executions"
RESEND = "/v1/task-executions/resend"


async def calls(client: Client, query: str = "") -> list[dict[str, Any]]:
    response = await client.get(ALL + query)
    assert response.status == 200, response.json
    found: list[dict[str, Any]] = response.json["executions"]
    return found


async def minutes(client: Client, crank: Crank, *outcomes: Outcome, **fields: Any) -> tuple[str, list[Dispatch]]:
    """Create a task that is called every minute, and end its calls with these outcomes."""
    path = await made(client, daily(cron_expression="* * * * *", **fields))
    dispatches = []
    for minute, outcome in enumerate(outcomes, 1):
        dispatch = await crank.fire_one(at_ms=NOON_MS + minute * MINUTE)
        await crank.settle(report(dispatch, outcome, failure=failure("answered 400", retryable=False)))
        dispatches.append(dispatch)
    return path, dispatches


async def resend(client: Client, path: str, execution: str, key: str | None = None) -> Response:
    return await ask(client, "POST", f"{path}/executions/{execution}/resend", key=key)


async def results(client: Client, key: str | None = None, **fields: Any) -> list[dict[str, Any]]:
    response = await ask(client, "POST", RESEND, fields, key)
    assert response.status == 200, response.json
    found: list[dict[str, Any]] = response.json["results"]
    return found


# Finding


async def test_calls_of_all_tasks_are_listed_with_their_task(client: Client, crank: Crank):
    await made(client, once(name="first"))
    await made(client, once(name="second", payload={"webhook_url": OTHER}))
    await crank.fire(at_ms=NOON_MS + MINUTE)
    found = await calls(client)
    assert {(one["task_name"], one["webhook_url"], one["status"]) for one in found} == {
        ("first", URL, "PENDING"),
        ("second", OTHER, "PENDING"),
    }
    assert [one["id"] for one in found] == sorted((one["id"] for one in found), reverse=True)


async def test_calls_are_found_by_status_task_endpoint_and_time(client: Client, crank: Crank):
    path, dispatches = await minutes(client, crank, Outcome.SUCCEEDED, Outcome.FAILED, Outcome.SUCCEEDED)
    ids = [dispatch.execution_id for dispatch in dispatches]
    task = path.rpartition("/")[2]

    async def listed(query: str) -> list[str]:
        return [one["id"] for one in await calls(client, query)]

    assert await listed("?status=FAILED") == [ids[1]]
    assert await listed(f"?task_id={task}&status=COMPLETED") == [ids[2], ids[0]]
    assert await listed("?endpoint=https://api.example.com/whatever") == ids[::-1]
    assert await listed("?endpoint=https://api.example.com:444") == []
    assert await listed("?since=2030-01-01T12:02:00Z&until=2030-01-01T12:03:00Z") == [ids[1]]
    assert await listed(f"?task_id={ids[0]}") == []


async def test_calls_come_in_pages(client: Client, crank: Crank):
    await minutes(client, crank, *[Outcome.SUCCEEDED] * 3)
    first = (await client.get(f"{ALL}?limit=2")).json
    second = (await client.get(f"{ALL}?limit=2&cursor={first['next']}")).json
    assert [len(first["executions"]), len(second["executions"]), second["next"]] == [2, 1, None]


@pytest.mark.parametrize(
    ("query", "pointer"),
    [
        ("?endpoint=ftp://x", "/endpoint"),
        ("?status=DEAD", "/status"),
        ("?since=noon", "/since"),
        ("?tasks=1", "/tasks"),
    ],
)
async def test_a_filter_that_cannot_be_is_refused_by_name(client: Client, query: str, pointer: str):
    response = await client.get(ALL + query)
    assert (response.status, response.flaw["pointer"]) == (422, pointer)


# Resending one


@pytest.mark.parametrize("outcome", [Outcome.SUCCEEDED, Outcome.FAILED, Outcome.CANCELLED, Outcome.EXPIRED])
async def test_a_call_is_made_once_more_however_it_ended(client: Client, crank: Crank, outcome: Outcome):
    path = await made(client, once())
    first = await end(crank, outcome)
    response = await resend(client, path, first.execution_id)
    assert response.status == 201, response.json
    new = response.json
    assert (new["status"], new["retry_of"], new["with_present_payload"]) == ("PENDING", first.execution_id, False)
    assert new["scheduled_at"] == "2030-01-01T12:01:00Z"
    second = await fire(crank)
    assert (second.execution_id, second.payload) == (new["id"], first.payload)


async def test_a_call_that_has_not_ended_is_not_made_once_more(client: Client, crank: Crank):
    path = await made(client, once())
    dispatch = await fire(crank)
    response = await resend(client, path, dispatch.execution_id)
    assert (response.status, response.code) == (409, "conflict")
    assert "PENDING" in response.json["detail"]


async def test_only_executions_of_the_task_are_sent_again(client: Client, crank: Crank):
    path, other = await made(client, once()), await made(client, daily())
    dispatch = await end(crank, Outcome.SUCCEEDED)
    assert (await resend(client, other, dispatch.execution_id)).status == 404
    assert (await resend(client, path, path.rpartition("/")[2])).status == 404
    await ask(client, "DELETE", path)
    assert (await resend(client, path, dispatch.execution_id)).status == 409


async def test_sending_again_needs_a_key_and_is_done_once_under_it(client: Client, crank: Crank):
    path = await made(client, once())
    dispatch = await end(crank, Outcome.FAILED)
    resend_path = f"{path}/executions/{dispatch.execution_id}/resend"
    assert (await client.post(resend_path)).status == 400
    first = await ask(client, "POST", resend_path, key="k")
    again = await ask(client, "POST", resend_path, key="k")
    assert (first.status, again.status, again.json) == (201, 201, first.json)
    assert again.headers["idempotency-replay"] == "true"
    other = await ask(client, "POST", resend_path, key="another")
    assert other.json["id"] != first.json["id"]


async def test_original_payload_is_sent_again_as_long_as_it_is_kept(client: Client, crank: Crank):
    path = await made(client, daily(cron_expression="* * * * *"))
    dispatch = await end(crank, Outcome.SUCCEEDED)
    await patched(client, path, payload=CALL | {"body": "another"})
    response = await resend(client, path, dispatch.execution_id)
    assert response.json["with_present_payload"] is False
    assert (await crank.look(response.json["id"])).revision == 1


async def test_a_dead_letter_that_is_sent_again_is_resolved(client: Client, crank: Crank):
    path = await made(client, once())
    dispatch = await end(crank, Outcome.FAILED)
    new = (await resend(client, path, dispatch.execution_id)).json["id"]
    letter = (await client.get(f"/v1/task-dlq/{dispatch.execution_id}")).json
    assert (letter["resolved_by"], letter["retried_as"]) == ("RETRY", new)
    (call,) = await calls(client, "?status=FAILED")
    assert (call["resolved_by"], call["retried_as"]) == ("RETRY", new)


async def test_sending_again_is_written_down(client: Client, crank: Crank):
    path = await made(client, once())
    dispatch = await end(crank, Outcome.FAILED)
    await resend(client, path, dispatch.execution_id)
    (entry,) = (await client.get(f"/v1/audit?target={dispatch.execution_id}")).json["entries"]
    assert (entry["action"], entry["subject"]) == ("execution.resend", "somebody")


# Resending many


async def test_calls_of_several_tasks_are_made_once_more(client: Client, crank: Crank, backstage: Backstage):
    for name in ("first", "second"):
        await made(client, once(name=name))
    ended = (await crank.fire(at_ms=NOON_MS + MINUTE)).dispatches
    await crank.settle(*(report(each, Outcome.FAILED, failure=failure(retryable=False)) for each in ended))
    path = await made(client, daily(cron_expression="* * * * *"))
    open_ = await crank.fire_one(at_ms=NOON_MS + 2 * MINUTE)
    unknown = path.rpartition("/")[2]
    ids = [ended[0].execution_id, open_.execution_id, unknown, ended[1].execution_id, ended[0].execution_id]
    found = await results(client, ids=ids)
    assert [one["id"] for one in found] == ids[:4]
    assert [one["resent_as"] is not None for one in found] == [True, False, False, True]
    assert [one["problem"] for one in found if one["problem"]] == [
        "the execution is PENDING: it has not ended",
        "no task has an execution with this id",
    ]
    assert (await client.get("/v1/task-dlq")).json["dead_letters"] == []


async def test_under_one_replay_each_is_sent_again_once(client: Client, crank: Crank):
    await made(client, once())
    first = await end(crank, Outcome.FAILED)
    (one,) = await results(client, ids=[first.execution_id], replay_id="r-1")
    (same,) = await results(client, ids=[first.execution_id], replay_id="r-1")
    assert (same["resent_as"], same["there_already"]) == (one["resent_as"], True)
    (another,) = await results(client, ids=[first.execution_id], replay_id="r-2")
    assert another["there_already"] is False


async def test_replay_does_not_resend_its_own_executions(client: Client, crank: Crank):
    await made(client, once())
    first = await end(crank, Outcome.FAILED)
    (one,) = await results(client, ids=[first.execution_id], replay_id="r-1")
    failed_again = await end(crank, Outcome.FAILED)
    assert failed_again.execution_id == one["resent_as"]
    (left,) = await results(client, ids=[one["resent_as"]], replay_id="r-1")
    assert left == one | {"id": one["resent_as"], "there_already": True}
    (again,) = await results(client, ids=[one["resent_as"]], replay_id="r-2")
    assert again["resent_as"] not in (None, one["resent_as"])


async def test_many_of_one_ordered_task_are_sent_again_one_after_the_other(client: Client, crank: Crank):
    until = "2030-01-01T12:03:30Z"
    _, dispatches = await minutes(client, crank, *[Outcome.SUCCEEDED] * 3, ordered=True, end_date=until)
    await results(client, ids=[each.execution_id for each in reversed(dispatches)])
    sent = []
    while (due := (await crank.fire()).dispatches) and len(sent) < 3:
        (dispatch,) = due
        sent.append(dispatch.nominal_ms)
        await crank.settle(report(dispatch))
    assert sent == [each.nominal_ms for each in dispatches]


@pytest.mark.parametrize(
    ("fields", "pointer"),
    [
        ({"ids": []}, "/ids"),
        ({"ids": ["x"] * 501}, "/ids"),
        ({"ids": ["x"], "replay_id": ""}, "/replay_id"),
        ({"ids": ["x"], "replay_id": "x" * 41}, "/replay_id"),
        ({}, "/ids"),
    ],
)
async def test_a_request_that_cannot_be_is_refused(client: Client, fields: dict[str, Any], pointer: str):
    response = await ask(client, "POST", RESEND, fields)
    assert (response.status, response.flaw["pointer"]) == (422, pointer)


async def test_a_repeated_request_is_answered_as_before(client: Client, crank: Crank):
    await made(client, once())
    first = await end(crank, Outcome.FAILED)
    found = await results(client, "k", ids=[first.execution_id])
    assert await results(client, "k", ids=[first.execution_id]) == found
    assert found[0]["there_already"] is False


async def test_sending_many_of_one_task_again_is_written_down_once(client: Client, crank: Crank):
    path, dispatches = await minutes(client, crank, Outcome.SUCCEEDED, Outcome.SUCCEEDED)
    await results(client, ids=[each.execution_id for each in dispatches])
    entries = (await client.get(f"/v1/audit?target={path.rpartition('/')[2]}")).json["entries"]
    (entry,) = [each for each in entries if each["action"] == "execution.resend"]
    assert entry["detail"] == {"executions": 2}
