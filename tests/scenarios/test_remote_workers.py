"""Remote workers over HTTP, against a server that may be killed."""

import asyncio
import time
from pathlib import Path
from typing import Any

from noonday.crypto.tokens import mint
from tests.scenarios.process import SECRET, Server, job_body, served, until

POOL = "go"


class Remote:
    """A remote worker of a tenant."""

    def __init__(self, server: Server, name: str = "w1", tenant: str = "default", *more_scopes: str) -> None:
        self._server = server
        self._name = name
        scopes = ["worker", *more_scopes]
        token = mint(SECRET, tenant=tenant, subject=name, scopes=scopes, ttl_seconds=86_400, now=int(time.time()))
        self._headers = {"Authorization": f"Bearer {token}"}

    async def take(self, *handlers: str, wait_sec: int = 5, limit: int = 1) -> list[dict[str, Any]]:
        body = {"worker": self._name, "handlers": handlers or ("hello",), "waitSec": wait_sec, "limit": limit}
        status, taken = await self._server.ask("POST", f"/v1/pools/{POOL}/take", body, **self._headers)
        assert status == 200, taken
        return taken["executions"]  # type: ignore[no-any-return]

    async def take_one(self, *handlers: str) -> dict[str, Any]:
        """Take until there is an execution."""
        (taken,) = await until(lambda: self.take(*handlers))
        return taken  # type: ignore[no-any-return]

    async def say(self, verb: str, taken: dict[str, Any], **body: Any) -> tuple[int, Any]:
        path = f"/v1/executions/{taken['executionId']}/{verb}"
        return await self._server.ask("POST", path, {"lease": taken["lease"], **body}, **self._headers)

    async def start_one(self) -> dict[str, Any]:
        taken = await self.take_one()
        status, answer = await self.say("start", taken)
        assert status == 200, answer
        return taken


async def create(server: Server, handler: str = "hello", **fields: Any) -> dict[str, Any]:
    return await server.create(handler, {"n": 1}, pool=POOL, **fields)


async def registered(server: Server, *remotes: Remote) -> None:
    """Register the pool by a take that finds nothing, and wait until jobs may name it."""
    for remote in remotes:
        assert await remote.take(wait_sec=1) == []

    async def is_known() -> bool:
        _, found = await server.ask("GET", "/v1/pools")
        return any(pool["name"] == POOL for pool in found["pools"])

    await until(is_known)


async def states(server: Server, job: dict[str, Any]) -> list[str]:
    (found,) = await server.executions(job)
    _, execution = await server.ask("GET", f"/v1/executions/{found['executionId']}")
    return [each["state"] for each in execution["transitions"]]


async def test_a_remote_worker_runs_an_execution(tmp_path: Path):
    async with served(tmp_path) as server:
        remote = Remote(server)
        await registered(server, remote)
        job = await create(server, name="greet")
        taken = await remote.take_one()
        assert (taken["handler"], taken["payload"], taken["attempt"]) == ("hello", {"v": 1, "n": 1}, 1)
        assert (await remote.say("complete", taken, result=1))[0] == 409  # it was not started
        assert await remote.say("start", taken) == (200, {"leaseSec": 30.0, "cancel": None})
        assert await remote.say("heartbeat", taken, progress={"done": 1}) == (200, {"leaseSec": 30.0, "cancel": None})
        assert await remote.say("complete", taken, result={"hi": 1}) == (204, None)
        ended = await server.execution(job, state="SUCCEEDED")
        assert (ended["result"], ended["progress"], len(ended["attempts"])) == ({"hi": 1}, {"done": 1}, 1)


