import asyncio
from datetime import datetime
from itertools import count
from typing import Any

import msgspec
import pytest

from noonday.intake import edits
from noonday.model.caller import Caller
from noonday.model.change import Change
from noonday.model.claim import FENCED
from noonday.model.errors import SignalsUnavailable
from noonday.model.execution import Outcome
from noonday.model.ids import JobId, TenantId
from noonday.model.job import JobSpec, JobState, JobType, Target
from noonday.model.message import Dispatch
from noonday.model.redaction import REDACTED
from noonday.model.snapshot import Snapshot
from noonday.model.view import TenantSettings
from noonday.tasks.task_service import WITHIN_REACH
from tests.api.asgi import Client, Response
from tests.api.engine import NOON_MS, Backstage
from tests.support.crank import Crank
from tests.support.factories import MINUTE, audit, failure, report

URL = "https://api.example.com/reports"
CALL = {"webhook_url": URL, "method": "POST", "body": {"report_type": "daily"}}
SOON = "2030-01-01T12:01:00Z"
_keys = count(1)


def daily(**fields: Any) -> dict[str, Any]:
    return {"name": "Daily Report", "type": "RECURRING", "payload": CALL, "cron_expression": "0 8 * * *", **fields}


def once(**fields: Any) -> dict[str, Any]:
    return {"type": "ONE_TIME", "payload": CALL, "scheduled_at": SOON, **fields}


async def ask(client: Client, method: str, path: str, body: Any = None, key: str | None = None) -> Response:
    """Send a request with a key of its own by default."""
    return await client.call(method, path, body, idempotency_key=key or f"own-{next(_keys)}")


async def made(client: Client, body: dict[str, Any]) -> str:
    """Create a task, and return its path."""
    response = await ask(client, "POST", "/v1/tasks", body)
    assert response.status == 201, response.json
    return response.headers["location"]


async def patched(client: Client, path: str, **fields: Any) -> Response:
    return await ask(client, "PATCH", path, fields)


async def status_at(client: Client, path: str) -> str:
    return str((await client.get(path)).json["status"])


@pytest.fixture
async def crank(backstage: Backstage) -> Crank:
    crank = Crank(backstage.store)
    await crank.own()
    return crank


async def fire(crank: Crank) -> Dispatch:
    """Fire executions that are due a minute after noon."""
    return await crank.fire_one(at_ms=NOON_MS + MINUTE)


async def end(crank: Crank, outcome: Outcome) -> Dispatch:
    dispatch = await fire(crank)
    await crank.settle(report(dispatch, outcome, failure=failure("status 400", retryable=False)))
    return dispatch


async def halt(backstage: Backstage, path: str) -> None:
    def decide(before: Snapshot) -> Change:
        return edits.halt(before, "the receiver answered 410", NOON_MS, audit())

    await backstage.store.jobs.edit(TenantId("acme"), JobId(path.rpartition("/")[2]), decide)


# Creating


async def test_the_example_of_a_daily_report(client: Client):
    response = await ask(client, "POST", "/v1/tasks", daily(end_date="2030-12-31T00:00:00Z"))
    assert response.status == 201
    assert response.headers["location"] == f"/v1/tasks/{response.json['id']}"
    assert response.json["status"] == "SCHEDULED"
    assert response.json["next_execution"] == "2030-01-02T08:00:00Z"
    assert response.json["payload"] == CALL | {"headers": {}}
    assert "executions" not in response.json


@pytest.mark.parametrize(
    ("fields", "next_execution"),
    [
        (once(), SOON),
        (daily(cron_expression=None, interval="every 15 minutes"), "2030-01-01T12:15:00Z"),
        (daily(cron_expression=None, interval="daily at 08:00", timezone="Asia/Tokyo"), "2030-01-01T23:00:00Z"),
    ],
)
async def test_task_is_read_as_it_was_created(client: Client, fields: dict[str, Any], next_execution: str):
    response = await client.get(await made(client, fields))
    shown = response.json
    assert (response.status, shown["status"], shown["next_execution"]) == (200, "SCHEDULED", next_execution)
    assert {name: shown[name] for name in fields if name != "payload"} == {
        k: v for k, v in fields.items() if k != "payload"
    }
    assert shown["executions"] == []


