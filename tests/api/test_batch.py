from typing import Any

import pytest

from noonday.api.limits import ApiLimits
from tests.api.asgi import Client


def job(**fields: Any) -> dict[str, Any]:
    return {"type": "ONE_TIME", "target": {"pool": "demo", "handler": "demo.echo"}, **fields}


async def stored(client: Client) -> int:
    return len((await client.get("/v1/jobs")).json["jobs"])


@pytest.fixture
def limits() -> ApiLimits:
    return ApiLimits(batch_jobs=100, batch_bytes=200_000, body_bytes=10_000)


async def test_batch_stores_valid_jobs_and_reports_problems_in_order(client: Client):
    elements = [job(name="a"), job(type="CORN"), job(timeoutSec=-1), 7, job(name="b")]
    response = await client.post("/v1/jobs/batch", {"jobs": elements})
    assert response.status == 200
    first, unread, refused, number, last = response.json["jobs"]
    assert (first["name"], last["name"]) == ("a", "b")
    assert [flaw["pointer"] for flaw in unread["errors"]] == ["/type"]
    assert (unread["status"], unread["instance"]) == (422, "/v1/jobs/batch#/jobs/1")
    assert [flaw["pointer"] for flaw in refused["errors"]] == ["/timeoutSec"]
    assert number["type"] == "https://noonday.dev/problems/invalid-input"
    assert await stored(client) == 2


async def test_malformed_batch_element_does_not_affect_others(client: Client):
    body = b'{"jobs": [{"name": "\xff"}, {"type": "ONE_TIME", "target": {"pool": "demo", "handler": "h"}}]}'
    response = await client.post("/v1/jobs/batch", body)
    broken, good = response.json["jobs"]
    assert broken["type"] == "https://noonday.dev/problems/malformed-body"
    assert good["state"] == "ACTIVE"


async def test_atomic_batch_with_flaws_stores_nothing(client: Client):
    elements = [job(), job(type="CORN"), job(timeoutSec=-1)]
    response = await client.post("/v1/jobs/batch?atomic=true", {"jobs": elements})
    assert (response.status, response.code) == (422, "invalid-input")
    assert [flaw["pointer"] for flaw in response.json["errors"]] == ["/jobs/1/type", "/jobs/2/timeoutSec"]
    assert await stored(client) == 0


async def test_an_atomic_batch_without_flaws_is_stored(client: Client):
    response = await client.post("/v1/jobs/batch?atomic=true", {"jobs": [job(), job()]})
    assert (response.status, await stored(client)) == (200, 2)


async def test_repeated_batch_returns_the_stored_response(client: Client):
    elements = {"jobs": [job(), job()]}
    first = await client.post("/v1/jobs/batch", elements, idempotency_key="k1")
    again = await client.post("/v1/jobs/batch", elements, idempotency_key="k1")
    assert (again.body, again.headers["idempotency-replay"]) == (first.body, "true")
    assert await stored(client) == 2


async def test_repeated_batch_returns_the_stored_problems(client: Client):
    elements = {"jobs": [job(), job(type="CORN")]}
    first = await client.post("/v1/jobs/batch", elements, idempotency_key="k1")
    again = await client.post("/v1/jobs/batch", elements, idempotency_key="k1")
    assert (again.body, again.headers["idempotency-replay"]) == (first.body, "true")
    assert await stored(client) == 1


async def test_an_atomic_batch_of_one_with_a_key_is_a_batch(client: Client):
    response = await client.post("/v1/jobs/batch?atomic=true", {"jobs": [job()]}, idempotency_key="k1")
    assert (response.status, len(response.json["jobs"])) == (200, 1)


async def test_empty_batch_returns_no_jobs(client: Client):
    assert (await client.post("/v1/jobs/batch", {"jobs": []})).json == {"jobs": []}


async def test_batch_with_too_many_jobs_returns_413(client: Client):
    response = await client.post("/v1/jobs/batch", {"jobs": [0] * 101})
    assert (response.status, response.code) == (413, "payload-too-large")
    assert (response.json["limitJobs"], response.json["jobs"]) == (100, 101)


async def test_a_batch_may_be_larger_than_another_body(client: Client):
    assert (await client.post("/v1/jobs/batch", {"jobs": [job(payload="x" * 50_000)]})).status == 200
    assert (await client.post("/v1/jobs", job(payload="x" * 50_000))).status == 413
    assert (await client.post("/v1/jobs/batch", {"jobs": [job(payload="x" * 250_000)]})).status == 413


@pytest.mark.parametrize("body", [{}, {"jobs": {}}, {"jobs": [], "atomic": True}, []])
async def test_invalid_batch_body_is_rejected(client: Client, body: Any):
    assert (await client.post("/v1/jobs/batch", body)).status == 422
