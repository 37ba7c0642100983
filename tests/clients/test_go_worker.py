"""The worker in Go of `examples/worker-go`, built and at work against a server."""

import asyncio
import os
import signal
import time
from pathlib import Path

from noonday.crypto.tokens import mint
from tests.clients.tools import ROOT, needs, run
from tests.scenarios.process import SECRET, served, until

EXAMPLE = ROOT / "examples" / "worker-go"


async def test_a_worker_in_go_runs_fails_and_cancels_executions(tmp_path: Path):
    needs("go")
    program = tmp_path / "worker"
    await asyncio.to_thread(run, ["go", "build", "-o", program, "."], EXAMPLE)
    token = mint(SECRET, tenant="default", subject="go", scopes=["worker"], ttl_seconds=86_400, now=int(time.time()))
    async with served(tmp_path, remote_lease_sec=2) as server:
        assert server.url is not None
        worker = await asyncio.create_subprocess_exec(program, server.url, env={**os.environ, "NOONDAY_TOKEN": token})
        try:

            async def is_known() -> bool:
                return any(pool["name"] == "go" for pool in (await server.ask("GET", "/v1/pools"))[1]["pools"])

            await until(is_known)
            greeted = await server.create("greet", {"name": "Ada"}, pool="go")
            refused = await server.create("greet", {}, pool="go", retryPolicy={"maxAttempts": 1})
            waiting = await server.create("wait", pool="go")
            assert (await server.execution(greeted, state="SUCCEEDED"))["result"] == {"greeting": "Hello, Ada"}
            assert "needs a name" in (await server.execution(refused, state="DEAD"))["error"]["message"]
            running = await server.execution(waiting, state="RUNNING")
            assert (await server.ask("POST", f"/v1/executions/{running['executionId']}/cancel"))[0] == 202
            await server.execution(waiting, state="CANCELLED")
            worker.send_signal(signal.SIGTERM)
            assert await worker.wait() == 0
        finally:
            if worker.returncode is None:
                worker.kill()
                await worker.wait()