async def test_a_task_is_a_job_with_the_endpoint_of_its_url(client: Client, backstage: Backstage):
    path = await made(client, daily())
    row = await backstage.store.query_store.find_job(TenantId("acme"), JobId(path.rpartition("/")[2]))
    assert row is not None
    assert row.job.spec.target == Target("webhooks", "webhook.call", "https://api.example.com:443")


async def test_the_first_task_makes_the_pool_and_leaves_one_that_is_there(client: Client):
    await made(client, daily())
    assert (await client.get("/v1/pools/webhooks")).status == 200
    await client.put("/v1/pools/webhooks", {"timeoutSec": 7})
    await made(client, daily())
    assert (await client.get("/v1/pools/webhooks")).json["settings"]["timeoutSec"] == 7


async def test_every_flaw_of_a_task_is_reported_in_task_names(client: Client):
    call = {"webhook_url": "ftp://example.com", "headers": {"Host": "x"}}
    wrong = daily(payload=call, cron_expression="61 * * * *", timeout_seconds=-1, retry={"max_attempts": 0})
    response = await ask(client, "POST", "/v1/tasks", wrong)
    assert (response.status, response.code) == (422, "invalid-input")
    assert {flaw["pointer"] for flaw in response.json["errors"]} == {
        *("/payload/webhook_url", "/payload/headers/Host"),
        *("/cron_expression", "/timeout_seconds", "/retry/max_attempts"),
    }


@pytest.mark.parametrize(
    ("wrong", "pointer"),
    [
        ({"end_date": "2030-01-01T13:00:00Z"}, "/end_date"),
        ({"cron_expression": "0 0 30 2 *"}, "/cron_expression"),
        ({"cron_expression": None, "interval": "evry day"}, "/interval"),
        ({"runAt": SOON}, "/runAt"),
        ({"payload": {}}, "/payload/webhook_url"),
        ({"payload": CALL | {"method": "TRACE"}}, "/payload/method"),
    ],
)
async def test_invalid_task_is_refused_with_its_pointer(client: Client, wrong: dict[str, Any], pointer: str):
    response = await ask(client, "POST", "/v1/tasks", daily(**wrong))
    assert (response.status, response.flaw["pointer"]) == (422, pointer)


async def test_a_payload_that_is_too_large_is_413(client: Client):
    response = await ask(client, "POST", "/v1/tasks", daily(payload=CALL | {"body": "x" * 300_000}))
    assert (response.status, response.code) == (413, "payload-too-large")


async def test_tasks_count_against_the_quota_of_jobs(client: Client, backstage: Backstage):
    settings = TenantSettings(max_jobs=1)
    await backstage.store.settings_store.put_tenant(TenantId("acme"), settings, audit())
    first = await ask(client, "POST", "/v1/tasks", daily())
    assert (first.status, first.headers["ratelimit"]) == (201, '"max-jobs";r=0')
    assert (await ask(client, "POST", "/v1/tasks", daily())).code == "quota-exceeded"


async def test_secret_headers_are_not_shown(client: Client):
    path = await made(client, daily(payload=CALL | {"headers": {"Authorization": "Bearer x", "X-Team": "a"}}))
    shown = {"Authorization": REDACTED, "X-Team": "a"}
    assert (await client.get(path)).json["payload"]["headers"] == shown
    assert (await client.get("/v1/tasks")).json["tasks"][0]["payload"]["headers"] == shown
    assert (await patched(client, path, name="x")).json["payload"]["headers"] == shown


# Idempotency


