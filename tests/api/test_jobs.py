from datetime import UTC, datetime, timedelta
from typing import Any, get_args

import pytest

from noonday.api.executions import ExecutionStateName
from noonday.model.audit import AuditEntry
from noonday.model.execution import FINAL, OPEN
from noonday.model.ids import TenantId
from noonday.model.view import PoolSettings
from tests.api.asgi import Client, Response
from tests.api.engine import Backstage
from tests.support.crank import Crank
from tests.support.factories import report

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def job(**fields: Any) -> dict[str, Any]:
    return {"type": "ONE_TIME", "target": {"pool": "demo", "handler": "demo.echo"}, **fields}


async def created(client: Client, **fields: Any) -> Response:
    response = await client.post("/v1/jobs", job(**fields))
    assert response.status == 201
    return response


async def stored(client: Client) -> int:
    return len((await client.get("/v1/jobs")).json["jobs"])


async def test_created_job_is_answered_with_its_location_and_version(client: Client):
    response = await client.post("/v1/jobs", job(name="hello", payload={"n": 1}))
    assert response.status == 201
    assert response.headers["content-type"] == "application/json"
    assert response.headers["location"] == f"/v1/jobs/{response.json['jobId']}"
    assert response.headers["etag"] == '"1"'
    assert (response.json["name"], response.json["payload"]) == ("hello", {"n": 1})
    assert response.json["createdAt"] == "2030-01-01T12:00:00Z"


async def test_a_job_is_read_at_its_location(client: Client):
    made = await created(client, name="hello")
    response = await client.get(made.headers["location"])
    assert (response.status, response.json["name"], response.headers["etag"]) == (200, "hello", '"1"')


async def test_every_flaw_of_a_job_is_reported_with_its_pointer(client: Client):
    response = await client.post("/v1/jobs", job(type="CRON", schedule="61 * * * *", timeoutSec=-1))
    assert (response.status, response.code) == (422, "invalid-input")
    assert {flaw["pointer"] for flaw in response.json["errors"]} == {"/schedule", "/timeoutSec"}


async def test_an_unknown_pool_is_answered_with_the_nearest_name(client: Client):
    response = await client.post("/v1/jobs", job(target={"pool": "dmeo", "handler": "h"}))
    assert (response.status, response.flaw["pointer"], response.flaw["nearest"]) == (422, "/target/pool", "demo")


async def test_payload_over_256_kb_is_413_and_suggests_a_reference(client: Client):
    response = await client.post("/v1/jobs", job(payload="x" * 300_000))
    assert (response.status, response.code) == (413, "payload-too-large")
    assert "pass a reference" in response.json["detail"]


@pytest.mark.parametrize("text", ["\0", "ü", "\ufffe", "🌞"])
async def test_any_character_in_a_payload_comes_back_as_it_was(client: Client, text: str):
    made = await created(client, payload={text: text})
    assert (await client.get(made.headers["location"])).json["payload"] == {text: text}


async def test_a_repeated_request_gets_the_first_answer_again(client: Client):
    first = await client.post("/v1/jobs", job(), idempotency_key='"k1"')
    again = await client.post("/v1/jobs", job(), idempotency_key="k1")
    assert (again.status, again.body) == (first.status, first.body)
    assert again.headers == first.headers | {"idempotency-replay": "true"}
    assert await stored(client) == 1


async def test_a_repeated_trigger_points_to_the_first_execution(client: Client):
    path = (await created(client)).headers["location"]
    first = await client.post(f"{path}/trigger", idempotency_key="k1")
    again = await client.post(f"{path}/trigger", idempotency_key="k1")
    assert first.status == 201
    assert first.headers["location"] == f"/v1/executions/{first.json['executionId']}"
    assert again.headers == first.headers | {"idempotency-replay": "true"}


@pytest.mark.parametrize("other", [job(name="other"), job(payload=1)])
async def test_a_key_with_a_different_request_is_refused(client: Client, other: dict[str, Any]):
    await client.post("/v1/jobs", job(), idempotency_key="k1")
    response = await client.post("/v1/jobs", other, idempotency_key="k1")
    assert (response.status, response.code) == (422, "idempotency-key-reused")


async def test_a_key_belongs_to_one_method_path_and_query(client: Client):
    batch = {"jobs": [job(), job()]}
    await client.post("/v1/jobs/batch", batch, idempotency_key="k1")
    response = await client.post("/v1/jobs/batch?atomic=true", batch, idempotency_key="k1")
    assert response.code == "idempotency-key-reused"


