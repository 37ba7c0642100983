"""Scopes: the limits of a tenant's admin, and the view of an operator on other tenants."""

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from msgspec import inspect

from noonday.api.app import ROUTES
from noonday.api.redaction import REDACTED_FIELDS
from noonday.api.routing import Route
from noonday.intake.visits import OPERATOR_READ
from noonday.model.caller import ALL_SCOPES, SCOPES
from tests.api.asgi import Client, Response
from tests.api.engine import Backstage

SOME_ID = "0190c1e2-0000-7000-8000-000000000000"
PROTECTED = [route for route in ROUTES if route.path.startswith("/v1")]
VALUES = {
    "{name}": "demo",
    "{pool}": "demo",
    "{tenantId}": "acme",
    "{preference_id}": "ops",
    "{secret_id}": "a",
    "{user_id}": "u-17",
    "{endpoint_id}": "ep_aHR0cHM6Ly9hcGkuZXhhbXBsZS5jb206NDQz",
}
JOB = {
    "type": "ONE_TIME",
    "runAt": "2031-01-01T00:00:00Z",
    "target": {"pool": "demo", "handler": "h"},
    "payload": "pst",
}
TASK = {
    "type": "ONE_TIME",
    "scheduled_at": "2031-01-01T00:00:00Z",
    "payload": {"webhook_url": "https://example.com/hook?key=pst", "headers": {"X-Own": "pst"}, "body": "pst"},
}


def label(route: Route) -> str:
    return f"{route.method} {route.path}"


def url_of(route: Route) -> str:
    path = route.path
    for name, value in VALUES.items():
        path = path.replace(name, value)
    for name in ("{jobId}", "{executionId}", "{task_id}", "{execution_id}", "{id}", "{alert_id}", "{notification_id}"):
        path = path.replace(name, SOME_ID)
    return path


async def audit_of(client: Client, tenant: str) -> list[dict[str, Any]]:
    response = await client.get("/v1/audit", authorization=f"Bearer admin@{tenant}")
    assert response.status == 200
    return list(response.json["entries"])


def as_operator(client: Client, tenant: str) -> Client:
    return Client(client.app, {"authorization": "Bearer operator@ops", "noonday-tenant": tenant})


def includes(held: str, scope: str) -> bool:
    if "worker" in (held, scope):
        return held == scope
    return SCOPES.index(held) >= SCOPES.index(scope)


@pytest.mark.slow
@pytest.mark.parametrize("route", PROTECTED, ids=label)
async def test_every_route_accepts_its_scope_and_no_lower_one(client: Client, route: Route) -> None:
    assert route.scope is not None
    for held in ALL_SCOPES:
        response = await client.call(route.method, url_of(route), {}, authorization=f"Bearer {held}")
        is_enough = includes(held, route.scope)
        assert (response.status != 403) == is_enough, held


@pytest.mark.slow
@pytest.mark.parametrize("route", PROTECTED, ids=label)
async def test_only_operator_reads_another_tenant_and_never_changes_it(client: Client, route: Route) -> None:
    for held in SCOPES:
        headers = {"authorization": f"Bearer {held}@ops", "noonday_tenant": "acme"}
        response = await client.call(route.method, url_of(route), {}, **headers)
        is_allowed = held == "operator" and not route.is_change and not route.is_work
        assert (response.status != 403) == is_allowed, (held, response.body)


@pytest.mark.parametrize(
    "path", ["/v1/pause", "/v1/resume", "/v1/pools/demo/pause", "/v1/tenants/globex/pause", "/v1/tenants/globex/resume"]
)
async def test_admin_cannot_pause_another_tenant(client: Client, path: str) -> None:
    response = await client.post(path, authorization="Bearer admin@acme")
    assert (response.status, response.json["required"]) == (403, "operator")
    assert (await client.get("/v1/pauses")).json == {"pauses": []}