async def test_a_remote_worker_enqueues_jobs_with_its_completion(tmp_path: Path):
    child = {"type": "ONE_TIME", "target": {"pool": POOL, "handler": "hello"}, "payload": {"child": 1}, "name": "child"}
    async with served(tmp_path) as server:
        remote, weak = Remote(server, "w1", "default", "write"), Remote(server)
        await registered(server, remote)
        job = await create(server)
        taken = await remote.start_one()
        status, problem = await weak.say("complete", taken, enqueue=[child])
        assert (status, problem["required"]) == (403, "write")
        status, problem = await remote.say("complete", taken, enqueue=[{**child, "timeoutSec": -1}])
        assert status == 422, problem
        assert await remote.say("complete", taken, enqueue=[child]) == (204, None)
        assert await remote.say("complete", taken, enqueue=[child]) == (204, None)
        await server.execution(job, state="SUCCEEDED")
        following = await remote.take_one()
        assert (following["payload"], following["jobName"]) == ({"child": 1}, "child")
        await remote.say("start", following)
        await remote.say("complete", following)
        assert await remote.take(wait_sec=1) == []


async def test_a_repeated_answer_is_accepted_once_and_another_one_is_refused(tmp_path: Path):
    async with served(tmp_path) as server:
        remote = Remote(server)
        await registered(server, remote)
        job = await create(server)
        taken = await remote.start_one()
        assert (await remote.say("complete", taken, result="first"))[0] == 204
        assert (await remote.say("complete", taken, result="second"))[0] == 204
        status, problem = await remote.say("fail", taken, message="no")
        assert (status, problem["type"].rpartition("/")[2]) == (409, "lease-lost")
        assert (await server.execution(job, state="SUCCEEDED"))["result"] == "first"


async def test_a_failure_is_retried_and_a_snooze_uses_up_no_attempt(tmp_path: Path):
    async with served(tmp_path) as server:
        remote = Remote(server)
        await registered(server, remote)
        job = await create(server)
        taken = await remote.start_one()
        assert (await remote.say("snooze", taken, seconds=0))[0] == 204
        taken = await remote.start_one()
        assert taken["attempt"] == 1
        assert (await remote.say("fail", taken, type="Boom", message="broke", traceback="main.go:1"))[0] == 204
        taken = await remote.start_one()
        assert taken["attempt"] == 2
        assert (await remote.say("fail", taken, message="for good", retryable=False))[0] == 204
        dead = await server.execution(job, state="DEAD")
        assert dead["error"]["message"] == "for good"


async def test_a_started_lease_that_lapses_uses_up_the_attempt_and_the_old_answer_is_refused(tmp_path: Path):
    async with served(tmp_path, remote_lease_sec=2) as server:
        remote = Remote(server)
        await registered(server, remote)
        job = await create(server)
        first = await remote.start_one()
        second = await remote.start_one()
        assert (second["executionId"], second["attempt"]) == (first["executionId"], 2)
        assert int(second["token"]) > int(first["token"])
        assert (await remote.say("complete", first, result="old"))[0] == 409
        assert (await remote.say("complete", second, result="new"))[0] == 204
        assert (await server.execution(job, state="SUCCEEDED"))["result"] == "new"
        assert "FAILED_WORKER_LOST" in await states(server, job)


async def test_an_execution_that_is_taken_and_not_started_returns_at_no_attempt(tmp_path: Path):
    async with served(tmp_path, remote_lease_sec=2) as server:
        remote = Remote(server)
        await registered(server, remote)
        job = await create(server)
        first = await remote.take_one()
        second = await remote.take_one()
        assert (second["executionId"], second["attempt"]) == (first["executionId"], 1)
        assert (await remote.say("start", first))[0] == 409
        assert (await remote.say("start", second))[0] == 200
        assert (await remote.say("complete", second))[0] == 204
        await server.execution(job, state="SUCCEEDED")


async def test_a_cancellation_reaches_the_worker_and_an_end_after_it_is_cancelled(tmp_path: Path):
    async with served(tmp_path) as server:
        remote = Remote(server)
        await registered(server, remote)
        job = await create(server)
        taken = await remote.start_one()
        assert (await server.ask("POST", f"/v1/executions/{taken['executionId']}/cancel"))[0] == 202

        async def cancelled() -> bool:
            status, answer = await remote.say("heartbeat", taken)
            assert status == 200, answer
            return answer["cancel"] == "cancelled by scenario"

        await until(cancelled)
        assert (await remote.say("complete", taken, result="late"))[0] == 204
        assert (await server.execution(job, state="CANCELLED")).get("result") is None


