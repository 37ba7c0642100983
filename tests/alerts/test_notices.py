"""Turning the crank of the notifier on a clock that stands still, over a store in memory."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import msgspec
import pytest

from noonday.alerts.notices import Notifier
from noonday.alerts.posting import Post
from noonday.alerts.preferences import Seal
from noonday.crypto.envelope import context_of
from noonday.crypto.keyring import Keyring
from noonday.drivers.memory.hot_index import MemoryHotIndex
from noonday.drivers.sqlite.notice_rows import SqliteNotices
from noonday.drivers.sqlite.store import Store
from noonday.model.alert import AlertKind, Sighting
from noonday.model.caller import Caller
from noonday.model.errors import BadKey, QuotaExceeded, StoreUnavailable
from noonday.model.ids import JobId, TenantId
from noonday.model.job import Job, Target
from noonday.model.notice import USUAL_KINDS, ChannelType, Note, Open, Preference, Recipient
from noonday.model.view import TenantSettings
from tests.api.engine import Backstage
from tests.support.clock import ManualClock
from tests.support.factories import MINUTE, NOW_MS, TENANT, audit, spec

SOMEBODY = Caller(TENANT, "somebody", frozenset({"write"}))
OPS = Recipient(ChannelType.EMAIL, "ops@example.com")
HOOK = Recipient(ChannelType.WEBHOOK, url="https://hooks.example/x")


class Killed(StoreUnavailable):
    """The process ends here."""


class Mortal(SqliteNotices):
    """Dies before what it is told to die before, once."""

    dies_before: str = ""

    async def take_in(self, happenings: Sequence[int], notes: Sequence[Note], notices: Sequence[Open]) -> int:
        self._die("take_in")
        return await super().take_in(happenings, notes, notices)

    async def close_due(self, now_ms: int, limit: int) -> list[Open]:
        self._die("close_due")
        closed = await super().close_due(now_ms, limit)
        self._die("post")
        return closed

    async def drop(self, notice: str) -> None:
        self._die("drop")
        await super().drop(notice)

    def _die(self, step: str) -> None:
        if self.dies_before == step:
            self.dies_before = ""
            raise Killed(step)


class Stage:
    """A notifier, what it stands on, and what came of it."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.backstage = Backstage.make()
        self.store: Store = self.backstage.store
        self.keyring = Keyring.generate()
        self.seal = Seal(self.keyring)
        self.notices = Mortal(self.store.database)
        self.index = MemoryHotIndex(0)
        self.notifier = self.another()

    def another(self) -> Notifier:
        post = Post(
            jobs=self.store.jobs,
            archive=self.store.archive,
            index=self.index,
            desk=self.backstage.desk,
            keyring=self.keyring,
            clock=self.clock,
            make_first_secret=self.backstage.secrets.make_first,
        )
        return Notifier(self.store.alerts, self.notices, self.seal, post, self.clock)

    async def put(self, name: str = "ops", to: Recipient = OPS, digest_ms: int = 5 * MINUTE, **said: Any) -> None:
        usual = {"kinds": USUAL_KINDS, "pools": (), "job_ids": (), "enabled": True, "tenant": TENANT, **said}
        channel = self.seal.close(to, usual["tenant"])
        wanted = Preference(
            id=name, user="sam", digest_ms=digest_ms, channel=channel, created_ms=NOW_MS, updated_ms=NOW_MS, **usual
        )
        await self.notices.put_preference(wanted, 100, audit("alert-preference.put", NOW_MS))

    async def happen(self, *abouts: str, kind: AlertKind = AlertKind.EXHAUSTED, tenant: TenantId = TENANT) -> None:
        at_ms = self.clock.now_ms()
        await self.store.alerts.take_in(
            [Sighting(kind, tenant, about, f"{about} is broken", at_ms, endpoint=about) for about in abouts]
        )

    async def turn(self, *, seconds: float = 0) -> None:
        self.clock.advance(seconds)
        while await self.notifier.run_once(self.clock.now_ms()):
            pass

    async def posted(self, tenant: TenantId = TENANT) -> list[tuple[Job, Any]]:
        """The jobs there are, with their payloads, in the order they were made in."""
        keys = await self.store.archive.declared_keys(tenant, "notice:")
        rows = [await self.store.archive.find_job(tenant, JobId(job)) for _, job in keys]
        found = sorted((row.job for row in rows if row), key=lambda job: job.id)
        return [(job, self._opened(job)) for job in found]

    def _opened(self, job: Job) -> Any:
        assert job.payload is not None
        payload = msgspec.json.decode(self.keyring.open(job.payload, context_of(job.tenant, job.id)))
        return payload.get("notice", payload)


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    stage = Stage()
    yield stage
    await stage.store.close()


