"""Tasks through the whole embedded engine: the requests that a receiver gets, and DNS answers that change meanwhile."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from noonday.crypto.envelope import context_of
from noonday.intake.edits import first_fire
from noonday.model.caller import Caller
from noonday.model.change import Change, NewJob
from noonday.model.errors import InvalidInput
from noonday.model.ids import TenantId
from noonday.model.job import JobSpec, JobType, Target
from noonday.model.notice import Notice
from noonday.model.pool import BUILT_IN_POOLS
from noonday.model.tasks.wire import TaskExecutionView, TaskPayload, TaskRetry, TaskSpec, TaskType
from noonday.model.url import read_url
from noonday.model.view import ExecutionView, PoolSettings
from noonday.wiring.embedded import Embedded
from noonday.wiring.settings.loading import load_settings
from tests.support.eventually import eventually
from tests.support.factories import job
from tests.support.mail import Mailbox
from tests.webhooks.receiver import Receiver
from tests.webhooks.test_sending import SMUGGLED

USER = Caller(TenantId("default"), "user", frozenset({"operator"}))
NAME = "changing.example"
DEADLINE_SEC = 60


@asynccontextmanager
async def engine(tmp_path: Path, **flags: str) -> AsyncIterator[Embedded]:
    values = {"data": str(tmp_path / "n.db"), "webhooks.allow_networks": "127.0.0.0/8", **flags}
    embedded = await Embedded.open(load_settings(values, {}, None), {})
    try:
        yield embedded
    finally:
        await embedded.close()


async def ended(embedded: Embedded, url: str, caller: Caller = USER, **fields: Any) -> TaskExecutionView:
    """Create a task that is called at once, and return its one execution after its end."""
    now = embedded.engine.drivers.clock.now_ms() / 1000
    spec = TaskSpec(
        type=TaskType.ONE_TIME,
        payload=TaskPayload(webhook_url=url),
        scheduled_at=datetime.fromtimestamp(now + 0.5, UTC),
        retry=TaskRetry(max_attempts=2, initial_delay_ms=1),
        **fields,
    )
    task = await embedded.engine.tasks.create(caller, spec)
    async with asyncio.timeout(DEADLINE_SEC):
        while True:
            found = await embedded.engine.tasks.list_executions(caller, task.id)
            if found.executions and found.executions[0].completed_at:
                return found.executions[0]
            await asyncio.sleep(0.05)


async def stored(embedded: Embedded, caller: Caller, payload: Any, target: Target) -> str:
    """Store a job directly, even if the API would refuse it today."""
    drivers = embedded.engine.drivers
    made = job(JobSpec(type=JobType.ONE_TIME, target=target), now_ms=drivers.clock.now_ms(), tenant=caller.tenant)
    sealed = drivers.keyring.seal(msgspec.json.encode(payload), context_of(made.tenant, made.id))
    made = msgspec.structs.replace(made, payload=sealed)
    await drivers.jobs.add(
        [NewJob(made, first_fire(made, made.created_ms))], upsert=lambda *_: Change(), audit=None, seal=None
    )
    return made.id


async def last_of(embedded: Embedded, caller: Caller, job_id: str) -> ExecutionView:
    """Return the one execution of a job after its end."""
    async with asyncio.timeout(DEADLINE_SEC):
        while True:
            found = (await embedded.engine.services.executions.list_executions(caller, job_id)).executions
            if found and found[0].state in ("SUCCEEDED", "DEAD"):
                return found[0]
            await asyncio.sleep(0.05)


def dns(monkeypatch: pytest.MonkeyPatch, address_of: Callable[[], str]) -> None:
    """A name server under the test's control; all other names are looked up as usual."""
    look_up = socket.getaddrinfo

    def answer(host: Any, port: Any, *args: Any, **more: Any) -> Any:
        return look_up(address_of() if host == NAME else host, port, *args, **more)

    monkeypatch.setattr(socket, "getaddrinfo", answer)


@pytest.mark.slow
async def test_name_that_becomes_private_between_attempts_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Receiver() as receiver, engine(tmp_path) as embedded:
        dns(monkeypatch, lambda: "10.0.0.7" if receiver.heads else "127.0.0.1")
        execution = await ended(embedded, receiver.url("/status/503/Retry-After:12/Connection:close", host=NAME))
        assert (execution.status, execution.attempt_number, len(receiver.heads)) == ("FAILED", 2, 1)
        assert "10.0.0.7" not in str(execution)
        assert "may not be called" in str(execution.error_message)


