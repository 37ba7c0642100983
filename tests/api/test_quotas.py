"""The effects of a tenant's settings on its requests."""

from typing import Any

import pytest

from tests.api.asgi import Client
from tests.api.engine import NOON_MS, Backstage


def job(**fields: Any) -> dict[str, Any]:
    return {"type": "DELAYED", "delaySec": 90, "target": {"pool": "demo", "handler": "demo.echo"}, **fields}


def cron(**fields: Any) -> dict[str, Any]:
    return {"type": "CRON", "schedule": "0 0 * * *", "target": {"pool": "demo", "handler": "demo.echo"}, **fields}


async def allow(client: Client, **settings: Any) -> None:
    assert (await client.put("/v1/tenants/acme", settings)).status == 200


async def stored(client: Client) -> int:
    return len((await client.get("/v1/jobs")).json["jobs"])


# maxJobs


async def test_a_job_beyond_the_quota_is_refused_with_when_to_come_back(client: Client):
    await allow(client, maxJobs=1)
    assert (await client.post("/v1/jobs", job())).status == 201
    refused = await client.post("/v1/jobs", job())
    assert (refused.status, refused.code) == (429, "quota-exceeded")
    members = ("limit", "used", "requested", "retryAfterSec", "violated-policies")
    assert [refused.json[name] for name in members] == [1, 1, 1, 90, ["max-jobs"]]
    assert refused.headers["retry-after"] == "90"
    assert refused.headers["ratelimit-policy"] == '"max-jobs";q=1'
    assert refused.headers["ratelimit"] == '"max-jobs";r=0;t=90'
    assert await stored(client) == 1


async def test_create_returns_the_remaining_quota(client: Client):
    await allow(client, maxJobs=10)
    created = await client.post("/v1/jobs", job())
    assert (created.headers["ratelimit-policy"], created.headers["ratelimit"]) == (
        '"max-jobs";q=10',
        '"max-jobs";r=9',
    )
    batch = await client.post("/v1/jobs/batch", {"jobs": [job(), job()]})
    assert batch.headers["ratelimit"] == '"max-jobs";r=7'


async def test_tenant_without_a_quota_gets_no_quota_headers(client: Client):
    await allow(client, weight=2)
    created = await client.post("/v1/jobs", job())
    assert not {"ratelimit", "ratelimit-policy"} & set(created.headers)


async def test_jobs_of_a_batch_above_the_quota_are_problems_at_their_index(client: Client):
    await allow(client, maxJobs=2)
    answer = await client.post("/v1/jobs/batch", {"jobs": [job(), job(timeoutSec=-1), job(), job()]})
    assert answer.status == 200
    first, flawed, second, beyond = answer.json["jobs"]
    assert (first["state"], flawed["status"], second["state"]) == ("ACTIVE", 422, "ACTIVE")
    assert (beyond["status"], beyond["instance"]) == (429, "/v1/jobs/batch#/jobs/3")
    assert (beyond["limit"], beyond["used"], beyond["requested"]) == (2, 0, 3)
    assert answer.headers["ratelimit"] == '"max-jobs";r=0'
    assert await stored(client) == 2


async def test_an_atomic_batch_that_does_not_fit_is_refused_whole(client: Client):
    await allow(client, maxJobs=2)
    refused = await client.post("/v1/jobs/batch?atomic=true", {"jobs": [job()] * 3})
    assert (refused.status, refused.code, refused.json["requested"]) == (429, "quota-exceeded", 3)
    assert refused.headers["ratelimit"] == '"max-jobs";r=2;t=3600'
    assert await stored(client) == 0


async def test_a_job_that_exists_is_updated_however_full_it_is(client: Client):
    await allow(client, maxJobs=1)
    await client.post("/v1/jobs", job(uniqueKey="k"))
    updated = await client.post("/v1/jobs", job(uniqueKey="k", name="other"))
    assert (updated.status, updated.json["version"]) == (201, 2)
    assert (await client.post("/v1/jobs", job(uniqueKey="new"))).status == 429


