"""A worker with too many abandoned runs, and its parent process."""

import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from bench.machine import has_ended

from tests.scenarios.cluster.cluster import Cluster, Servers, cluster_on
from tests.scenarios.cluster.processes import children_of
from tests.scenarios.process import job_body, until

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]
ONCE = {"retryPolicy": {"maxAttempts": 1, "backoff": "FIXED", "initialDelayMs": 0}}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(folder: Path) -> AsyncIterator[Cluster]:
    settings = {"worker_max_abandoned": 1, "worker_cancel_grace_sec": 1, "worker_drain_sec": 2}
    async with cluster_on(folder, Servers.shared(), **settings) as cluster:
        yield cluster


@pytest_asyncio.fixture(autouse=True, loop_scope="module")
async def no_promise_is_broken(cluster: Cluster) -> AsyncIterator[None]:
    async with cluster.without_workers_at_first():
        yield


async def test_worn_out_worker_has_a_successor_and_finishes_its_runs(cluster: Cluster) -> None:
    worker = cluster.work()
    await cluster.ready(worker)
    await cluster.known(worker)
    parent, old, url = worker.parent_pid, worker.pid, worker.url
    release, never = cluster.new_hold(), cluster.new_hold()
    (long,) = await cluster.create_all([job_body("stay", {"until": str(release)})])
    await cluster.execution(long, "RUNNING")

    (stubborn,) = await cluster.create_all([job_body("stubborn", {"until": str(never)}, timeoutSec=1, **ONCE)])
    new = await until(lambda: next((pid for pid in children_of(parent) if pid != old), None))
    await cluster.execution(stubborn, "DEAD")
    await until(lambda: _is_known(cluster, new))
    jobs = await cluster.create_many(20)
    await cluster.done(jobs)

    assert not has_ended(old), "the worker still runs the long execution"
    release.touch()
    execution = await cluster.execution(long, "SUCCEEDED")
    assert (execution["attempt"], execution["dispatch"]) == (1, 1)
    await until(lambda: has_ended(old))
    await cluster.done(later := await cluster.create_many(20))
    assert {line["pid"] for job in later for line in cluster.lines("start", job)} == {new}
    assert worker.is_alive
    assert worker.url == url
    assert await cluster.metric(worker, "noonday_abandoned_runs") == 0

    worker.stop()
    assert await worker.exit_code() == 0, worker.output


async def test_a_worker_killed_by_itself_ends_its_parent_with_the_signal(cluster: Cluster) -> None:
    worker = cluster.work()
    await cluster.known(await worker.ready())
    worker.send_to_worker(signal.SIGSEGV)

    assert await worker.exit_code() == 128 + signal.SIGSEGV


async def test_a_stop_that_reaches_parent_and_worker_interrupts_and_ends_with_0(cluster: Cluster) -> None:
    """Like systemd, which signals all processes of a control group, and a terminal, which signals its foreground processes."""
    worker = cluster.work("processes")
    await cluster.known(await worker.ready())
    (job,) = await cluster.create_all([job_body("mule", {"sec": 3600}, pool="processes")])
    await cluster.execution(job, "RUNNING")
    worker.send_to_worker(signal.SIGTERM)
    worker.stop()

    assert await worker.exit_code() == 0, worker.output
    execution = await cluster.execution(job, "PENDING")
    assert (execution["attempt"], execution["dispatch"]) == (1, 2)
    assert (await cluster.ask("POST", f"/v1/executions/{execution['id']}/cancel"))[0] in (200, 202)
    with cluster.guest(cluster.work("processes")):
        await cluster.execution(job, "CANCELLED")


async def _is_known(cluster: Cluster, pid: int) -> bool:
    return bool(await cluster.store.query("SELECT 1 FROM workers WHERE state = 'ALIVE' AND pid = $1", pid))
