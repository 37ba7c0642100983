"""Rounds of the notifier, on a manual clock and an in-memory store."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import msgspec
import pytest

from noonday.alerts.incident_consumer import IncidentConsumer
from noonday.alerts.notice_jobs import NoticeJobs
from noonday.alerts.notices import Notifier
from noonday.alerts.preferences import Seal
from noonday.crypto.envelope import context_of
from noonday.crypto.keyring import Keyring
from noonday.drivers.memory.hot_index import MemoryHotIndex
from noonday.drivers.sql.notices import SqlNotices
from noonday.drivers.sqlite.sessions import SqliteSessions
from noonday.drivers.sqlite.store import SqliteStore
from noonday.intake.change_sender import ChangeSender
from noonday.model.alert import AlertKind, Observation
from noonday.model.caller import Caller
from noonday.model.errors import BadKey, QuotaExceeded, StoreUnavailable
from noonday.model.execution import Outcome
from noonday.model.ids import JobId, TenantId
from noonday.model.job import Job, Target
from noonday.model.notice import USUAL_KINDS, ChannelType, OpenNotice, Preference, Recipient, SelectedEvent
from noonday.model.retry import RetryPolicy
from noonday.model.view import TenantSettings
from tests.api.engine import Backstage
from tests.support.clock import ManualClock
from tests.support.crank import Crank
from tests.support.factories import MINUTE, NOW_MS, TENANT, audit, failure, job, report, spec

SOMEBODY = Caller(TENANT, "somebody", frozenset({"write"}))
OPS = Recipient(ChannelType.EMAIL, "ops@example.com")
HOOK = Recipient(ChannelType.WEBHOOK, url="https://hooks.example/x")


class Killed(StoreUnavailable):
    """The death of the process."""


class CrashingNotices(SqlNotices):
    """Raises Killed once, before the step named in `crash_before`."""

    crash_before: str = ""

    async def collect(
        self, events: Sequence[int], selected: Sequence[SelectedEvent], notices: Sequence[OpenNotice]
    ) -> int:
        self._crash("collect")
        return await super().collect(events, selected, notices)

    async def close_due(self, now_ms: int, limit: int) -> list[OpenNotice]:
        self._crash("close_due")
        closed = await super().close_due(now_ms, limit)
        self._crash("post")
        return closed

    async def drop(self, notice: str) -> None:
        self._crash("drop")
        await super().drop(notice)

    def _crash(self, step: str) -> None:
        if self.crash_before == step:
            self.crash_before = ""
            raise Killed(step)


class Stage:
    """A notifier with its stores, and the jobs that it created."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.backstage = Backstage.make()
        self.store: SqliteStore = self.backstage.store
        self.keyring = Keyring.generate()
        self.seal = Seal(self.keyring)
        self.notices = CrashingNotices(SqliteSessions(self.store.database))
        self.index = MemoryHotIndex(0)
        self.notifier = self.another()

    def another(self) -> Notifier:
        post = NoticeJobs(
            jobs=self.store.jobs,
            settings_store=self.store.settings_store,
            sender=ChangeSender(index=self.index, signals=self.backstage.signals, clock=self.clock, hint_ahead_ms=0),
            pools=self.backstage.services.pools,
            keyring=self.keyring,
            clock=self.clock,
            make_first_secret=self.backstage.secrets.make_first,
        )
        return Notifier(self.store.alerts, self.notices, self.store.query_store, self.seal, post, self.clock)

    async def put(self, name: str = "ops", to: Recipient = OPS, digest_ms: int = 5 * MINUTE, **fields: Any) -> None:
        defaults = {"kinds": USUAL_KINDS, "pools": (), "job_ids": (), "enabled": True, "tenant": TENANT}
        given = {**defaults, **fields}
        channel = self.seal.close(to, given["tenant"])
        preference = Preference(
            id=name, user="sam", digest_ms=digest_ms, channel=channel, created_ms=NOW_MS, updated_ms=NOW_MS, **given
        )
        await self.notices.put_preference(preference, 100, audit("alert-preference.put", NOW_MS))

    async def observe(self, *abouts: str, kind: AlertKind = AlertKind.EXHAUSTED, tenant: TenantId = TENANT) -> None:
        at_ms = self.clock.now_ms()
        await self.store.alerts.record(
            [Observation(kind, tenant, about, f"{about} is broken", at_ms, endpoint=about) for about in abouts]
        )

    async def run(self, *, seconds: float = 0) -> None:
        """Advance the clock, and run rounds until one does nothing."""
        self.clock.advance(seconds)
        while await self.notifier.run_once(self.clock.now_ms()):
            pass

    async def jobs(self, tenant: TenantId = TENANT) -> list[tuple[Job, Any]]:
        """Return the notice jobs with their payloads, in the order of their creation."""
        keys = await self.store.query_store.declared_keys(tenant, "notice:")
        rows = [await self.store.query_store.find_job(tenant, JobId(job)) for _, job in keys]
        found = sorted((row.job for row in rows if row), key=lambda job: job.id)
        return [(job, self._payload(job)) for job in found]

    def _payload(self, job: Job) -> Any:
        assert job.payload is not None
        payload = msgspec.json.decode(self.keyring.open(job.payload, context_of(job.tenant, job.id)))
        return payload.get("notice", payload)


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    stage = Stage()
    yield stage
    await stage.store.close()