async def test_a_cancelled_job_makes_room_and_a_paused_one_does_not(client: Client):
    await allow(client, maxJobs=1)
    place = (await client.post("/v1/jobs", cron())).headers["location"]
    await client.post(f"{place}/pause")
    assert (await client.post("/v1/jobs", job())).status == 429
    await client.call("DELETE", place)
    assert (await client.post("/v1/jobs", job())).status == 201


async def test_a_refusal_is_not_kept_under_the_key_of_the_request(client: Client):
    await allow(client, maxJobs=0)
    assert (await client.post("/v1/jobs", job(), idempotency_key="k")).status == 429
    await allow(client, maxJobs=1)
    assert (await client.post("/v1/jobs", job(), idempotency_key="k")).status == 201


async def test_a_quota_of_one_tenant_is_not_anothers(client: Client, backstage: Backstage):
    assert (await client.put("/v1/tenants/globex", {"maxJobs": 0})).status == 200
    assert (await client.post("/v1/jobs", job())).status == 201


# maxPayloadBytes


async def test_a_payload_beyond_the_tenants_limit_is_refused_wherever_it_enters(client: Client):
    await allow(client, maxPayloadBytes=20)
    fits, large = "x" * 18, "x" * 19
    created = await client.post("/v1/jobs", job(payload=fits))
    assert created.status == 201
    for refused in (
        await client.post("/v1/jobs", job(payload=large)),
        await client.put(created.headers["location"], job(payload=large)),
    ):
        assert (refused.status, refused.code) == (413, "payload-too-large")
        assert (refused.json["limit"], refused.json["size"]) == (20, 21)
        assert "the limit of tenant 'acme' (maxPayloadBytes) of 20" in refused.json["detail"]
    (in_batch,) = (await client.post("/v1/jobs/batch", {"jobs": [job(payload=large)]})).json["jobs"]
    assert (in_batch["status"], in_batch["limit"]) == (413, 20)


async def test_a_tenants_limit_cannot_exceed_the_one_of_all(client: Client):
    await allow(client, maxPayloadBytes=1_000_000_000)
    refused = await client.post("/v1/jobs", job(payload="x" * 262_144))
    assert (refused.status, refused.json["limit"]) == (413, 262_144)


# defaultSpreadSec


@pytest.mark.parametrize(
    ("body", "spread"),
    [
        (cron(), 600),
        (cron() | {"type": "INTERVAL", "schedule": None, "everySec": 60}, 600),
        (cron(spreadSec=5), 5),
        (cron(spreadSec=0), 0),
        (job(), None),
    ],
    ids=["cron", "interval", "own spread", "none wanted", "no schedule"],
)
async def test_schedule_without_a_spread_has_the_default_of_its_tenant(
    client: Client, body: dict[str, Any], spread: Any
):
    await allow(client, defaultSpreadSec=600)
    created = await client.post("/v1/jobs", {name: value for name, value in body.items() if value is not None})
    assert created.json["spreadSec"] == spread
    assert (await client.get(created.headers["location"])).json["spreadSec"] == spread


async def test_a_default_spread_moves_the_due_time_and_not_the_nominal_one(client: Client, backstage: Backstage):
    await allow(client, defaultSpreadSec=86_400)
    await client.post("/v1/jobs", cron())
    (entry,) = await backstage.store.firing.walk(range(256), None, 2**60, 10)
    assert entry.nominal_ms == NOON_MS + 12 * 3_600_000
    assert 0 < entry.due_ms - entry.nominal_ms < 86_400_000


async def test_another_default_moves_no_job_until_it_is_replaced(client: Client):
    place = (await client.post("/v1/jobs", cron(uniqueKey="k"))).headers["location"]
    await allow(client, defaultSpreadSec=600)
    again = await client.post("/v1/jobs", cron(uniqueKey="k"))
    assert (again.json["version"], again.json["spreadSec"]) == (1, None)
    replaced = await client.put(place, cron(uniqueKey="k"))
    assert replaced.json["spreadSec"] == 600
    await allow(client, defaultSpreadSec=5)
    kept = await client.post("/v1/jobs", cron(uniqueKey="k"))
    assert (kept.json["version"], kept.json["spreadSec"]) == (2, 600)
    changed = await client.post("/v1/jobs", cron(uniqueKey="k", name="other"))
    assert (changed.json["version"], changed.json["spreadSec"]) == (3, 5)
