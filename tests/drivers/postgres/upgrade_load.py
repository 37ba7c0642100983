"""The work of schedulers and recorders of the release on the path. Run by test_upgrade.py.

    python upgrade_load.py URL SCHEMA PARTITION

Creates jobs, a few at a time, fires the due ones and settles them, until its standard input is closed. Prints after each round
how many have ended.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from noonday.drivers.postgres.connection import PostgresOptions
from noonday.drivers.postgres.store import PostgresStore, open_store
from noonday.model.batch import FireRequest, Owner
from noonday.model.change import NewJob
from noonday.model.errors import StoreUnavailable
from noonday.model.firing import Fire, plan_fire
from noonday.model.ids import InstanceId, JobId, TenantId, WorkerId, new_job_id, partition_of
from noonday.model.job import Job, JobSpec, JobState, JobType, Target
from noonday.model.message import Report
from noonday.model.recording import Checkpoint

NOW_MS = 1_893_456_000_000
AT_ONCE = 20
T = TypeVar("T")


async def main(url: str, schema: str, partition: int) -> None:
    store = await open_store(PostgresOptions(url, schema=schema, sessions=3), 0, own_clock=False)
    mine = [p for p in range(256) if p % 2 == partition]
    taken = await store.firing.take_over(InstanceId(f"i-{partition}"), mine)
    owner = Owner(InstanceId(f"i-{partition}"), {p: each.epoch for p, each in taken.items()})
    checkpoint, made, ended = None, 0, 0
    stopped = asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    while not stopped.done():
        jobs = [job_in(partition, k % 3 == 0) for k in range(AT_ONCE)]
        made += AT_ONCE
        new = [NewJob(job, Fire(NOW_MS, NOW_MS, job.spec.max_runs)) for job in jobs]
        await patiently(lambda new=new: add(store, mine, new))
        while ended < made:
            dispatches = await patiently(lambda: fire(store, owner, mine))
            dispatches = dispatches or await patiently(lambda: unpublished(store, owner))
            now = Checkpoint(partition, "log", (checkpoint.offset if checkpoint else 0) + 1, 0)
            reports = [report_of(each) for each in dispatches]
            await patiently(lambda r=reports, w=checkpoint, n=now: settle(store, r, w, n))
            checkpoint, ended = now, ended + len(reports)
        print(ended, flush=True)
    await store.close()


def job_in(partition: int, is_recurring: bool) -> Job:
    name = new_job_id()
    while partition_of(name) % 2 != partition:
        name = new_job_id()
    target = Target("etl", "load")
    spec = JobSpec(type=JobType.ONE_TIME, target=target)
    if is_recurring:
        spec = JobSpec(type=JobType.INTERVAL, every_sec=60, max_runs=1, target=target)
    return Job(
        id=name,
        tenant=TenantId("acme"),
        revision=1,
        state=JobState.ACTIVE,
        spec=spec,
        anchor_ms=NOW_MS,
        payload=b"",
        created_ms=NOW_MS,
        updated_ms=NOW_MS,
    )


async def add(store: PostgresStore, mine: list[int], new: list[NewJob]) -> None:
    if not await store.firing.walk(mine, None, NOW_MS, 1):  # otherwise an earlier try was committed and not answered
        await store.jobs.add(new, upsert=refuse, audit=None, seal=None)


async def fire(store: PostgresStore, owner: Owner, mine: list[int]) -> list[Any]:
    entries = await store.firing.walk(mine, None, NOW_MS, 500)
    jobs = await store.firing.plans([entry for entry in entries if entry.recurring])
    requests = []
    for entry in entries:
        known: Any = jobs.get((JobId(entry.key), entry.number)) if entry.recurring else None
        plan = plan_fire(known.job, entry.nominal_ms, NOW_MS, known.runs_left) if known else None
        requests.append(FireRequest(entry, plan, known.runs_left if known else None))
    fired = await store.firing.fire(owner, requests, NOW_MS)
    await store.firing.seal(fired.batches)
    return list(fired.dispatches)


async def unpublished(store: PostgresStore, owner: Owner) -> list[Any]:
    """Return the dispatches of batches whose fire was committed and not answered, as the sweeper finds them."""
    batches = [each for each in await store.firing.unsealed(NOW_MS + 1, 100) if each.owner == owner.instance]
    dispatches = [dispatch for batch in batches for dispatch in await store.firing.dispatches_of(batch)]
    await store.firing.seal([batch.id for batch in batches])
    return dispatches


async def settle(store: PostgresStore, reports: list[Report], was: Checkpoint | None, now: Checkpoint) -> None:
    stored = await store.executions.find_checkpoint(now.partition)
    if stored is None or stored.offset != now.offset:  # otherwise an earlier try was committed and not answered
        await store.executions.settle(reports, [], was=was, now=now, now_ms=NOW_MS)


def report_of(dispatch: Any) -> Report:
    return Report(
        execution_id=dispatch.execution_id,
        dispatch=dispatch.number,
        worker_id=WorkerId("w-1"),
        outcome=1,
        started_ms=NOW_MS,
        ended_ms=NOW_MS + 1,
        pool=dispatch.pool,
    )


def refuse(*_: object) -> Any:
    raise AssertionError("nothing has a key")


async def patiently(work: Callable[[], Awaitable[T]]) -> T:
    """Retry like every loop of the engine while the store is unavailable."""
    while True:
        try:
            return await work()
        except StoreUnavailable as error:
            print("unavailable", error, file=sys.stderr, flush=True)
            await asyncio.sleep(0.05)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