async def test_tasks_with_the_same_ordering_key_are_called_one_after_the_other(client: Client, crank: Crank):
    paths = [await made(client, once(ordering_key="customer-42", scheduled_at=at)) for at in (SOON, SOON, SOON)]
    assert (await client.get(paths[0])).json["ordering_key"] == "customer-42"
    job = (await client.get(paths[0].replace("tasks", "jobs"))).json
    assert job["concurrency"] == {"key": "customer-42", "limit": 1, "ordered": True}
    crank.now_ms = NOON_MS + MINUTE
    first = await crank.fire_one()
    assert paths[0].endswith(first.job_id)
    await crank.settle(report(first, Outcome.FAILED, failure=failure()))
    assert (await crank.fire()).dispatches == ()
    assert (await patched(client, paths[0], ordering_key=None)).json["ordering_key"] is None
    assert paths[1].endswith((await crank.fire_one()).job_id)


@pytest.mark.parametrize(("method", "body"), [("POST", daily()), ("PATCH", {"status": "PAUSED"}), ("DELETE", None)])
async def test_a_change_without_an_idempotency_key_is_400(client: Client, method: str, body: Any):
    path = await made(client, daily())
    response = await client.call(method, "/v1/tasks" if method == "POST" else path, body)
    assert (response.status, response.code, response.json["header"]) == (400, "bad-header", "Idempotency-Key")
    assert response.json["detail"] == "Idempotency-Key is required: send a value that is unique to this change"
    assert await status_at(client, path) == "SCHEDULED"


async def test_a_repeated_creation_is_answered_with_the_first_task(client: Client):
    first = await ask(client, "POST", "/v1/tasks", daily(), "k1")
    again = await ask(client, "POST", "/v1/tasks", daily(), "k1")
    assert (again.status, again.body) == (first.status, first.body)
    assert again.headers == first.headers | {"idempotency-replay": "true"}
    assert (await client.get("/v1/tasks")).json["pagination"]["total"] == 1


async def test_the_same_key_with_another_task_is_refused_even_if_that_is_flawed(client: Client):
    await ask(client, "POST", "/v1/tasks", daily(), "k1")
    for other in (daily(name="x"), daily(cron_expression="61 * * * *")):
        assert (await ask(client, "POST", "/v1/tasks", other, "k1")).code == "idempotency-key-reused"


@pytest.mark.parametrize("fields", [{"status": "PAUSED"}, {"name": "new"}, {"cron_expression": "0 9 * * *"}])
async def test_a_repeated_change_is_answered_as_the_first_even_after_the_task_was_deleted(
    client: Client, fields: dict[str, Any]
):
    path = await made(client, daily())
    first = await ask(client, "PATCH", path, fields, "k1")
    assert (await ask(client, "DELETE", path)).status == 204
    again = await ask(client, "PATCH", path, fields, "k1")
    assert (first.status, again.status, again.body) == (200, 200, first.body)
    assert again.headers["idempotency-replay"] == "true"


async def test_a_repeated_deletion_is_answered_as_the_first(client: Client):
    path = await made(client, daily())
    first = await ask(client, "DELETE", path, key="k1")
    again = await ask(client, "DELETE", path, key="k1")
    assert (first.status, first.body, "content-type" in first.headers) == (204, b"", False)
    assert (again.status, again.body, again.headers["idempotency-replay"]) == (204, b"", "true")
    assert (await ask(client, "DELETE", path, key="k2")).code == "not-found"


async def test_a_repeated_deletion_is_not_answered_before_workers_know_of_it(
    client: Client, backstage: Backstage, crank: Crank
):
    path = await made(client, once(scheduled_at="2030-01-01T12:00:00Z"))
    dispatch = await crank.fire_one(at_ms=NOON_MS)
    await backstage.signals.begin_generation("webhooks")
    backstage.signals.trouble = SignalsUnavailable("no answer")
    assert (await ask(client, "DELETE", path, key="k1")).code == "signals-unavailable"
    assert (await ask(client, "DELETE", path, key="k1")).code == "signals-unavailable"
    backstage.signals.trouble = None
    assert (await ask(client, "DELETE", path, key="k1")).status == 204
    assert await backstage.signals.pre_start_check("webhooks", [dispatch]) == {dispatch.execution_id: FENCED}


