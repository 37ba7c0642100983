"""Lists of jobs with large payloads: the size of the answer, and the number of decryptions."""

from typing import Any, cast

import msgspec
import pytest

from noonday.crypto.keyring import Keyring
from noonday.intake import paging
from noonday.intake.presenters import Presenter
from noonday.model.execution import Failure
from noonday.model.ids import TenantId
from tests.api.asgi import Client
from tests.api.engine import Backstage

LARGE = "x" * 200_000
TARGET = {"pool": "demo", "handler": "h"}


async def add(client: Client, payload: Any, count: int = 1) -> None:
    jobs = [{"type": "ONE_TIME", "runAt": "2031-01-01T00:00:00Z", "target": TARGET, "payload": payload}] * count
    response = await client.post("/v1/jobs/batch", {"jobs": jobs})
    assert all("jobId" in job for job in response.json["jobs"])


async def pages(client: Client, query: str = "") -> list[list[dict[str, Any]]]:
    found, cursor = list[list[dict[str, Any]]](), ""
    while cursor is not None:
        page = (await client.get(f"/v1/jobs?limit=500{query}{cursor and f'&cursor={cursor}'}")).json
        found.append(page["jobs"])
        cursor = page["next"]
    return found


@pytest.mark.slow
async def test_a_page_ends_early_if_its_payloads_are_large_and_none_is_left_out(client: Client) -> None:
    await add(client, LARGE, 60)
    found = await pages(client)
    assert len(found) > 2
    assert all(len(page) * len(LARGE) <= paging.PAGE_BYTES for page in found)
    ids = [job["jobId"] for page in found for job in page]
    assert (len(ids), ids) == (60, sorted(set(ids), reverse=True))
    assert {len(job["payload"]) for page in found for job in page} == {len(LARGE)}


async def test_a_single_job_is_a_page_however_large_it_is(client: Client, backstage: Backstage) -> None:
    await add(client, "small")
    await add(client, LARGE)
    assert len((await pages(client))[0]) == 2


@pytest.mark.slow
async def test_a_page_of_small_payloads_is_whole(client: Client) -> None:
    await add(client, {"a": 1}, 500)
    assert [len(page) for page in await pages(client)] == [500]


@pytest.mark.slow
async def test_a_summary_has_no_payloads_and_all_jobs(client: Client) -> None:
    await add(client, LARGE, 60)
    (page,) = await pages(client, "&view=summary")
    assert [job["payload"] for job in page] == [None] * 60
    assert page[0]["target"]["handler"] == "h"
    shown = (await client.get(f"/v1/jobs/{page[0]['jobId']}?view=summary")).json
    assert shown["payload"] is None


class Shut:
    """A keyring that must not decrypt."""

    def open(self, *_: object) -> bytes:
        raise AssertionError("decrypted")


async def test_nothing_is_decrypted_for_a_summary(client: Client, backstage: Backstage) -> None:
    made = await client.post("/v1/jobs", {"type": "CRON", "schedule": "@daily", "target": TARGET, "payload": 1})
    execution = await client.post(f"/v1/jobs/{made.json['jobId']}/trigger")
    query_store = backstage.store.query_store
    row = await query_store.find_job(TenantId("acme"), made.json["jobId"])
    run = await query_store.find_execution(TenantId("acme"), execution.json["executionId"])
    assert row is not None
    assert run is not None
    assert row.job.payload is not None
    run = msgspec.structs.replace(
        run, result=b"sealed", progress=b"sealed", failure='{"type":"E","message":"","traceback":"t"}'
    )
    view = Presenter(cast(Keyring, Shut()), None).job(row, executions=[run], summary=True)
    (shown,) = view.executions
    assert (view.payload, shown.result, shown.progress) == (None, None, None)
    assert shown.error == Failure("E", "")


@pytest.mark.parametrize(
    "path", ["/v1/jobs", "/v1/jobs/{job}", "/v1/jobs/{job}/executions", "/v1/executions/{execution}"]
)
async def test_every_view_of_a_job_has_a_summary(client: Client, path: str) -> None:
    made = (await client.post("/v1/jobs", {"type": "CRON", "schedule": "@daily", "target": TARGET, "payload": 1})).json
    execution = (await client.post(f"/v1/jobs/{made['jobId']}/trigger")).json
    url = path.format(job=made["jobId"], execution=execution["executionId"])
    response = await client.get(f"{url}?view=summary")
    assert response.status == 200
    assert b'"payload":1' not in response.body


async def test_a_view_that_there_is_not_is_refused(client: Client) -> None:
    response = await client.get("/v1/jobs?view=brief")
    assert (response.status, response.flaw["allowed"]) == (422, ["full", "summary"])