async def test_events_within_the_window_share_one_message(stage: Stage) -> None:
    await stage.put()
    await stage.observe("https://a")
    await stage.run()
    await stage.observe("https://b")
    await stage.run(seconds=299)
    assert await stage.jobs() == []
    await stage.run(seconds=1)
    ((job, payload),) = await stage.jobs()
    assert (job.spec.target.pool, job.spec.target.handler) == ("notices", "notice.email")
    assert (payload["address"], payload["subject"]) == ("ops@example.com", "[noonday] 2 jobs: 2 dead letters")
    assert "https://a is broken" in payload["text"]
    assert "https://b is broken" in payload["text"]


async def test_subject_of_one_dead_letter_has_the_attempts_of_its_execution(stage: Stage) -> None:
    await stage.put(digest_ms=0)
    crank = Crank(stage.store)
    await crank.own()
    broken = job(spec(name="broken", retry_policy=RetryPolicy(max_attempts=1)))
    await crank.add(broken)
    await crank.settle(report(await crank.fire_one(), Outcome.FAILED, failure=failure()))
    await IncidentConsumer(stage.store.executions, stage.store.alerts, stage.backstage.services.jobs).run_once(NOW_MS)
    await stage.run()
    ((_, payload),) = await stage.jobs()
    assert payload["subject"] == "[noonday] broken failed after 1 attempt"


async def test_next_window_begins_with_the_next_event(stage: Stage) -> None:
    await stage.put()
    await stage.observe("https://a")
    await stage.run()
    await stage.run(seconds=300)
    await stage.run(seconds=3_600)
    assert len(await stage.jobs()) == 1
    await stage.observe("https://b")
    await stage.run()
    await stage.run(seconds=299)
    assert len(await stage.jobs()) == 1
    await stage.run(seconds=1)
    assert len(await stage.jobs()) == 2


@pytest.mark.slow
async def test_zero_window_sends_all_present_events_in_one_message(stage: Stage) -> None:
    await stage.put(digest_ms=0)
    await stage.observe(*(f"https://{i}" for i in range(2_500)))
    await stage.run()
    ((_, payload),) = await stage.jobs()
    assert payload["subject"] == "[noonday] 2,500 jobs: 2,500 dead letters"
    assert "... and 2,480 more." in payload["text"]
    assert len(payload["text"]) < 10_000


async def test_preference_that_does_not_match_gets_no_notice(stage: Stage) -> None:
    await stage.put("kinds", digest_ms=0, kinds=(AlertKind.SLOW,))
    await stage.put("pools", digest_ms=0, pools=("etl",))
    await stage.put("jobs", digest_ms=0, job_ids=("01900000-0000-7000-8000-000000000001",))
    await stage.put("off", digest_ms=0, enabled=False)
    await stage.put("theirs", digest_ms=0, tenant=TenantId("other"))
    await stage.observe("https://a")
    await stage.run()
    assert await stage.jobs() == []
    assert await stage.jobs(TenantId("other")) == []
    assert await stage.store.alerts.events(10) == []