async def test_a_refused_change_is_refused_again_under_its_key(client: Client, crank: Crank):
    path = await made(client, once())
    await end(crank, Outcome.SUCCEEDED)
    first = await ask(client, "PATCH", path, {"status": "PAUSED"}, "k1")
    assert (first.status, first.code) == (409, "conflict")
    assert (await patched(client, path, scheduled_at="2030-01-01T13:00:00Z")).status == 200
    again = await ask(client, "PATCH", path, {"status": "PAUSED"}, "k1")
    assert (again.status, again.body) == (409, first.body)


# Statuses


async def test_a_task_runs_and_completes(client: Client, crank: Crank):
    path = await made(client, once())
    dispatch = await fire(crank)
    assert await status_at(client, path) == "SCHEDULED"
    await crank.settle(report(dispatch, Outcome.STARTED))
    assert await status_at(client, path) == "RUNNING"
    await crank.settle(report(dispatch, Outcome.SUCCEEDED))
    assert await status_at(client, path) == "COMPLETED"


async def test_a_task_that_runs_is_running_however_many_came_after(client: Client, crank: Crank):
    path = await made(client, daily(cron_expression="* * * * *"))
    await crank.settle(report(await fire(crank), Outcome.STARTED))
    for minute in range(2, 13):
        dispatch = await crank.fire_one(at_ms=NOON_MS + minute * MINUTE)
        await crank.settle(report(dispatch))
    assert await status_at(client, path) == "RUNNING"


async def test_a_task_that_was_to_run_once_and_died_has_failed(client: Client, crank: Crank):
    path = await made(client, once())
    dispatch = await end(crank, Outcome.FAILED)
    shown = (await client.get(path)).json
    assert shown["status"] == "FAILED"
    (execution,) = shown["executions"]
    assert (execution["id"], execution["status"]) == (dispatch.execution_id, "FAILED")
    assert execution["error_message"] == "status 400"
    assert [attempt["status"] for attempt in execution["attempts"]] == ["FAILED"]


async def test_task_that_waits_for_a_retry_shows_when(client: Client, crank: Crank):
    path = await made(client, once())
    dispatch = await fire(crank)
    await crank.settle(report(dispatch, Outcome.FAILED, failure=failure("status 500")))
    shown = (await client.get(path)).json
    assert (shown["status"], shown["executions"][0]["status"]) == ("SCHEDULED", "PENDING")
    assert shown["next_execution"] == shown["executions"][0]["next_attempt_at"] is not None
    assert (await client.get("/v1/tasks")).json["tasks"][0]["next_execution"] == shown["next_execution"]


async def test_a_task_that_was_stopped_has_failed_until_it_is_resumed(client: Client, backstage: Backstage):
    path = await made(client, daily())
    await halt(backstage, path)
    assert await status_at(client, path) == "FAILED"
    assert (await patched(client, path, cron_expression="0 9 * * *")).json["status"] == "FAILED"
    assert (await patched(client, path, status="SCHEDULED")).json["status"] == "SCHEDULED"
    assert await status_at(client, path) == "SCHEDULED"
    await halt(backstage, path)
    assert (await ask(client, "DELETE", path)).status == 204


# Changing


async def test_a_task_is_paused_and_resumed(client: Client):
    path = await made(client, daily())
    paused = await patched(client, path, status="PAUSED")
    assert (paused.status, paused.json["status"], paused.json["next_execution"]) == (200, "PAUSED", None)
    assert await status_at(client, path) == "PAUSED"
    resumed = await patched(client, path, status="SCHEDULED")
    assert (resumed.json["status"], resumed.json["next_execution"]) == ("SCHEDULED", "2030-01-02T08:00:00Z")


async def test_a_running_task_that_is_changed_is_running(client: Client, crank: Crank):
    path = await made(client, once())
    await crank.settle(report(await fire(crank), Outcome.STARTED))
    assert (await patched(client, path, name="new")).json["status"] == "RUNNING"


