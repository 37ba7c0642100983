"""Tasks through the whole embedded engine: what a receiver sees of them, and what DNS may do meanwhile."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from noonday.model.caller import Caller
from noonday.model.ids import TenantId
from noonday.tasks.wire import TaskExecutionView, TaskPayload, TaskRetry, TaskSpec, TaskType
from noonday.wiring.embedded import Embedded
from noonday.wiring.settings import load_settings
from tests.webhooks.receiver import Receiver

USER = Caller(TenantId("default"), "user", frozenset({"operator"}))
NAME = "changing.example"
DEADLINE_SEC = 60


@asynccontextmanager
async def engine(tmp_path: Path, **flags: str) -> AsyncIterator[Embedded]:
    said = {"data": str(tmp_path / "n.db"), "webhooks.allow_networks": "127.0.0.0/8", **flags}
    embedded = await Embedded.open(load_settings(said, {}, None), {})
    try:
        yield embedded
    finally:
        await embedded.close()


async def ended(embedded: Embedded, url: str, **said: Any) -> TaskExecutionView:
    """The one execution of a task that is called at once."""
    now = embedded.engine.drivers.clock.now_ms() / 1000
    spec = TaskSpec(
        type=TaskType.ONE_TIME,
        payload=TaskPayload(webhook_url=url),
        scheduled_at=datetime.fromtimestamp(now + 0.5, UTC),
        retry=TaskRetry(max_attempts=2, initial_delay_ms=1),
        **said,
    )
    task = await embedded.engine.tasks.create(USER, spec)
    async with asyncio.timeout(DEADLINE_SEC):
        while True:
            found = await embedded.engine.tasks.list_executions(USER, task.id)
            if found.executions and found.executions[0].completed_at:
                return found.executions[0]
            await asyncio.sleep(0.05)


def dns(monkeypatch: pytest.MonkeyPatch, address_of: Callable[[], str]) -> None:
    """Somebody's name server, which answers as it likes; all other names are looked up as usual."""
    look_up = socket.getaddrinfo

    def answer(host: Any, port: Any, *args: Any, **more: Any) -> Any:
        return look_up(address_of() if host == NAME else host, port, *args, **more)

    monkeypatch.setattr(socket, "getaddrinfo", answer)


@pytest.mark.slow
async def test_a_name_that_becomes_private_between_two_attempts_is_not_called_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Receiver() as receiver, engine(tmp_path) as embedded:
        dns(monkeypatch, lambda: "10.0.0.7" if receiver.heads else "127.0.0.1")
        execution = await ended(embedded, receiver.url("/status/503/Retry-After:12/Connection:close", host=NAME))
        assert (execution.status, execution.attempt_number, len(receiver.heads)) == ("FAILED", 2, 1)
        assert "10.0.0.7" in str(execution.error_message)
        assert "private" in str(execution.error_message)


async def test_a_name_of_a_metadata_service_is_refused_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with engine(tmp_path) as embedded:
        dns(monkeypatch, lambda: "169.254.169.254")
        execution = await ended(embedded, f"http://{NAME}/latest/meta-data")
        assert (execution.status, execution.attempt_number) == ("FAILED", 1)
        assert "169.254.169.254" in str(execution.error_message)