async def test_admin_pauses_and_resumes_own_tenant(client: Client) -> None:
    headers = {"authorization": "Bearer admin@acme"}
    assert (await client.post("/v1/tenants/acme/pause", **headers)).status == 200
    assert (await client.post("/v1/tenants/acme/resume", **headers)).status == 200
    assert [entry["action"] for entry in await audit_of(client, "acme")][:2] == ["tenant.resume", "tenant.pause"]


@pytest.mark.parametrize("method_and_path", ["PUT /v1/pools/demo", "PUT /v1/tenants/acme"])
async def test_admin_cannot_put_pools_or_tenants(client: Client, method_and_path: str) -> None:
    method, _, path = method_and_path.partition(" ")
    response = await client.call(method, path, {}, authorization="Bearer admin@acme")
    assert (response.status, response.json["required"]) == (403, "operator")


@pytest.mark.parametrize("path", ["/v1/tenants/globex", "/v1/tenants/globex/usage"])
async def test_admin_cannot_read_another_tenant(client: Client, path: str) -> None:
    response = await client.get(path, authorization="Bearer admin@acme")
    assert (response.status, response.json["required"]) == (403, "operator")


async def test_operator_change_is_audited_in_the_affected_tenant(client: Client) -> None:
    operator = {"authorization": "Bearer operator@ops"}
    await client.post("/v1/tenants/acme/pause", **operator)
    await client.put("/v1/tenants/acme", {"weight": 3}, **operator)
    put, pause = (await audit_of(client, "acme"))[:2]
    assert (put["action"], put["detail"]) == ("tenant.put", {"weight": 3, "byTenant": "ops"})
    assert (pause["action"], pause["subject"], pause["detail"]) == ("tenant.pause", "somebody", {"byTenant": "ops"})
    assert await audit_of(client, "globex") == []


async def test_server_wide_change_is_audited_in_every_tenant(client: Client) -> None:
    operator = {"authorization": "Bearer operator@ops"}
    await client.post("/v1/jobs", JOB, authorization="Bearer write@globex")
    await client.post("/v1/pause", **operator)
    await client.post("/v1/pools/demo/pause", **operator)
    await client.put("/v1/pools/demo", {}, **operator)
    for tenant in ("globex", "initech"):
        actions = [entry["action"] for entry in await audit_of(client, tenant)]
        assert actions[:3] == ["pool.put", "pool.pause", "all.pause"]
    assert (await audit_of(client, "globex"))[3]["action"] == "job.create"


async def test_audit_pages_have_tenant_and_server_entries_once(client: Client) -> None:
    for _ in range(3):
        await client.post("/v1/pause", authorization="Bearer operator@ops")
        await client.post("/v1/tenants/acme/pause", authorization="Bearer admin@acme")
    seen, cursor = list[str](), ""
    while cursor is not None:
        url = f"/v1/audit?limit=2{cursor and f'&cursor={cursor}'}"
        page = (await client.get(url, authorization="Bearer admin@acme")).json
        seen += [entry["action"] for entry in page["entries"]]
        cursor = page["next"]
    assert seen == ["tenant.pause", "all.pause"] * 3 + ["pool.put"]


async def test_operator_reads_redacted_jobs_of_another_tenant(client: Client) -> None:
    made = (await client.post("/v1/jobs", JOB, authorization="Bearer write@acme")).json
    visitor = as_operator(client, "acme")
    shown = (await visitor.get(f"/v1/jobs/{made['jobId']}")).json
    (listed,) = (await visitor.get("/v1/jobs")).json["jobs"]
    assert (shown["tenant"], shown["payload"], shown["redacted"]) == ("acme", None, True)
    assert (listed["payload"], listed["redacted"]) == (None, True)
    own = (await client.get(f"/v1/jobs/{made['jobId']}", authorization="Bearer read@acme")).json
    assert own["payload"] == "pst"
    assert "redacted" not in own