@pytest.mark.parametrize("outcome", [Outcome.SUCCEEDED, Outcome.FAILED])
@pytest.mark.parametrize("status", ["PAUSED", "SCHEDULED"])
async def test_a_task_that_is_over_is_neither_paused_nor_resumed(
    client: Client, crank: Crank, outcome: Outcome, status: str
):
    path = await made(client, once())
    await end(crank, outcome)
    response = await patched(client, path, status=status)
    assert (response.status, response.code) == (409, "conflict")
    assert response.json["state"] == await status_at(client, path)


async def test_a_task_that_is_over_gets_a_new_time(client: Client, crank: Crank):
    path = await made(client, once())
    await end(crank, Outcome.FAILED)
    response = await patched(client, path, scheduled_at="2030-01-01T13:00:00Z")
    assert (response.status, response.json["status"]) == (200, "SCHEDULED")
    assert response.json["next_execution"] == "2030-01-01T13:00:00Z"


@pytest.mark.slow
@pytest.mark.parametrize(
    "fields",
    [
        {"name": "Weekly Report"},
        {"cron_expression": "0 9 * * *"},
        {"interval": "every 2 hours", "cron_expression": None},
        {"timezone": "Asia/Tokyo"},
        {"end_date": "2030-06-01T00:00:00Z"},
        {"timeout_seconds": 5.0},
        {"retry": {"max_attempts": 3, "backoff": "LIST", "delays_ms": [1, 2]}},
        {"payload": {"webhook_url": "https://else.example.com/", "method": "GET", "headers": {}, "body": None}},
    ],
    ids=lambda fields: next(iter(fields)),
)
async def test_patch_changes_the_given_fields_alone(client: Client, fields: dict[str, Any]):
    path = await made(client, daily(name="Daily Report"))
    before = (await client.get(path)).json
    response = await patched(client, path, **fields)
    after = (await client.get(path)).json
    free = {"updated_at", "next_execution"}
    assert response.status == 200
    assert {k: v for k, v in after.items() if k not in free} == {
        k: v for k, v in (before | fields).items() if k not in free
    }
    assert response.json == {name: value for name, value in after.items() if name != "executions"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fields", "pointer"),
    [
        ({}, ""),
        ({"status": "PAUSED", "name": "x"}, "/status"),
        ({"status": "RUNNING"}, "/status"),
        ({"cron_expression": "61 * * * *"}, "/cron_expression"),
        ({"cron_expression": "0 0 30 2 *"}, "/cron_expression"),
        ({"scheduled_at": SOON}, "/scheduled_at"),
        ({"type": "ONE_TIME"}, "/type"),
        ({"payload": {"webhook_url": "nowhere"}}, "/payload/webhook_url"),
        ({"retry": {"max_attempts": 0}}, "/retry/max_attempts"),
    ],
)
async def test_invalid_patch_is_refused_with_its_pointer(client: Client, fields: dict[str, Any], pointer: str):
    path = await made(client, daily())
    before = (await client.get(path)).json
    response = await patched(client, path, **fields)
    assert (response.status, response.flaw.get("pointer")) == (422, pointer)
    assert (await client.get(path)).json == before


async def test_a_secret_that_is_sent_back_as_shown_stays(client: Client, backstage: Backstage):
    path = await made(client, daily(payload=CALL | {"headers": {"Authorization": "Bearer x"}}))
    shown = (await client.get(path)).json["payload"]
    assert (await patched(client, path, payload=shown | {"body": 1})).status == 200
    row = await backstage.store.query_store.find_job(TenantId("acme"), JobId(path.rpartition("/")[2]))
    assert row is not None
    kept = backstage.tasks._presenter.open(row.job.payload, row.job.tenant, row.job.id)
    assert kept["headers"] == {"Authorization": "Bearer x"}
    assert kept["body"] == 1


async def test_a_secret_of_a_task_is_not_shown_of_its_job(client: Client):
    path = await made(client, daily(payload=CALL | {"headers": {"Authorization": "Bearer x", "X-Mine": "y"}}))
    job = await client.get(path.replace("tasks", "jobs"))
    assert job.json["payload"]["headers"] == {"Authorization": "[redacted]", "X-Mine": "y"}