async def test_an_ill_formed_key_is_400(client: Client):
    response = await client.post("/v1/jobs", job(), idempotency_key="k" * 256)
    assert (response.status, response.code) == (400, "bad-header")


@pytest.mark.parametrize("if_match", [None, '"1"', "*"])
async def test_a_job_is_replaced_if_its_version_matches(client: Client, if_match: str | None):
    path = (await created(client)).headers["location"]
    headers = {} if if_match is None else {"if_match": if_match}
    response = await client.put(path, job(name="new"), **headers)
    assert (response.status, response.json["name"], response.headers["etag"]) == (200, "new", '"2"')


async def test_a_job_that_changed_meanwhile_is_not_replaced(client: Client):
    path = (await created(client)).headers["location"]
    response = await client.put(path, job(), if_match='"7"')
    assert (response.status, response.code, response.json["version"]) == (412, "version-mismatch", 1)


async def test_a_deleted_job_is_answered_as_cancelled(client: Client):
    path = (await created(client)).headers["location"]
    response = await client.call("DELETE", path)
    assert (response.status, response.json["state"]) == (200, "CANCELLED")


async def test_a_job_is_paused_and_resumed(client: Client):
    path = (await created(client, type="INTERVAL", everySec=60)).headers["location"]
    states = [(await client.post(f"{path}/{verb}")).json["state"] for verb in ("pause", "resume")]
    assert states == ["PAUSED", "ACTIVE"]


async def test_a_change_that_the_state_forbids_is_a_conflict(client: Client):
    path = (await created(client)).headers["location"]
    await client.call("DELETE", path)
    response = await client.post(f"{path}/trigger")
    assert (response.status, response.code) == (409, "conflict")


async def test_a_cancelled_execution_is_202(client: Client):
    path = (await created(client)).headers["location"]
    execution = (await client.post(f"{path}/trigger")).headers["location"]
    response = await client.post(f"{execution}/cancel")
    assert (response.status, response.json["state"]) == (202, "CANCELLED")


async def test_an_execution_has_a_trace_of_its_own_named_after_it(client: Client):
    made = await client.post("/v1/jobs", job())
    execution = await client.post(f"{made.headers['location']}/trigger")
    shown = await client.get(execution.headers["location"])
    assert shown.json["traceId"] == shown.json["executionId"].replace("-", "")


@pytest.mark.parametrize(
    "trace", ["", "nonsense", TRACE.upper(), TRACE.replace("4bf92f3577b34da6a3ce929d0e0e4736", "0" * 32)]
)
async def test_an_ill_formed_trace_is_ignored(client: Client, trace: str):
    assert (await client.post("/v1/jobs", job(), traceparent=trace)).status == 201


@pytest.mark.parametrize(
    "query",
    [
        "state=PAUSED",
        "pool=other",
        "handler=h",
        "type=CRON",
        "tag=t",
        "name=n",
        "uniqueKey=u",
        "type=CRON&tag=t&limit=9",
    ],
)
async def test_jobs_are_filtered(client: Client, query: str):
    await client.put("/v1/pools/other", {})
    await created(client)
    wanted = {"schedule": "0 3 * * *", "tags": ["t"], "name": "n", "uniqueKey": "u"}
    made = await created(client, type="CRON", target={"pool": "other", "handler": "h"}, **wanted)
    await client.post(f"{made.headers['location']}/pause")
    found = (await client.get(f"/v1/jobs?{query}")).json["jobs"]
    assert [view["jobId"] for view in found] == [made.json["jobId"]]


async def test_a_list_goes_on_where_the_page_before_ended(client: Client):
    made = [(await created(client)).json["jobId"] for _ in range(5)]
    seen, cursor = [], ""
    while cursor is not None:
        page = (await client.get(f"/v1/jobs?limit=2{cursor and f'&cursor={cursor}'}")).json
        seen += [view["jobId"] for view in page["jobs"]]
        cursor = page["next"]
    assert sorted(seen) == sorted(made)


