"""From a failing call to its mail: the whole engine on a file, a real receiver, a real mail server."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from noonday.crypto.envelope import context_of
from noonday.model.alert import AlertFilter, AlertKind, AlertState
from noonday.model.alert_view import AlertView
from noonday.model.filters import DeadFilterQuery
from noonday.model.job import instant_of
from noonday.model.notice import ChannelType, Recipient
from noonday.model.preference import PreferenceSpec
from noonday.model.retry import Backoff
from noonday.model.tasks.wire import TaskPayload, TaskRetry, TaskSpec, TaskType
from noonday.webhooks.sending import SEALED_FOR
from noonday.webhooks.signing import verify
from noonday.wiring.embedded import Embedded
from noonday.wiring.engine_queries import OWNER
from noonday.wiring.settings.loading import load_settings
from tests.scenarios.clock import SetClock
from tests.support.eventually import eventually
from tests.support.mail import Mailbox

pytestmark = pytest.mark.slow
PATIENCE_SEC = 60.0
HOUR_SEC = 3_600
EVERYTHING = tuple(AlertKind)


class Receiving:
    """A receiver that answers with a status, which a test may change, and keeps its requests."""

    def __init__(self) -> None:
        self.status = 500
        self.asked: list[tuple[dict[str, str], bytes]] = []

    async def __aenter__(self) -> "Receiving":
        app = web.Application()
        app.router.add_post("/", self._answer)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0, backlog=1_000).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}/"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    async def _answer(self, request: web.Request) -> web.Response:
        self.asked.append((dict(request.headers), await request.read()))
        return web.Response(status=self.status)


@asynccontextmanager
async def running(folder: Path, box: Mailbox | None = None) -> AsyncIterator[Embedded]:
    settings: dict[str, Any] = {"data": str(folder / "noonday.db"), "webhooks_allow_networks": "127.0.0.0/8"}
    if box:
        settings |= {"email_host": "127.0.0.1", "email_port": box.port, "email_sender": "noonday@sender.test"}
    embedded = await Embedded.open(load_settings(settings, {}, None), {}, clock=SetClock(datetime.now(UTC)))
    try:
        yield embedded
    finally:
        await embedded.close()


async def tell(embedded: Embedded, to: Recipient, digest_seconds: int) -> None:
    wanted = PreferenceSpec(to, kinds=EVERYTHING, digest_seconds=digest_seconds)
    await embedded.engine.preferences.put(OWNER, "ops", wanted, None)


async def digest_is_due(embedded: Embedded, is_complete: Callable[[Sequence[AlertView]], bool]) -> None:
    """Wait until all alerts of the digest exist, and let the window of the digest pass."""

    async def all_seen() -> bool:
        page = await embedded.engine.alerts.list_alerts(OWNER, limit=1_000)
        drivers = embedded.engine.drivers
        is_gathered = not await drivers.alerts.events(1) and await drivers.notices.next_due_ms() is not None
        return is_complete(page.alerts) and is_gathered

    await eventually(all_seen, PATIENCE_SEC)
    clock = embedded.engine.drivers.clock
    assert isinstance(clock, SetClock)
    clock.let_pass(HOUR_SEC)


async def call(embedded: Embedded, url: str, name: str, attempts: int) -> str:
    retry = TaskRetry(max_attempts=attempts, backoff=Backoff.FIXED, initial_delay_ms=1)
    now = embedded.engine.drivers.clock.now_ms()
    payload, due = TaskPayload(webhook_url=url), instant_of(now)
    spec = TaskSpec(type=TaskType.ONE_TIME, payload=payload, scheduled_at=due, name=name, retry=retry)
    return (await embedded.engine.tasks.create(OWNER, spec)).id


MAIL = Recipient(ChannelType.EMAIL, "ops@example.com")


async def test_a_failure_is_one_mail_and_its_recovery_another(tmp_path: Path) -> None:
    async with Receiving() as receiver, Mailbox() as box, running(tmp_path, box) as embedded:
        await tell(embedded, MAIL, digest_seconds=HOUR_SEC)
        task = await call(embedded, receiver.url, "nightly", attempts=2)
        await digest_is_due(embedded, lambda alerts: sum(alert.count for alert in alerts) == 2)
        failed = await eventually(lambda: box.messages and box.messages[0], PATIENCE_SEC)
        assert failed["Subject"] == "[noonday] nightly: 1 first attempt failed, 1 dead letter"
        assert "HTTP_500" in failed.get_content()
        receiver.status = 200
        (dead,) = (await embedded.engine.tasks.list_executions(OWNER, task)).executions
        await embedded.engine.services.dead_letters.retry(OWNER, dead.id)
        await digest_is_due(embedded, lambda alerts: all(alert.status == AlertState.RECOVERED for alert in alerts))
        recovered = await eventually(lambda: box.messages[1:] and box.messages[1], PATIENCE_SEC)
        assert recovered["Subject"] == "[noonday] nightly recovered"
        assert "nightly: recovered" in recovered.get_content()
    assert len(box.messages) == 2


async def test_a_storm_of_failures_is_one_mail(tmp_path: Path) -> None:
    async with Receiving() as receiver, Mailbox() as box, running(tmp_path, box) as embedded:
        # A refusal, which does not open the breaker of the endpoint: all of them fail at once.
        receiver.status = 400
        await tell(embedded, MAIL, digest_seconds=HOUR_SEC)
        for number in range(500):
            await call(embedded, receiver.url, f"task {number}", attempts=1)
        await digest_is_due(embedded, lambda alerts: sum(alert.count for alert in alerts) == 500)
        message = await eventually(lambda: box.messages and box.messages[0], PATIENCE_SEC)
        assert message["Subject"] == "[noonday] 500 jobs: 500 dead letters"
        assert "... and 480 more." in message.get_content()
        assert len(receiver.asked) == 500
    assert len(box.messages) == 1


async def test_an_operational_webhook_is_a_signed_call(tmp_path: Path) -> None:
    async with Receiving() as receiver, Receiving() as operations, running(tmp_path) as embedded:
        operations.status = 200
        await tell(embedded, Recipient(ChannelType.WEBHOOK, url=operations.url), digest_seconds=0)
        await call(embedded, receiver.url, "nightly", attempts=1)
        headers, body = await eventually(lambda: operations.asked and operations.asked[0], PATIENCE_SEC)
        engine = embedded.engine
        (secret,) = await engine.drivers.endpoints.secrets(OWNER.tenant)
        known = engine.drivers.keyring.open(secret.sealed, context_of(OWNER.tenant, SEALED_FOR)).decode()
        assert verify([known], headers, body, engine.drivers.clock.now_ms() / 1000)
    assert b'"type":"noonday.alerts"' in body
    assert b'"counts":{"EXHAUSTED":1}' in body


async def test_a_notice_that_fails_is_nobodys_alert(tmp_path: Path) -> None:
    async with Receiving() as receiver, Mailbox("550 no such user") as box, running(tmp_path, box) as embedded:
        engine = embedded.engine
        await tell(embedded, MAIL, digest_seconds=0)
        await call(embedded, receiver.url, "nightly", attempts=1)

        async def dead_in_notices() -> bool:
            return (
                len((await engine.services.dead_letters.list_dead_letters(OWNER, DeadFilterQuery())).dead_letters) == 2
            )

        await eventually(dead_in_notices, PATIENCE_SEC)
        await engine.loops["incidents"].service.run_once(engine.drivers.clock.now_ms())
        assert await engine.drivers.executions.incidents(10) == []
        assert await engine.drivers.alerts.events(10) == []
        assert await engine.drivers.notices.next_due_ms() is None
        alerts = await engine.drivers.alerts.list_alerts(OWNER.tenant, AlertFilter(), None, 10)
        assert [alert.pool for alert in alerts] == ["webhooks"]
    assert box.messages == []
