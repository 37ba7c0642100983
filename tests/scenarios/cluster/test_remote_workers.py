"""Remote workers in a cluster: their executions outlive the process that gave them out."""

import time
from pathlib import Path
from typing import Any

import pytest

from noonday.crypto.tokens import mint
from tests.scenarios.cluster.cluster import SECRET, Cluster, Servers, cluster_on
from tests.scenarios.cluster.processes import Process
from tests.scenarios.process import job_body, until

pytestmark = pytest.mark.slow
POOL = "go"


def _headers() -> dict[str, str]:
    token = mint(SECRET, tenant="default", subject="w", scopes=["worker"], ttl_seconds=86_400, now=int(time.time()))
    return {"Authorization": f"Bearer {token}"}


async def _take(cluster: Cluster, api: Process) -> list[dict[str, Any]]:
    body = {"worker": "w1", "handlers": ["hello"], "waitSec": 2}
    status, taken, _ = await cluster.ask("POST", f"/v1/pools/{POOL}/take", body, api=api, **_headers())
    assert status == 200, taken
    return taken["executions"]  # type: ignore[no-any-return]


async def _say(cluster: Cluster, api: Process, verb: str, taken: dict[str, Any], **body: Any) -> int:
    path = f"/v1/executions/{taken['executionId']}/{verb}"
    status, _, _ = await cluster.ask("POST", path, {"lease": taken["lease"], **body}, api=api, **_headers())
    return status


async def _started(cluster: Cluster, api: Process) -> dict[str, Any]:
    """Take until there is an execution, and start it."""
    (taken,) = await until(lambda: _take(cluster, api))
    assert await _say(cluster, api, "start", taken) == 200
    return taken  # type: ignore[no-any-return]


async def _state(cluster: Cluster, job_id: str) -> str:
    page = await cluster.get(f"/v1/jobs/{job_id}/executions")
    return page["executions"][0]["state"] if page["executions"] else ""


async def test_another_process_dispatches_what_a_killed_one_had_given_out(tmp_path: Path) -> None:
    async with cluster_on(tmp_path / "c", Servers.shared()) as cluster:
        await cluster.have(api=1, scheduler=1, recorder=1)
        first = cluster.serve("api,remote")
        await cluster.ready(first)
        plain = cluster.one("api")
        status, problem, _ = await cluster.ask(
            "POST", f"/v1/pools/{POOL}/take", {"worker": "w1", "handlers": ["hello"]}, api=plain, **_headers()
        )
        assert (status, "roles api,remote" in problem["detail"]) == (409, True)

        assert await _take(cluster, first) == []  # registers the pool

        async def is_known() -> bool:
            return any(pool["name"] == POOL for pool in (await cluster.get("/v1/pools"))["pools"])

        await until(is_known)
        status, job, _ = await cluster.ask("POST", "/v1/jobs", job_body("hello", pool=POOL))
        assert status == 201, job
        taken = await _started(cluster, first)

        async def is_running() -> bool:
            return await _state(cluster, job["jobId"]) == "RUNNING"

        await until(is_running)
        second = cluster.serve("api,remote")
        await cluster.ready(second)
        cluster.kill(first)
        again = await _started(cluster, second)
        assert (again["executionId"], again["attempt"]) == (taken["executionId"], 2)
        assert int(again["token"]) > int(taken["token"])
        assert await _say(cluster, second, "complete", taken, result="old") == 409
        assert await _say(cluster, second, "complete", again, result="new") == 204

        async def is_done() -> bool:
            return await _state(cluster, job["jobId"]) == "SUCCEEDED"

        await until(is_done)
        execution = await cluster.get(f"/v1/executions/{again['executionId']}")
        assert execution["result"] == "new"
