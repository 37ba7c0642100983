"""Notifications of a real process that is killed with -9, through a mail server on a real socket."""

import asyncio
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest

from noonday.cli.server.doubles import account_body
from noonday.doubles.running import Doubles
from noonday.runtime.clock import SystemClock
from tests.scenarios.process import Server, until

pytestmark = pytest.mark.slow
COUNT = 120
DEATHS = 4


async def prepare(server: Server, doubles: Doubles) -> None:
    """Store a user, and the account of the mail server."""
    (mail,) = [account_body(each) for each in doubles.accounts("default") if each.kind == "SMTP"]
    body = {name: mail[name] for name in ("kind", "settings", "secrets")}
    status, answer = await server.ask("PUT", "/v1/providers/mail", body)
    assert status == 200, answer
    status, answer = await server.ask("PUT", "/v1/users/ann", {"email": "ann@example.com"})
    assert status == 200, answer


async def post(server: Server, random: Random) -> list[str]:
    """Post notifications that are due now and within some seconds. Returns their ids."""
    now = datetime.now(UTC)
    times = [now + timedelta(milliseconds=random.randrange(6_000)) for _ in range(COUNT)]
    notifications = [
        {"user_id": "ann", "channels": ["EMAIL"], "content": {"text": str(number)}, "scheduled_at": time.isoformat()}
        for number, time in enumerate(times)
    ]
    status, answer = await server.ask("POST", "/v1/notifications/batch", {"notifications": notifications})
    assert status == 200, answer
    return [each["id"] for each in answer["notifications"]]


async def shown(server: Server, ids: list[str]) -> dict[str, dict[str, Any]]:
    return {id_: (await server.ask("GET", f"/v1/notifications/{id_}"))[1] for id_ in ids}


async def test_a_process_that_is_killed_again_and_again_sends_each_notification_once(tmp_path: Path) -> None:
    random, doubles = Random(1), Doubles(SystemClock())
    await doubles.start()
    try:
        async with Server(tmp_path, webhooks_allow_networks="127.0.0.0/8", notifications_concurrency=4) as server:
            await server.up()
            await prepare(server, doubles)
            ids = await post(server, random)
            for _ in range(DEATHS):
                await asyncio.sleep(random.uniform(0.2, 1.5))
                server.kill()
                await server.up()

            async def all_final() -> bool:
                return all(each["final"] for each in (await shown(server, ids)).values())

            await until(all_final)
            statuses = {id_: each["status"] for id_, each in (await shown(server, ids)).items()}
    finally:
        await doubles.stop()
    numbers = Counter(int((message.text or "").strip()) for message in doubles.outbox.newest(10_000))
    arrived = {id_: numbers[number] for number, id_ in enumerate(ids)}
    assert set(statuses.values()) <= {"SENT", "UNKNOWN"}
    assert [id_ for id_, status in statuses.items() if status == "SENT" and arrived[id_] != 1] == []
    assert max(arrived.values()) == 1
    # At most what was being sent when the process died is unknown.
    assert sum(status == "UNKNOWN" for status in statuses.values()) <= DEATHS * 4
