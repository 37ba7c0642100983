"""Recipients get each event of a cluster once, through the death of its processes."""

from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.scenarios.cluster.cluster import Cluster, Servers, cluster_on
from tests.scenarios.process import until
from tests.scenarios.test_notices import Receiving
from tests.support.mail import Mailbox

pytestmark = pytest.mark.slow
TASKS = 40
_keys = count(1)


async def change(cluster: Cluster, method: str, path: str, body: Any) -> Any:
    status, answer, _ = await cluster.ask(method, path, body, **{"Idempotency-Key": f"notices-{next(_keys)}"})
    assert status in (200, 201), answer
    return answer


async def test_a_storm_is_one_mail_although_two_gather_and_one_of_them_dies(tmp_path: Path) -> None:
    async with Receiving() as receiver, Mailbox() as box:
        email = {"email_host": "127.0.0.1", "email_port": box.port, "email_sender": "noonday@sender.test"}
        async with cluster_on(tmp_path / "cluster", Servers.shared(), **email) as cluster:
            await cluster.have(api=1, scheduler=1, recorder=2)
            await cluster.known(cluster.work("webhooks", "notices"))
            channel = {"type": "EMAIL", "address": "ops@example.com"}
            await change(cluster, "PUT", "/v1/alert-preferences/ops", {"channel": channel, "digest_seconds": 15})
            receiver.status = 400
            for number in range(TASKS):
                body = {"type": "ONE_TIME", "name": f"task {number}", "payload": {"webhook_url": receiver.url}}
                await change(cluster, "POST", "/v1/tasks", {**body, "scheduled_at": datetime.now(UTC).isoformat()})
            await until(lambda: _gathered(cluster))
            cluster.kill(cluster.one("recorder"))
            await until(lambda: box.messages)
            await cluster.quiet()
    assert [message["Subject"] for message in box.messages] == [f"[noonday] {TASKS} jobs: {TASKS} dead letters"]


async def _gathered(cluster: Cluster) -> bool:
    return bool(await cluster.store.query("SELECT 1 FROM digest_items LIMIT 1"))