async def test_a_timeout_reaches_the_worker(tmp_path: Path):
    async with served(tmp_path) as server:
        remote = Remote(server)
        await registered(server, remote)
        job = await create(server, timeoutSec=0.5, retryPolicy={"maxAttempts": 1})
        taken = await remote.start_one()

        async def timed_out() -> bool:
            return (await remote.say("heartbeat", taken))[1]["cancel"] == "TIMED_OUT"

        await until(timed_out)
        assert (await remote.say("fail", taken, message="stopped", cancelled=True))[0] == 204
        assert (await server.execution(job, state="DEAD"))["error"]["type"] == "Timeout"


async def test_a_killed_server_dispatches_again_and_refuses_the_old_lease(tmp_path: Path):
    async with served(tmp_path) as server:
        remote = Remote(server)
        await registered(server, remote)
        job = await create(server)
        first = await remote.start_one()
        server.kill()
        await server.up()
        second = await remote.start_one()
        assert second["executionId"] == first["executionId"]
        assert int(second["token"]) > int(first["token"])
        status, problem = await remote.say("complete", first, result="old")
        assert (status, problem["type"].rpartition("/")[2]) == (409, "lease-lost")
        assert (await remote.say("complete", second, result="new"))[0] == 204
        assert (await server.execution(job, state="SUCCEEDED"))["result"] == "new"


async def test_a_worker_gets_the_executions_of_its_tenant_only(tmp_path: Path):
    async with served(tmp_path) as server:
        ours, theirs = Remote(server), Remote(server, "w2", "other")
        await registered(server, ours, theirs)
        job = await create(server)
        waiting = asyncio.create_task(theirs.take(wait_sec=5))
        taken = await ours.take_one()
        assert (await theirs.say("start", taken))[0] == 409
        assert (await ours.say("start", taken))[0] == 200
        assert (await ours.say("complete", taken))[0] == 204
        assert await waiting == []
        await server.execution(job, state="SUCCEEDED")


async def test_a_stopping_server_lets_started_executions_end_and_returns_the_others(tmp_path: Path):
    async with served(tmp_path) as server:
        remote = Remote(server)
        await registered(server, remote)
        jobs = [await create(server), await create(server)]
        started, unstarted = await remote.start_one(), await remote.take_one()
        waiting = asyncio.create_task(remote.take(wait_sec=60))
        server.signal()
        assert await waiting == []  # the server answers at once
        assert (await remote.say("start", unstarted))[0] == 409
        assert (await remote.say("complete", started, result="in time"))[0] == 204
        assert await server.exit_code() == 0
        await server.up()
        again = await remote.start_one()
        assert (again["executionId"], again["attempt"]) == (unstarted["executionId"], 1)
        assert (await remote.say("complete", again))[0] == 204
        results = [(await server.execution(job, state="SUCCEEDED")).get("result") for job in jobs]
        assert sorted(results, key=str) == [None, "in time"]


async def test_foreign_pools_and_scopes_are_refused(tmp_path: Path):
    async with served(tmp_path, remote_pools="go,rust-*") as server:
        remote = Remote(server)
        body = {"worker": "w", "handlers": ["h"], "waitSec": 1}
        for pool in ("webhooks", "notices", "python"):
            status, problem = await server.ask("POST", f"/v1/pools/{pool}/take", body, **remote._headers)
            assert (status, problem["errors"][0]["pointer"]) == (422, "/pool")
        assert (await server.ask("POST", "/v1/pools/rust-1/take", body, **remote._headers))[0] == 200
        assert (await server.ask("POST", f"/v1/pools/{POOL}/take", body))[0] == 403  # an operator's token
        assert (await server.ask("POST", "/v1/jobs", job_body("h", pool=POOL), **remote._headers))[0] == 403
