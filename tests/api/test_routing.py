from collections.abc import Mapping

import pytest

from noonday.api.app import ROUTES
from noonday.api.limits import ApiLimits
from noonday.api.routing import Route
from tests.api.asgi import Client

SOME_ID = "0190c1e2-0000-7000-8000-000000000000"
PROTECTED = [route for route in ROUTES if route.path.startswith("/v1")]
INCLUDED_SCOPES: Mapping[str, str] = {"write": "read", "admin": "write", "operator": "admin", "worker": "operator"}


def url_of(route: Route) -> str:
    filled = route.path.replace("{jobId}", SOME_ID).replace("{executionId}", SOME_ID)
    return filled.replace("{name}", "demo").replace("{tenantId}", "acme")


def label(route: Route) -> str:
    return f"{route.method} {route.path}"


@pytest.mark.slow
@pytest.mark.parametrize("route", PROTECTED, ids=label)
async def test_every_path_under_v1_needs_a_token(client: Client, route: Route):
    client.headers.clear()
    response = await client.call(route.method, url_of(route), {})
    assert (response.status, response.code) == (401, "unauthorized")
    assert response.headers["www-authenticate"] == 'Bearer realm="noonday"'


@pytest.mark.slow
@pytest.mark.parametrize("route", [route for route in PROTECTED if route.scope != "read"], ids=label)
async def test_a_token_with_too_small_a_scope_is_forbidden(client: Client, route: Route):
    client.headers["authorization"] = f"Bearer {INCLUDED_SCOPES[str(route.scope)]}"
    response = await client.call(route.method, url_of(route), {})
    assert (response.status, response.code) == (403, "forbidden")
    assert response.json["required"] == route.scope
    assert f'error="insufficient_scope", scope="{route.scope}"' in response.headers["www-authenticate"]


ACTIONS = ("pause", "resume")
VERBS = ("start", "heartbeat", "complete", "fail", "snooze")


def test_scope_of_a_change_is_write_or_admin_for_the_tenant_or_operator_for_the_server():
    needs = {label(route): route.scope for route in PROTECTED}
    operator = {"PUT /v1/pools/{name}", "PUT /v1/tenants/{tenantId}"}
    operator |= {f"POST /v1/{what}{action}" for what in ("", "pools/{name}/") for action in ACTIONS}
    admin = {"GET /v1/audit", "POST /v1/webhook-secrets", "DELETE /v1/webhook-secrets/{secret_id}"}
    admin |= {f"POST /v1/tenants/{{tenantId}}/{action}" for action in ACTIONS}
    admin |= {f"{method} /v1/providers/{{name}}" for method in ("PUT", "DELETE")}
    remote = {f"POST /v1/executions/{{executionId}}/{verb}" for verb in VERBS} | {"POST /v1/pools/{pool}/take"}
    previews = {"POST /v1/schedules/preview", "POST /v1/jobs/{jobId}/backfill", "POST /v1/operations/preview"}
    for name, scope in needs.items():
        expected = "read" if name.startswith("GET") or name in previews else "write"
        expected = "admin" if name in admin else "operator" if name in operator else expected
        expected = "worker" if name in remote else expected
        assert scope == expected, name


async def test_invalid_token_and_missing_token_have_different_challenges(client: Client):
    response = await client.get("/v1/jobs", authorization="Bearer forged")
    assert response.headers["www-authenticate"] == 'Bearer realm="noonday", error="invalid_token"'


@pytest.mark.parametrize("path", ["/\ud800", "/v2/jobs", "/v1", "/v1/jobs/", "/v1/jobs/a/b/c", "/favicon.ico"])
async def test_unknown_path_returns_a_problem(client: Client, path: str):
    response = await client.get(path)
    assert (response.status, response.code) == (404, "unknown-route")


@pytest.mark.parametrize("job_id", ["7", "..", "0190c1e2-0000-7000-8000-00000000000", "%00", "\0", "ü", SOME_ID + "\n"])
async def test_id_that_is_not_a_uuid_returns_404(client: Client, job_id: str):
    for method, suffix in (("GET", ""), ("DELETE", ""), ("POST", "/pause"), ("GET", "/executions")):
        response = await client.call(method, f"/v1/jobs/{job_id}{suffix}")
        assert (response.status, response.code) == (404, "not-found")


async def test_an_id_may_be_written_in_capitals(client: Client):
    made = await client.post("/v1/jobs", {"type": "ONE_TIME", "target": {"pool": "demo", "handler": "h"}})
    response = await client.get(f"/v1/jobs/{made.json['jobId'].upper()}")
    assert response.status == 200


@pytest.mark.parametrize("name", ["\0", "-x", "a" * 101, "a b", "demo\n"])
async def test_invalid_pool_name_is_rejected(client: Client, name: str):
    response = await client.put(f"/v1/pools/{name}", {})
    assert (response.status, response.flaw["pointer"]) == (422, "/name")


async def test_unsupported_method_lists_the_allowed_ones(client: Client):
    response = await client.call("POST", f"/v1/jobs/{SOME_ID}", {})
    assert (response.status, response.code) == (405, "method-not-allowed")
    assert response.headers["allow"] == "DELETE, GET, HEAD, OPTIONS, PATCH, PUT"


async def test_options_lists_the_methods_of_a_path(client: Client):
    response = await client.call("OPTIONS", "/v1/jobs")
    assert (response.status, response.body) == (204, b"")
    assert response.headers["allow"] == "GET, HEAD, OPTIONS, POST"


async def test_head_is_get_without_the_body(client: Client):
    got, head = await client.get("/v1/jobs"), await client.call("HEAD", "/v1/jobs")
    assert (head.status, head.body) == (200, b"")
    assert head.headers == got.headers


@pytest.mark.parametrize("media_type", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""])
async def test_a_body_that_is_not_declared_as_json_is_refused(client: Client, media_type: str):
    response = await client.post("/v1/jobs", b"{}", content_type=media_type)
    assert (response.status, response.code) == (415, "unsupported-media-type")
    assert "application/json" in response.json["detail"]


@pytest.mark.parametrize("media_type", ["application/json; charset=utf-8", "Application/JSON"])
async def test_json_may_be_declared_with_parameters_and_in_any_case(client: Client, media_type: str):
    response = await client.post("/v1/dead-letters/retry", b"{}", content_type=media_type)
    assert response.status == 200


@pytest.mark.parametrize("declared", [None, "1048577", "9" * 5000])
async def test_body_over_the_limit_is_rejected_with_advice(client: Client, declared: str | None):
    headers = {} if declared is None else {"content_length": declared}
    response = await client.post("/v1/jobs", b'"%s"' % (b"x" * ApiLimits().body_bytes), **headers)
    assert (response.status, response.code) == (413, "payload-too-large")
    assert "pass a reference" in response.json["detail"]
    assert response.json["limitBytes"] == 1024 * 1024


async def test_an_unknown_query_parameter_is_refused_where_none_is_taken(client: Client):
    response = await client.get("/v1/pools?limit=3")
    assert (response.status, response.flaw["pointer"]) == (422, "/limit")


async def test_a_probe_may_carry_any_query(client: Client):
    assert (await client.get("/healthz?from=loadbalancer")).status == 200
