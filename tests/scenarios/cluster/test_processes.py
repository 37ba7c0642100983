"""The cost of the loss of a process, for each role."""

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.scenarios.cluster.cluster import Cluster, Servers, cluster_on
from tests.scenarios.cluster.history import SKEW_MS
from tests.scenarios.process import job_body, until

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(folder: Path) -> AsyncIterator[Cluster]:
    async with cluster_on(folder, Servers.shared(), scheduler_batch=50) as cluster:
        await cluster.have(api=1, scheduler=2, recorder=2, worker=1)
        yield cluster


@pytest_asyncio.fixture(autouse=True, loop_scope="module")
async def no_promise_is_broken(cluster: Cluster) -> AsyncIterator[None]:
    yield
    cluster.release_all()
    await cluster.quiet()
    assert not await cluster.problems()


async def test_a_scheduler_that_is_stopped_hands_over_at_once(cluster: Cluster) -> None:
    await cluster.have(api=1, scheduler=2, recorder=1, worker=1)
    leaving = cluster.one("scheduler")
    instance = await cluster.instance_of(leaving)
    jobs = await cluster.create_many(600, within_sec=3)
    await cluster.started(jobs[100])

    leaving.stop()
    took = await cluster.owned_by(1, without=instance)
    await cluster.done(jobs)

    assert await leaving.exit_code() == 0, leaving.output
    print(f"\nclean stop: others own all after {took * 1000:.0f} ms; late at most {await cluster.lateness(jobs):.2f} s")


async def test_a_scheduler_killed_in_a_burst_has_an_heir(cluster: Cluster) -> None:
    await cluster.have(api=1, scheduler=2, recorder=1, worker=1)
    dying = cluster.one("scheduler")
    instance = await cluster.instance_of(dying)
    await cluster.create_rhythm(20, for_sec=6)
    jobs = await cluster.create_many(900, within_sec=3)
    await cluster.started(jobs[300])

    cluster.kill(dying)
    took = await cluster.owned_by(1, without=instance)
    await cluster.done(jobs)

    print(f"\nkill -9: others own all after {took:.2f} s; late at most {await cluster.lateness(jobs):.2f} s")


async def test_a_scheduler_frozen_past_its_lease_is_refused_when_it_wakes(cluster: Cluster) -> None:
    await cluster.have(api=1, scheduler=2, recorder=1, worker=1)
    frozen = cluster.one("scheduler")
    instance = await cluster.instance_of(frozen)
    await cluster.create_rhythm(20, for_sec=6)
    jobs = await cluster.create_many(600, within_sec=6)
    await cluster.started(jobs[200])

    cluster.freeze(frozen)
    await cluster.owned_by(1, without=instance)
    frozen.wake()
    await cluster.owned_by(2)
    await cluster.done(jobs)

    assert frozen.is_alive, frozen.output


async def test_fire_of_a_former_owner_is_refused_by_epoch(cluster: Cluster) -> None:
    await cluster.have(api=1, scheduler=2, recorder=1, worker=1)
    former = cluster.one("scheduler")
    refused = await cluster.metric(former, "noonday_refused_total", kind="epoch")
    jobs = await cluster.create_many(600, within_sec=3)
    await cluster.started(jobs[100])

    await cluster.store.query(
        "UPDATE partitions SET epoch = epoch + 1, owner = 'somebody' WHERE owner = $1",
        await cluster.instance_of(former),
    )
    await cluster.done(jobs)

    assert await cluster.metric(former, "noonday_refused_total", kind="epoch") > refused
    await cluster.owned_by(2, without="somebody")


async def test_a_recorder_killed_or_frozen_is_replaced(cluster: Cluster) -> None:
    await cluster.have(api=1, scheduler=1, recorder=2, worker=1)
    frozen, dying = cluster.alive("recorder")[-2:]
    jobs = await cluster.create_many(600, within_sec=6)
    await cluster.started(jobs[100])

    cluster.freeze(frozen)
    await cluster.done(jobs[:200])
    frozen.wake()
    await cluster.done(jobs[:400])
    cluster.kill(dying)
    await cluster.done(jobs)

    assert frozen.is_alive, frozen.output


async def test_jobs_that_a_killed_api_accepted_run(cluster: Cluster) -> None:
    await cluster.have(api=1, scheduler=1, recorder=1, worker=1)
    jobs = await cluster.create_many(200, within_sec=1)

    cluster.kill(cluster.one("api"))
    await cluster.done(jobs)

    await cluster.have(api=1)
    assert (await cluster.get(f"/v1/jobs/{jobs[0]['jobId']}"))["jobId"] == jobs[0]["jobId"]


async def test_pool_without_workers_keeps_its_work_and_is_reported(cluster: Cluster) -> None:
    await cluster.have(api=1, scheduler=1, recorder=1)
    assert (await cluster.ask("PUT", "/v1/pools/processes", {}))[0] in (200, 201)
    jobs = await cluster.create_all([job_body("mule", {"sec": 0}, pool="processes")] * 20)

    pool = await until(lambda: _pool_that(cluster, "processes", workers=0, due=20))
    assert pool["note"] == "no workers: 20 due entries wait on the timeline"
    assert await cluster.states(jobs) == {"WAITING": 20}

    with cluster.guest(cluster.work("processes")):
        await cluster.done(jobs)


async def _pool_that(cluster: Cluster, name: str, **facts: int) -> Any:
    pool = await cluster.get(f"/v1/pools/{name}")
    return pool if facts.items() <= pool.items() else None


@pytest.mark.parametrize("kind", ["scheduler", "worker"])
async def test_a_process_whose_clock_is_far_off_does_not_start(cluster: Cluster, kind: str) -> None:
    await cluster.have(api=1, scheduler=1)
    odd = {"clock_off_sec": 300.0}

    late = cluster.work(**odd) if kind == "worker" else cluster.serve(kind, **odd)

    assert await late.exit_code() == 2, late.output
    # A slow answer of the database counts as part of the difference.
    assert re.search(r"the clock of this machine differs from the database's by \+30\d\.\d s", late.output), late.output


async def test_process_whose_clock_is_slightly_wrong_works_in_time_and_logs_it(cluster: Cluster) -> None:
    await cluster.have(api=1, scheduler=1, recorder=1, worker=1)
    fast, slow = cluster.work(clock_off_sec=20.0), cluster.serve("scheduler", clock_off_sec=-20.0)
    await cluster.ready(fast, slow)
    await cluster.known(fast)
    for worker in cluster.alive("worker"):
        if worker is not fast:
            worker.stop()
            assert await worker.exit_code() == 0, worker.output
    await cluster.owned_by(len(cluster.alive("scheduler")))

    jobs = await cluster.create_many(100, within_sec=2)
    await cluster.done(jobs)

    rows = await cluster.store.query(
        "SELECT min(started_ms - due_ms), max(started_ms - due_ms) FROM executions WHERE job_id = ANY ($1::uuid[])",
        [job["jobId"] for job in jobs],
    )
    assert rows[0][0] > -SKEW_MS
    assert rows[0][1] < 10_000
    for process, offset in ((fast, 20), (slow, -20)):
        assert await cluster.metric(process, "noonday_clock_offset_seconds") == pytest.approx(offset, abs=1)