@pytest.mark.parametrize(
    ("query", "first", "last"),
    [
        ("", NOON + timedelta(hours=1), NOON + timedelta(days=1)),
        ("from=2030-02-01T00:00:00Z", datetime(2030, 2, 1, tzinfo=UTC), datetime(2030, 2, 2, tzinfo=UTC)),
        (
            "from=2030-01-05T01:00:00%2B01:00&to=2030-01-05T02:30:00Z",
            datetime(2030, 1, 5, tzinfo=UTC),
            datetime(2030, 1, 5, 2, tzinfo=UTC),
        ),
    ],
)
async def test_occurrences_are_those_of_a_day_around_by_default(
    client: Client, query: str, first: datetime, last: datetime
):
    path = (await created(client, type="INTERVAL", everySec=3600)).headers["location"]
    response = await client.get(f"{path}/occurrences?{query}")
    times = [datetime.fromisoformat(each["scheduledAt"]) for each in response.json["occurrences"]]
    assert (times[0], times[-1]) == (first, last)


async def test_occurrences_up_to_a_past_instant_are_those_of_the_day_before_it(client: Client):
    path = (await created(client, type="INTERVAL", everySec=3600)).headers["location"]
    response = await client.get(f"{path}/occurrences?to=2020-01-01T00:00:00Z")
    assert (response.status, response.json["occurrences"]) == (200, [])


@pytest.mark.parametrize(
    ("query", "pointer"),
    [
        ("from=2030-01-02T00:00:00Z&to=2030-01-01T00:00:00Z", "/to"),
        ("from=0001-01-01T00:00:00Z", "/from"),
        ("to=9999-12-31T23:59:59-23:59", "/to"),
        ("from=2030-01-01", "/from"),
        ("from=1893499200", "/from"),
    ],
)
async def test_a_span_that_cannot_be_is_refused(client: Client, query: str, pointer: str):
    path = (await created(client)).headers["location"]
    response = await client.get(f"{path}/occurrences?{query}")
    assert (response.status, response.flaw["pointer"]) == (422, pointer)


SPAN = {"from": "2029-01-01T00:00:00Z", "to": "2029-01-01T02:00:00Z"}


async def test_a_backfill_without_an_id_is_named_after_its_range_and_made_once(client: Client):
    path = (await created(client, type="INTERVAL", everySec=3600)).headers["location"]
    made = [(await client.post(f"{path}/backfill", SPAN)).json for _ in range(2)]
    assert [(view["backfillId"], view["created"]) for view in made] == [
        ("1861920000000-1861927200000", 3),
        ("1861920000000-1861927200000", 0),
    ]


async def test_previewing_a_backfill_needs_only_read(client: Client):
    path = (await created(client, type="INTERVAL", everySec=3600)).headers["location"]
    client.headers["authorization"] = "Bearer read"
    preview = await client.post(f"{path}/backfill", SPAN | {"preview": True})
    real = await client.post(f"{path}/backfill", SPAN)
    assert (preview.status, preview.json["total"], real.status) == (200, 3, 403)


async def test_a_preview_shows_times_and_makes_no_job(client: Client):
    wanted = {"schedule": "30 2 * * *", "timezone": "Europe/Berlin", "from": "2030-01-01T00:00:00Z", "count": 2}
    response = await client.post("/v1/schedules/preview", wanted)
    assert [time["utc"] for time in response.json["times"]] == ["2030-01-01T01:30:00Z", "2030-01-02T01:30:00Z"]
    assert await stored(client) == 0


@pytest.mark.parametrize(
    ("wanted", "pointer"),
    [
        ({"schedule": "0 3 * * *", "everySec": 5}, "/everySec"),
        ({"type": "INTERVAL", "everySec": 5, "timezone": "UTC"}, "/timezone"),
        ({"type": "INTERVAL", "everySec": 5, "dst": {"gap": "SKIP"}}, "/dst"),
        ({"type": "ONE_TIME"}, "/type"),
        ({}, "/schedule"),
        ({"schedule": "0 3 * * *", "from": "0001-01-01T00:00:00Z"}, "/from"),
        ({"schedule": "0 3 * * *", "count": 1001}, "/count"),
    ],
)
async def test_preview_takes_the_fields_of_its_type(client: Client, wanted: dict[str, Any], pointer: str):
    response = await client.post("/v1/schedules/preview", wanted)
    assert (response.status, response.flaw["pointer"]) == (422, pointer)


async def test_a_pool_is_made_by_putting_it(client: Client):
    response = await client.put("/v1/pools/batch-etl", {"timeoutSec": 60})
    assert (response.status, response.json["settings"]) == (200, {"timeoutSec": 60.0})
    names = [pool["name"] for pool in (await client.get("/v1/pools")).json["pools"]]
    assert sorted(names) == ["batch-etl", "demo"]
    assert (await client.get("/v1/pools/batch-etl")).json["name"] == "batch-etl"