async def test_operator_reads_redacted_tasks_of_another_tenant(client: Client) -> None:
    headers = {"authorization": "Bearer write@acme", "idempotency_key": "k"}
    task = await client.post("/v1/tasks", TASK, **headers)
    assert task.status == 201
    visitor = as_operator(client, "acme")
    for path in ("/v1/tasks", f"/v1/tasks/{task.json['id']}", "/v1/task-executions"):
        response = await visitor.get(path)
        assert response.status == 200
        assert b"pst" not in response.body


async def test_operator_read_is_audited_once_a_day(client: Client, backstage: Backstage) -> None:
    visitor = as_operator(client, "acme")
    for path in ("/v1/jobs", "/v1/tasks", "/v1/audit"):
        assert (await visitor.get(path)).status == 200
    elsewhere = Client(backstage.app_of_another_process(), visitor.headers)
    assert (await elsewhere.get("/v1/jobs")).status == 200
    reads = [entry for entry in await audit_of(client, "acme") if entry["action"] == OPERATOR_READ]
    assert [(entry["subject"], entry["target"]) for entry in reads] == [("somebody", "acme")]


async def test_operator_reads_own_tenant_unredacted(client: Client) -> None:
    await client.post("/v1/jobs", JOB, authorization="Bearer write@ops")
    (listed,) = (await as_operator(client, "ops").get("/v1/jobs")).json["jobs"]
    assert listed["payload"] == "pst"
    assert OPERATOR_READ not in [entry["action"] for entry in await audit_of(client, "ops")]


@pytest.mark.parametrize("name", ["", "a/b", "a%00", "x" * 101])
async def test_invalid_tenant_header_is_rejected(client: Client, name: str) -> None:
    response: Response = await as_operator(client, name).get("/v1/jobs")
    assert (response.status, response.code) == (400, "bad-header")


async def test_non_ascii_tenant_header_is_percent_encoded(client: Client) -> None:
    response = await as_operator(client, "M%C3%BCller").get("/v1/jobs")
    assert response.status == 200


async def test_worker_host_and_pid_are_visible_to_operators_only(client: Client, backstage: Backstage) -> None:
    await backstage.add_worker("w1", stuck=("0190c1e2-0000-8000-8000-000000000001",))
    (seen,) = (await client.get("/v1/workers", authorization="Bearer admin@acme")).json["workers"]
    assert (seen["host"], seen["pid"], seen["stuck"]) == (None, None, [])
    (seen,) = (await client.get("/v1/workers")).json["workers"]
    assert (seen["host"], seen["pid"], len(seen["stuck"])) == ("here", 7, 1)


CARRIED = {"payload", "progress", "result", "request", "response", "body", "headers", "webhook_url"}


def test_every_response_with_tenant_data_can_be_redacted() -> None:
    answers = [route.returns for route in PROTECTED if not (route.is_change or route.is_work)]
    for struct in _structs(answers):
        names = {field.name for field in struct.fields}
        hidden = set(REDACTED_FIELDS.get(struct.cls, ()))
        assert names & CARRIED <= hidden, struct.cls.__name__
        assert not hidden or "redacted" in names, struct.cls.__name__


def _structs(types: list[Any]) -> Iterator[inspect.StructType]:
    waiting = list(inspect.multi_type_info(types))
    seen = set[type]()
    while waiting:
        kind = waiting.pop()
        if isinstance(kind, inspect.StructType) and kind.cls not in seen:
            seen.add(kind.cls)
            yield kind
            waiting += [field.type for field in kind.fields]
        waiting += [part for name in ("types", "item_types") for part in getattr(kind, name, ())]
        waiting += [
            part for name in ("type", "item_type") if isinstance(part := getattr(kind, name, None), inspect.Type)
        ]


def test_redacted_fields_exist() -> None:
    for struct, names in REDACTED_FIELDS.items():
        assert {*names, "redacted"} <= {field.name for field in msgspec.structs.fields(struct)}