async def test_what_happens_within_the_window_is_one_message(stage: Stage) -> None:
    await stage.put()
    await stage.happen("https://a")
    await stage.turn()
    await stage.happen("https://b")
    await stage.turn(seconds=299)
    assert await stage.posted() == []
    await stage.turn(seconds=1)
    ((job, payload),) = await stage.posted()
    assert (job.spec.target.pool, job.spec.target.handler) == ("notices", "notice.email")
    assert (payload["address"], payload["subject"]) == ("ops@example.com", "[noonday] 2 jobs: 2 dead letters")
    assert "https://a is broken" in payload["text"]
    assert "https://b is broken" in payload["text"]


async def test_after_a_message_the_next_window_begins_with_the_next_happening(stage: Stage) -> None:
    await stage.put()
    await stage.happen("https://a")
    await stage.turn()
    await stage.turn(seconds=300)
    await stage.turn(seconds=3_600)
    assert len(await stage.posted()) == 1
    await stage.happen("https://b")
    await stage.turn()
    await stage.turn(seconds=299)
    assert len(await stage.posted()) == 1
    await stage.turn(seconds=1)
    assert len(await stage.posted()) == 2


async def test_without_a_window_everything_that_is_there_is_told_at_once_in_one_message(stage: Stage) -> None:
    await stage.put(digest_ms=0)
    await stage.happen(*(f"https://{i}" for i in range(2_500)))
    await stage.turn()
    ((_, payload),) = await stage.posted()
    assert payload["subject"] == "[noonday] 2,500 jobs: 2,500 dead letters"
    assert "... and 2,480 more." in payload["text"]
    assert len(payload["text"]) < 10_000


async def test_only_those_who_want_it_are_told(stage: Stage) -> None:
    await stage.put("kinds", digest_ms=0, kinds=(AlertKind.SLOW,))
    await stage.put("pools", digest_ms=0, pools=("etl",))
    await stage.put("jobs", digest_ms=0, job_ids=("01900000-0000-7000-8000-000000000001",))
    await stage.put("off", digest_ms=0, enabled=False)
    await stage.put("theirs", digest_ms=0, tenant=TenantId("other"))
    await stage.happen("https://a")
    await stage.turn()
    assert await stage.posted() == []
    assert await stage.posted(TenantId("other")) == []
    assert await stage.store.alerts.happenings(10) == []


async def test_each_is_told_by_their_own_channel_in_their_own_time(stage: Stage) -> None:
    await stage.put("ops")
    await stage.put("hook", HOOK, digest_ms=0)
    await stage.happen("https://a")
    await stage.turn()
    ((job, payload),) = await stage.posted()
    assert (job.spec.target.handler, job.spec.target.endpoint) == ("webhook.call", "https://hooks.example:443")
    assert payload["webhook_url"] == "https://hooks.example/x"
    assert payload["body"]["data"]["counts"] == {"EXHAUSTED": 1}
    await stage.turn(seconds=300)
    assert len(await stage.posted()) == 2


async def test_a_webhook_can_be_signed_although_the_tenant_never_made_a_secret(stage: Stage) -> None:
    await stage.put("hook", HOOK, digest_ms=0)
    await stage.happen("https://a")
    await stage.turn()
    whom = (TENANT, "https://hooks.example:443")
    assert len((await stage.store.endpoints.sealed_for([whom], NOW_MS))[whom]) == 1