async def test_a_tenant_is_shown_as_it_was_put(client: Client):
    await client.put("/v1/tenants/acme", {"weight": 3})
    assert (await client.get("/v1/tenants/acme")).json["settings"] == {"weight": 3}


async def test_another_tenants_settings_need_admin(client: Client):
    client.headers["authorization"] = "Bearer read"
    assert (await client.get("/v1/tenants/acme")).status == 200
    assert (await client.get("/v1/tenants/other")).status == 403


async def test_audit_log_names_the_subject_and_the_action(client: Client):
    made = await created(client)
    (entry,) = (await client.get(f"/v1/audit?target={made.json['jobId']}")).json["entries"]
    assert (entry["subject"], entry["action"]) == ("somebody", "job.create")


def test_executions_are_filtered_by_the_states_they_rest_in():
    assert set(get_args(ExecutionStateName)) == {state.name for state in OPEN | FINAL}


# Unique keys


async def run_what_is_due(backstage: Backstage) -> None:
    crank = Crank(backstage.store)
    crank.now_ms = round(NOON.timestamp() * 1000)
    await crank.own()
    await crank.settle(*[report(dispatch) for dispatch in (await crank.fire()).dispatches])


async def test_unique_key_of_a_completed_job_is_200_with_the_reason(client: Client, backstage: Backstage):
    wanted = {"uniqueKey": "u", "runAt": "2030-01-01T12:00:00Z"}
    first = await created(client, **wanted)
    await run_what_is_due(backstage)
    again = await client.post("/v1/jobs", job(**wanted), idempotency_key="k")
    assert (again.status, again.json["jobId"], again.json["state"]) == (200, first.json["jobId"], "COMPLETED")
    assert "COMPLETED" in again.json["warnings"][-1]
    replayed = await client.post("/v1/jobs", job(**wanted), idempotency_key="k")
    assert (replayed.status, replayed.json) == (200, again.json)


async def test_a_unique_key_of_a_job_that_fires_is_201(client: Client):
    first = await created(client, uniqueKey="u", runAt="2030-01-01T13:00:00Z")
    again = await created(client, uniqueKey="u", runAt="2030-01-01T14:00:00Z")
    assert (again.json["jobId"], again.json["nextFireAt"]) == (first.json["jobId"], "2030-01-01T14:00:00Z")


async def test_a_one_shot_whose_instant_has_fired_is_409(client: Client, backstage: Backstage):
    wanted = {"uniqueKey": "u", "runAt": "2030-01-01T12:00:00Z"}
    await created(client, **wanted)
    await run_what_is_due(backstage)
    refused = await client.post("/v1/jobs", job(**wanted, payload={"n": 2}))
    assert (refused.status, refused.code) == (409, "conflict")
    assert "set a later runAt" in refused.json["detail"]
    batch = await client.post("/v1/jobs/batch", {"jobs": [job(name="beside"), job(**wanted, payload={"n": 2})]})
    assert [each.get("status", "stored") for each in batch.json["jobs"]] == ["stored", 409]
    whole = await client.post("/v1/jobs/batch?atomic=true", {"jobs": [job(), job(**wanted, payload={"n": 2})]})
    assert whole.status == 409
    assert await stored(client) == 2


async def test_a_paused_job_is_updated_with_200(client: Client):
    first = await created(client, uniqueKey="u", type="INTERVAL", everySec=60)
    await client.post(f"{first.headers['location']}/pause", None)
    again = await client.post("/v1/jobs", job(uniqueKey="u", type="INTERVAL", everySec=30))
    assert (again.status, again.json["state"], again.json["everySec"]) == (200, "PAUSED", 30)
    assert "PAUSED" in again.json["warnings"][-1]


async def test_unknown_pool_suggests_no_pool_that_takes_no_jobs(client: Client, backstage: Backstage):
    audit = AuditEntry(TenantId("acme"), 0, "somebody", "pool.put", "notices")
    await backstage.store.settings_store.put_pool("notices", PoolSettings(), audit)
    answer = await client.post("/v1/jobs", job(target={"pool": "notice", "handler": "h"}))
    assert answer.status == 422
    (flaw,) = answer.json["errors"]
    assert not {"notices", "webhooks"} & {*flaw["allowed"], flaw.get("nearest")}