async def test_new_interval_is_due_when_it_has_passed_and_not_at_once(client: Client):
    path = await made(client, daily())
    changed = await patched(client, path, interval="every 2 hours")
    assert datetime.fromisoformat(changed.json["next_execution"]).timestamp() * 1000 == NOON_MS + 2 * 3_600_000 - 1


async def test_changes_that_meet_each_other_are_all_made(client: Client):
    path = await made(client, daily())
    changes = [{"name": "ours"}, {"timeout_seconds": 7.0}, {"cron_expression": "0 9 * * *"}]
    answers = await asyncio.gather(*(patched(client, path, **one) for one in changes))
    assert [answer.status for answer in answers] == [200] * 3
    shown = (await client.get(path)).json
    assert {name: shown[name] for one in changes for name in one} == {k: v for one in changes for k, v in one.items()}


# Unknown tasks


@pytest.mark.parametrize("method", ["GET", "PATCH", "DELETE", "executions"])
async def test_job_that_is_no_task_is_not_found(client: Client, backstage: Backstage, method: str):
    deleted = await made(client, daily())
    await ask(client, "DELETE", deleted)
    job = await client.post("/v1/jobs", {"type": "ONE_TIME", "target": {"pool": "demo", "handler": "h"}})
    another = f"/v1/tasks/{job.json['jobId']}"
    for path in (deleted, another, "/v1/tasks/01900000-0000-7000-8000-000000000001", "/v1/tasks/nonsense"):
        if method == "executions":
            response = await client.get(f"{path}/executions")
        else:
            response = await ask(client, method, path, {"status": "PAUSED"} if method == "PATCH" else None)
        assert (response.status, response.code) == (404, "not-found")
    assert (await client.get(job.headers["location"])).json["state"] == "ACTIVE"


async def test_a_job_that_looks_like_a_task_can_be_read_but_not_changed_as_one(client: Client, backstage: Backstage):
    await made(client, daily())
    target = Target("webhooks", "webhook.call", "https://api.example.com:443")
    job = JobSpec(type=JobType.INTERVAL, every_sec=60, target=target, payload=["not a call"])
    assert (await client.post("/v1/jobs", msgspec.to_builtins(job))).status == 422
    stored = await backstage.services.jobs.create(
        Caller(TenantId("acme"), "older release", frozenset()), job, maker_of="webhooks"
    )
    path = f"/v1/tasks/{stored.job_id}"
    assert (await client.get(path)).json["interval"] == "every 60 seconds"
    assert (await patched(client, path, name="x")).code == "conflict"
    assert (await patched(client, path, status="PAUSED")).json["status"] == "PAUSED"


async def test_a_token_to_read_changes_nothing(client: Client):
    path = await made(client, daily())
    client.headers["authorization"] = "Bearer read"
    assert (await client.get(path)).status == (await client.get("/v1/tasks")).status == 200
    for method, at, body in (("POST", "/v1/tasks", daily()), ("PATCH", path, {"name": "x"}), ("DELETE", path, None)):
        assert (await ask(client, method, at, body)).status == 403


# Lists


async def test_tasks_are_listed_newest_first_in_numbered_pages(client: Client):
    names = [str(number) for number in range(5)]
    for name in names:
        await made(client, daily(name=name))
    await client.post("/v1/jobs", {"type": "ONE_TIME", "target": {"pool": "demo", "handler": "h"}})
    pages = [(await client.get(f"/v1/tasks?limit=2&page={page}")).json for page in (1, 2, 3, 4)]
    assert [[task["name"] for task in page["tasks"]] for page in pages] == [["4", "3"], ["2", "1"], ["0"], []]
    assert pages[0]["pagination"] == {"page": 1, "limit": 2, "total": 5, "pages": 3}
    assert (await client.get("/v1/tasks")).json["pagination"] == {"page": 1, "limit": 20, "total": 5, "pages": 1}
    assert "executions" not in pages[0]["tasks"][0]