@pytest.mark.slow
async def test_name_of_a_metadata_service_is_refused_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with engine(tmp_path) as embedded:
        dns(monkeypatch, lambda: "169.254.169.254")
        execution = await ended(embedded, f"http://{NAME}/latest/meta-data")
        assert (execution.status, execution.attempt_number) == ("FAILED", 1)
        assert "169.254.169.254" not in str(execution)


def tenant(name: str) -> Caller:
    return Caller(TenantId(name), name, frozenset({"write"}))


@pytest.mark.slow
@pytest.mark.parametrize("pool", BUILT_IN_POOLS)
async def test_built_in_pools_are_no_targets_of_jobs(tmp_path: Path, pool: str) -> None:
    async with engine(tmp_path) as embedded:
        services, caller = embedded.engine.services, tenant("mallory")
        spec = JobSpec(type=JobType.DELAYED, delay_sec=60, target=Target(pool, "webhook.call"), unique_key="k")
        with pytest.raises(InvalidInput, match="is built in") as caught:
            await services.jobs.create(caller, spec)
        assert [flaw.pointer for flaw in caught.value.flaws] == ["/target/pool"]
        (answer,) = await services.jobs.create_many(caller, [spec])
        assert isinstance(answer, InvalidInput)
        with pytest.raises(InvalidInput):
            await services.jobs.create_ids(caller, [spec])
        await services.pools.put(caller, "own", PoolSettings())
        own = msgspec.structs.replace(spec, target=Target("own", "handler"))
        made = await services.jobs.create(caller, own)
        with pytest.raises(InvalidInput):
            await services.jobs.replace(caller, made.job_id, spec)
        with pytest.raises(InvalidInput):
            await services.jobs.create(caller, spec)  # its key is taken: an upsert would change that job


@pytest.mark.slow
async def test_stored_job_cannot_write_into_another_tenants_call(tmp_path: Path) -> None:
    async with Receiver() as receiver, engine(tmp_path) as embedded:
        mallory, url = tenant("mallory"), receiver.url("/status/200/X-Of:victim")
        await ended(embedded, url, mallory)  # it has a secret and an open connection
        calls = [msgspec.structs.replace(call, webhook_url=url) for call in SMUGGLED.values()]
        target = Target("webhooks", "webhook.call", str(read_url(url)))
        jobs = [await stored(embedded, mallory, msgspec.to_builtins(call), target) for call in calls]
        for job_id in jobs:
            execution = await last_of(embedded, mallory, job_id)
            assert (execution.state, execution.attempt) == ("DEAD", 1)
            assert execution.error is not None
            assert execution.error.type == "BAD_CALL"
        execution = await ended(embedded, url, tenant("victim"))
        assert execution.status == "COMPLETED"
        assert receiver.paths == ["/status/200/X-Of:victim"] * 2
        assert receiver.connections == 2


@pytest.mark.slow
async def test_stored_job_sends_no_mail_that_a_user_wrote(tmp_path: Path) -> None:
    async with Mailbox() as box:
        mail = {"email.host": "127.0.0.1", "email.port": str(box.port), "email.sender": "noonday@sender.test"}
        async with engine(tmp_path, **mail) as embedded:
            mallory = tenant("mallory")
            written = Notice("n", "mallory", "ops", "sam", "victim@example.com", "Your account", "Send money", 0)
            for payload in (written, {"notice": written, "seal": "AAAA"}):
                job_id = await stored(embedded, mallory, payload, Target("notices", "notice.email"))
                assert (await last_of(embedded, mallory, job_id)).state == "DEAD"
    assert box.messages == []


@pytest.mark.slow
async def test_tarpit_of_one_tenant_leaves_slots_for_others(tmp_path: Path) -> None:
    few = {"webhooks.concurrency": "4", "worker.drain_sec": "0", "worker.cancel_grace_sec": "1"}
    async with Receiver() as receiver, engine(tmp_path, **few) as embedded:
        now = datetime.fromtimestamp(embedded.engine.drivers.clock.now_ms() / 1000, UTC)
        for _ in range(12):
            call = TaskPayload(webhook_url=receiver.url("/slow-headers"))
            slow = TaskSpec(type=TaskType.ONE_TIME, payload=call, scheduled_at=now, timeout_seconds=300)
            await embedded.engine.tasks.create(tenant("tarpit"), slow)
        await eventually(lambda: receiver.heads, DEADLINE_SEC)
        for _ in range(3):
            execution = await ended(embedded, receiver.url("/status/200"), tenant("victim"))
            assert execution.status == "COMPLETED"
        assert 1 <= receiver.paths.count("/slow-headers") <= 2
