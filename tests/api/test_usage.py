from typing import Any

import pytest

from noonday.model.execution import Outcome
from noonday.model.ids import TenantId
from tests.api.asgi import Client
from tests.api.engine import NOON_MS, Backstage
from tests.support.crank import Crank
from tests.support.factories import DAY, job, report

ACME, OTHER = TenantId("acme"), TenantId("other")


@pytest.fixture
async def crank(backstage: Backstage) -> Crank:
    crank = Crank(backstage.store)  # type: ignore[arg-type]
    crank.now_ms = NOON_MS
    await crank.own()
    return crank


async def run(crank: Crank, days_ago: int, outcome: Outcome = Outcome.SUCCEEDED, tenant: TenantId = ACME) -> None:
    """One run of a quarter of a second that ended on a day."""
    await crank.add(job(tenant=tenant, now_ms=NOON_MS))
    dispatch = await crank.fire_one()
    at_ms = NOON_MS - days_ago * DAY
    fields = {"started_ms": at_ms, "ended_ms": at_ms + 250, "tenant": tenant, "payload_bytes": 100}
    await crank.settle(report(dispatch, outcome, **fields))


async def test_usage_is_reported_by_day_and_in_total(client: Client, crank: Crank):
    await run(crank, 0)
    await run(crank, 0, Outcome.CANCELLED)
    await run(crank, 29)
    await run(crank, 30)
    answer = (await client.get("/v1/tenants/acme/usage")).json
    assert answer == {
        "tenant": "acme",
        "from": "2029-12-03",
        "to": "2030-01-01",
        "days": [
            {"day": "2029-12-03", "runs": 1, "succeeded": 1, "failed": 0, "runSeconds": 0.25, "payloadBytes": 100},
            {"day": "2030-01-01", "runs": 2, "succeeded": 1, "failed": 0, "runSeconds": 0.5, "payloadBytes": 200},
        ],
        "total": {"runs": 3, "succeeded": 2, "failed": 0, "runSeconds": 0.75, "payloadBytes": 300},
    }


@pytest.mark.parametrize(
    ("query", "span", "runs"),
    [
        ("from=2029-12-31&to=2029-12-31", ("2029-12-31", "2029-12-31"), 1),
        ("from=2029-12-31", ("2029-12-31", "2030-01-01"), 2),
        ("to=2029-12-31", ("2029-12-02", "2029-12-31"), 1),
        ("from=2031-01-01", ("2031-01-01", "2031-01-01"), 0),
    ],
)
async def test_both_days_are_part_of_it(client: Client, crank: Crank, query: str, span: Any, runs: int):
    await run(crank, 0)
    await run(crank, 1)
    answer = (await client.get(f"/v1/tenants/acme/usage?{query}")).json
    assert (answer["from"], answer["to"]) == span
    assert answer["total"]["runs"] == runs


@pytest.mark.parametrize("day", ["2029-1-1", "yesterday", "2029-02-30", "2029-01-01T00:00:00Z", ""])
async def test_invalid_day_is_refused_with_the_format(client: Client, day: str):
    response = await client.get(f"/v1/tenants/acme/usage?from={day}")
    assert (response.status, response.code) == (422, "invalid-input")
    (flaw,) = response.json["errors"]
    assert (flaw["pointer"], flaw["value"]) == ("/from", day)
    assert "YYYY-MM-DD" in flaw["detail"]


@pytest.mark.parametrize("query", ["from=2029-12-31&to=2029-12-30", "to=0001-01-01", "from=9999-12-31"])
async def test_days_that_cannot_be_are_refused(client: Client, query: str):
    response = await client.get(f"/v1/tenants/acme/usage?{query}")
    assert (response.status, response.code) == (422, "invalid-input")


async def test_a_tenant_reads_its_own_usage_and_an_admin_everybodys(client: Client, crank: Crank):
    await run(crank, 0, tenant=OTHER)
    assert (await client.get("/v1/tenants/other/usage")).json["total"]["runs"] == 1
    client.headers["authorization"] = "Bearer read"
    assert (await client.get("/v1/tenants/acme/usage")).json["total"]["runs"] == 0
    response = await client.get("/v1/tenants/other/usage")
    assert (response.status, response.json["required"]) == (403, "operator")
