"""Workers of a cluster respect the limits of an endpoint together, through the death of some of them."""

import asyncio
import time
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from noonday.model.endpoint import endpoint_id
from noonday.model.throttle import LATE_MS
from tests.scenarios.cluster.cluster import Cluster, Servers, cluster_on
from tests.scenarios.process import until

pytestmark = pytest.mark.slow
TASKS, AT_ONCE, RATE = 40, 3, 10
_keys = count(1)


class Counting:
    """A receiver that notes the number of concurrent calls, and when each began."""

    def __init__(self) -> None:
        self.began: list[float] = []
        self.calls: set[str] = set()
        self.most = self.here = 0

    async def __aenter__(self) -> "Counting":
        app = web.Application()
        app.router.add_post("/", self._answer)
        self._runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=1.0)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.endpoint = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    async def _answer(self, request: web.Request) -> web.Response:
        self.began.append(time.monotonic())
        self.here += 1
        self.most = max(self.most, self.here)
        try:
            await asyncio.sleep(0.1)
        finally:
            self.here -= 1
        self.calls.add(request.headers["webhook-id"])
        return web.Response()


async def change(cluster: Cluster, method: str, path: str, body: Any) -> None:
    status, answer, _ = await cluster.ask(method, path, body, **{"Idempotency-Key": f"limits-{next(_keys)}"})
    assert status in (200, 201), answer


async def create(cluster: Cluster, receiver: Counting) -> None:
    payload = {"webhook_url": f"{receiver.endpoint}/", "body": {}}
    now = datetime.now(UTC).isoformat()
    body = {"type": "ONE_TIME", "payload": payload, "scheduled_at": now, "timeout_seconds": 2}
    for _ in range(TASKS):
        await change(cluster, "POST", "/v1/tasks", body)


async def test_two_workers_keep_to_the_limits_together_although_one_of_them_dies(tmp_path: Path) -> None:
    async with (
        Counting() as receiver,
        Counting() as other,
        cluster_on(tmp_path / "cluster", Servers.shared()) as cluster,
    ):
        await cluster.have(api=1, scheduler=1, recorder=1)
        workers = [cluster.work("webhooks"), cluster.work("webhooks")]
        await cluster.known(*workers)
        for each, limits in ((receiver, {"max_concurrency": AT_ONCE}), (other, {"rate_per_sec": RATE})):
            await change(cluster, "PUT", f"/v1/webhook-endpoints/{endpoint_id(each.endpoint)}", limits)
        await create(cluster, receiver)
        await create(cluster, other)
        await until(lambda: len(receiver.calls) >= TASKS // 4)
        cluster.kill(workers[0])
        await until(lambda: len(receiver.calls) == len(other.calls) == TASKS, within_sec=300)
        health = (await cluster.get(f"/v1/webhook-endpoints/{endpoint_id(other.endpoint)}"))["health"]
    assert 1 < receiver.most <= AT_ONCE
    assert health["status"] == "HEALTHY"
    slack = 1 + RATE * LATE_MS / 1000
    assert all(
        after - at + 1 <= slack + RATE * (other.began[after] - other.began[at] + 0.1)
        for at in range(len(other.began))
        for after in range(at, len(other.began))
    )