async def test_each_preference_uses_its_own_channel_and_window(stage: Stage) -> None:
    await stage.put("ops")
    await stage.put("hook", HOOK, digest_ms=0)
    await stage.observe("https://a")
    await stage.run()
    ((job, payload),) = await stage.jobs()
    assert (job.spec.target.handler, job.spec.target.endpoint) == ("webhook.call", "https://hooks.example:443")
    assert payload["webhook_url"] == "https://hooks.example/x"
    assert payload["body"]["data"]["counts"] == {"EXHAUSTED": 1}
    await stage.run(seconds=300)
    assert len(await stage.jobs()) == 2


async def test_webhook_notice_creates_the_first_secret_of_its_tenant(stage: Stage) -> None:
    await stage.put("hook", HOOK, digest_ms=0)
    await stage.observe("https://a")
    await stage.run()
    endpoint = (TENANT, "https://hooks.example:443")
    assert len((await stage.store.endpoints.sealed_for([endpoint], NOW_MS))[endpoint]) == 1


async def test_notice_job_is_due_at_once(stage: Stage) -> None:
    await stage.put(digest_ms=0)
    await stage.observe("https://a")
    await stage.run()
    ((job, _),) = await stage.jobs()
    row = await stage.store.query_store.find_job(TENANT, job.id)
    assert row is not None
    assert row.fire is not None
    assert row.fire.due_ms == NOW_MS


async def test_preference_disabled_within_the_window_sends_nothing(stage: Stage) -> None:
    await stage.put()
    await stage.observe("https://a")
    await stage.run()
    await stage.put(enabled=False)
    await stage.run(seconds=300)
    assert await stage.jobs() == []
    assert await stage.notices.close_due(stage.clock.now_ms(), 10) == []


@pytest.mark.parametrize("step", ["collect", "close_due", "post", "drop"])
async def test_crash_at_any_step_sends_exactly_one_message(stage: Stage, step: str) -> None:
    await stage.put(digest_ms=0)
    await stage.observe("https://a")
    stage.notices.crash_before = step
    with pytest.raises(Killed):
        await stage.notifier.run_once(NOW_MS)
    stage.notifier = stage.another()
    await stage.run()
    ((_, payload),) = await stage.jobs()
    assert payload["subject"] == "[noonday] https://a failed"


async def test_event_after_a_crash_before_the_drop_is_sent_too(stage: Stage) -> None:
    await stage.put(digest_ms=0)
    await stage.observe("https://a")
    stage.notices.crash_before = "drop"
    with pytest.raises(Killed):
        await stage.notifier.run_once(NOW_MS)
    await stage.observe("https://b")
    await stage.run()
    assert [payload["subject"] for _, payload in await stage.jobs()] == [
        "[noonday] https://a failed",
        "[noonday] https://b failed",
    ]


async def test_unreadable_recipient_does_not_block_other_preferences(stage: Stage) -> None:
    await stage.put("a", digest_ms=0)
    lost_key = Seal(Keyring.generate()).close(OPS, TENANT)
    (stored,) = await stage.notices.preferences([TENANT])
    unreadable = msgspec.structs.replace(stored, channel=lost_key)
    await stage.notices.put_preference(unreadable, 100, audit("alert-preference.put", NOW_MS))
    await stage.put("b", digest_ms=0)
    await stage.observe("https://a")
    with pytest.raises(BadKey):
        await stage.notifier.run_once(NOW_MS)
    assert [payload["preference"] for _, payload in await stage.jobs()] == ["b"]
    await stage.put("a", digest_ms=0)
    await stage.run()
    assert [payload["preference"] for _, payload in await stage.jobs()] == ["b", "a"]


async def test_concurrent_notifiers_send_one_message(stage: Stage) -> None:
    await stage.put(digest_ms=0)
    await stage.observe(*(f"https://{i}" for i in range(10)))
    await asyncio.gather(
        *(notifier.run_once(NOW_MS) for notifier in (stage.notifier, stage.another(), stage.another()))
    )
    await stage.run()
    assert len(await stage.jobs()) == 1


async def test_notice_ignores_the_job_quota_of_its_tenant(stage: Stage) -> None:
    await stage.store.settings_store.put_tenant(TENANT, TenantSettings(max_jobs=0), audit("tenant.put", NOW_MS))
    await stage.backstage.add_demo_pool()
    with pytest.raises(QuotaExceeded):
        await stage.backstage.services.jobs.create(SOMEBODY, spec(target=Target("demo", "demo.echo")))
    await stage.put(digest_ms=0)
    await stage.observe("https://a")
    await stage.run()
    assert len(await stage.jobs()) == 1