async def test_a_notice_is_due_at_once_where_the_scheduler_looks(stage: Stage) -> None:
    await stage.put(digest_ms=0)
    await stage.happen("https://a")
    await stage.turn()
    ((job, _),) = await stage.posted()
    row = await stage.store.archive.find_job(TENANT, job.id)
    assert row is not None
    assert row.fire is not None
    assert row.fire.due_ms == NOW_MS


async def test_a_preference_that_was_switched_off_meanwhile_is_heeded(stage: Stage) -> None:
    await stage.put()
    await stage.happen("https://a")
    await stage.turn()
    await stage.put(enabled=False)
    await stage.turn(seconds=300)
    assert await stage.posted() == []
    assert await stage.notices.close_due(stage.clock.now_ms(), 10) == []


@pytest.mark.parametrize("step", ["take_in", "close_due", "post", "drop"])
async def test_a_crash_at_any_step_neither_loses_nor_doubles_a_message(stage: Stage, step: str) -> None:
    await stage.put(digest_ms=0)
    await stage.happen("https://a")
    stage.notices.dies_before = step
    with pytest.raises(Killed):
        await stage.notifier.run_once(NOW_MS)
    stage.notifier = stage.another()
    await stage.turn()
    ((_, payload),) = await stage.posted()
    assert payload["subject"] == "[noonday] https://a: 1 dead letter"


async def test_what_happens_after_a_crash_between_making_the_job_and_noting_it_is_told_as_well(stage: Stage) -> None:
    await stage.put(digest_ms=0)
    await stage.happen("https://a")
    stage.notices.dies_before = "drop"
    with pytest.raises(Killed):
        await stage.notifier.run_once(NOW_MS)
    await stage.happen("https://b")
    await stage.turn()
    assert [payload["subject"] for _, payload in await stage.posted()] == [
        "[noonday] https://a: 1 dead letter",
        "[noonday] https://b: 1 dead letter",
    ]


async def test_a_channel_whose_key_is_lost_holds_up_nobody_else(stage: Stage) -> None:
    await stage.put("a", digest_ms=0)
    lost_key = Seal(Keyring.generate()).close(OPS, TENANT)
    (kept,) = await stage.notices.preferences([TENANT])
    unreadable = msgspec.structs.replace(kept, channel=lost_key)
    await stage.notices.put_preference(unreadable, 100, audit("alert-preference.put", NOW_MS))
    await stage.put("b", digest_ms=0)
    await stage.happen("https://a")
    with pytest.raises(BadKey):
        await stage.notifier.run_once(NOW_MS)
    assert [payload["preference"] for _, payload in await stage.posted()] == ["b"]
    await stage.put("a", digest_ms=0)
    await stage.turn()
    assert [payload["preference"] for _, payload in await stage.posted()] == ["b", "a"]


async def test_two_notifiers_tell_once(stage: Stage) -> None:
    await stage.put(digest_ms=0)
    await stage.happen(*(f"https://{i}" for i in range(10)))
    await asyncio.gather(
        *(notifier.run_once(NOW_MS) for notifier in (stage.notifier, stage.another(), stage.another()))
    )
    await stage.turn()
    assert len(await stage.posted()) == 1


async def test_a_notice_is_made_for_a_tenant_whose_quota_of_jobs_is_used_up(stage: Stage) -> None:
    await stage.store.archive.put_tenant(TENANT, TenantSettings(max_jobs=0), audit("tenant.put", NOW_MS))
    await stage.backstage.add_demo_pool()
    with pytest.raises(QuotaExceeded):
        await stage.backstage.desk.create(SOMEBODY, spec(target=Target("demo", "demo.echo")))
    await stage.put(digest_ms=0)
    await stage.happen("https://a")
    await stage.turn()
    assert len(await stage.posted()) == 1
