"""The work of a worker that dies, freezes, or has no free slot."""

import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from noonday.model.execution import State
from noonday.model.ids import ExecutionId, child_job_id
from tests.scenarios.cluster.cluster import Cluster, Job, Servers, cluster_on
from tests.scenarios.cluster.processes import Process
from tests.scenarios.process import job_body, until

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(folder: Path) -> AsyncIterator[Cluster]:
    async with cluster_on(folder, Servers.shared()) as cluster:
        yield cluster


@pytest_asyncio.fixture(autouse=True, loop_scope="module")
async def no_promise_is_broken(cluster: Cluster) -> AsyncIterator[None]:
    async with cluster.without_workers_at_first():
        yield


async def test_work_of_a_worker_that_died_or_stood_still_is_done_by_others(cluster: Cluster) -> None:
    """Both workers are judged after six ticks of their recorder.

    Dispatches that they had claimed and not begun are taken over when the claims lapse. The frozen worker drops its dispatches
    when it wakes, and goes on under another identity.
    """
    dying, frozen, idle = cluster.work(), cluster.work(), cluster.work("processes")
    await cluster.known(dying, frozen, idle)
    release = cluster.new_hold()
    running: list[Job] = []
    while {line["pid"] for job in running for line in cluster.lines("start", job)} < {dying.pid, frozen.pid}:
        running.append(await cluster.create("stay", {"until": str(release)}))
        await cluster.execution(running[-1], "RUNNING")
    names = await _names_of(cluster, frozen)
    burst = await cluster.create_many(300, within_sec=1.5)
    await cluster.started(burst[80])

    cluster.kill(dying)
    cluster.kill(idle)
    cluster.freeze(frozen)
    began = time.monotonic()
    heir = cluster.work()
    for job in running:
        await cluster.started(job, times=2)
    print(f"\nlost workers: their runs began again {time.monotonic() - began:.1f} s after they fell silent")
    await cluster.done(burst)
    cluster.wake(frozen)
    await until(lambda: _has_another_name(cluster, frozen, names))
    release.touch()
    await cluster.done(running)

    assert {line["pid"] for job in running for line in cluster.lines("start", job)[1:]} <= {heir.pid, frozen.pid}
    assert (await cluster.get("/v1/pools/processes"))["note"] == "no workers"
    for job in running:
        transitions = (await cluster.execution(job, "SUCCEEDED"))["transitions"]
        assert f"[{State.FAILED_WORKER_LOST.value}," in transitions, transitions


async def test_work_of_a_full_worker_is_done_once_by_another(cluster: Cluster) -> None:
    full = cluster.work(concurrency=2)
    await cluster.known(full)
    release = cluster.new_hold()
    long = await cluster.create_all([job_body("stay", {"until": str(release)})] * 2)
    for job in long:
        await cluster.execution(job, "RUNNING")
    waiting = await cluster.create_many(6)
    await until(lambda: _all_are(cluster, waiting, "PENDING"))

    other = cluster.work()
    await cluster.known(other)
    await cluster.done(waiting)
    release.touch()
    await cluster.done(long)
    # The worker has had the time to begin its remaining dispatches before this.
    await cluster.until_it_works(full)

    assert all(len(cluster.lines("start", job)) == 1 for job in waiting)
    assert {line["pid"] for job in waiting for line in cluster.lines("start", job)} == {other.pid}


async def test_jobs_that_handlers_of_a_killed_worker_enqueued_exist_once(cluster: Cluster) -> None:
    """The worker is killed while some attempts have been reported, others have enqueued their jobs, and others have not begun."""
    dying = cluster.work(concurrency=5)
    await cluster.known(dying)
    parents = await cluster.create_all([job_body("act", {"children": 2, "sec": 0.3})] * 30)
    await cluster.started(parents[10])
    cluster.kill(dying)
    heir = cluster.work()
    await cluster.known(heir)
    await cluster.done(parents)
    await until(lambda: _have_children(cluster, parents, 2))


async def _have_children(cluster: Cluster, parents: list[Job], each: int) -> bool:
    """Whether the last dispatch of every parent has its children, each of which has run once, and no other dispatch has any."""
    jobs = [parent["jobId"] for parent in parents]
    ended = await cluster.store.query("SELECT id::text, dispatch FROM executions WHERE job_id = ANY($1::uuid[])", jobs)
    ids = [
        [child_job_id(ExecutionId(execution), f"{number}/{at}") for at in range(each)]
        for execution, last in ended
        for number in range(1, last + 1)
    ]
    wanted = {child_job_id(ExecutionId(execution), f"{last}/{at}") for execution, last in ended for at in range(each)}
    every = [one for group in ids for one in group]
    found = await cluster.store.query("SELECT id::text FROM jobs WHERE id = ANY($1::uuid[])", every)
    runs = await cluster.store.query(
        "SELECT job_id::text FROM executions WHERE job_id = ANY($1::uuid[]) AND state = $2",
        every,
        State.SUCCEEDED.value,
    )
    assert {id_ for (id_,) in found} <= wanted
    assert len(runs) == len(set(runs))
    return {id_ for (id_,) in found} == {id_ for (id_,) in runs} == wanted


async def _names_of(cluster: Cluster, worker: Process) -> set[str]:
    return {name for (name,) in await cluster.store.query("SELECT id FROM workers WHERE pid = $1", worker.pid)}


async def _has_another_name(cluster: Cluster, worker: Process, former: set[str]) -> bool:
    return bool(await _names_of(cluster, worker) - former)


async def _all_are(cluster: Cluster, jobs: list[Job], state: str) -> bool:
    return await cluster.states(jobs) == {state: len(jobs)}