async def test_tasks_are_listed_by_status(client: Client, crank: Crank, backstage: Backstage):
    done, dead = await made(client, once()), await made(client, once())
    outcomes = {done: Outcome.SUCCEEDED, dead: Outcome.FAILED}
    for dispatch in (await crank.fire(at_ms=NOON_MS + MINUTE)).dispatches:
        await crank.settle(report(dispatch, outcomes[f"/v1/tasks/{dispatch.job_id}"], failure=failure(retryable=False)))
    running = await made(client, once())
    await crank.settle(report(await fire(crank), Outcome.STARTED))
    scheduled, paused, halted = [await made(client, daily()) for _ in range(3)]
    await patched(client, paused, status="PAUSED")
    await halt(backstage, halted)
    await ask(client, "DELETE", await made(client, daily()))
    expected = {
        "SCHEDULED": [scheduled],
        "RUNNING": [running],
        "PAUSED": [paused],
        "COMPLETED": [done],
        "FAILED": [halted, dead],
    }
    for status, paths in expected.items():
        page = (await client.get(f"/v1/tasks?status={status}")).json
        assert [(f"/v1/tasks/{task['id']}", task["status"]) for task in page["tasks"]] == [(p, status) for p in paths]
        assert page["pagination"]["total"] == len(paths)
    assert (await client.get("/v1/tasks")).json["pagination"]["total"] == 6


@pytest.mark.parametrize(
    ("query", "pointer"),
    [
        ("status=DELETED", "/status"),
        ("page=0", "/page"),
        ("limit=501", "/limit"),
        (f"page={WITHIN_REACH // 500 + 1}&limit=500", "/page"),
        ("cursor=x", "/cursor"),
    ],
)
async def test_a_page_that_cannot_be_is_refused(client: Client, query: str, pointer: str):
    response = await client.get(f"/v1/tasks?{query}")
    assert (response.status, response.flaw["pointer"]) == (422, pointer)


async def test_the_last_page_within_reach_is_answered(client: Client):
    assert (await client.get(f"/v1/tasks?page={WITHIN_REACH // 500}&limit=500")).status == 200


async def test_executions_are_listed_newest_first_and_by_status(client: Client, crank: Crank):
    path = await made(client, daily(cron_expression="* * * * *"))
    ids = []
    for minute, outcome in enumerate([Outcome.SUCCEEDED, Outcome.FAILED, Outcome.SUCCEEDED, Outcome.STARTED], 1):
        dispatch = await crank.fire_one(at_ms=NOON_MS + minute * MINUTE)
        await crank.settle(report(dispatch, outcome, failure=failure(retryable=False)))
        ids.insert(0, dispatch.execution_id)

    async def listed(query: str) -> list[tuple[str, str]]:
        found = (await client.get(f"{path}/executions{query}")).json["executions"]
        return [(execution["id"], execution["status"]) for execution in found]

    assert [id_ for id_, _ in await listed("")] == ids
    assert await listed("?limit=1") == [(ids[0], "RUNNING")]
    assert await listed("?status=FAILED&limit=10") == [(ids[2], "FAILED")]
    assert await listed("?status=COMPLETED") == [(ids[1], "COMPLETED"), (ids[3], "COMPLETED")]
    assert await listed("?status=PENDING") == []
    assert [execution["id"] for execution in (await client.get(path)).json["executions"]] == ids


async def test_a_task_is_shown_with_its_latest_ten_executions(client: Client, crank: Crank):
    path = await made(client, daily(cron_expression="* * * * *"))
    for minute in range(1, 13):
        await crank.fire(at_ms=NOON_MS + minute * MINUTE)
    assert len((await client.get(path)).json["executions"]) == 10
    assert len((await client.get(f"{path}/executions")).json["executions"]) == 10
    assert len((await client.get(f"{path}/executions?limit=12")).json["executions"]) == 12


async def test_deleting_a_task_cancels_its_job(client: Client, backstage: Backstage):
    path = await made(client, daily())
    await ask(client, "DELETE", path)
    row = await backstage.store.query_store.find_job(TenantId("acme"), JobId(path.rpartition("/")[2]))
    assert row is not None
    assert row.job.state is JobState.CANCELLED
