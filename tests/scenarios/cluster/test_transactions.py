"""Jobs that an application creates in its own transactions, and handlers that record their end in theirs."""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncpg
import psycopg
import pytest
import pytest_asyncio

from noonday.model.view import ExecutionView, JobView
from noonday.wiring.running import Running
from tests.scenarios.cluster.cluster import Cluster, Servers, cluster_on
from tests.scenarios.cluster.shop import app, ship
from tests.scenarios.process import until

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]
IN_VAIN_MS = 120_000
"""The sweeper is so rare that every execution comes from a notification."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(folder: Path) -> AsyncIterator[Cluster]:
    async with cluster_on(folder, Servers.shared(), scheduler_grace_ms=IN_VAIN_MS) as cluster:
        worker = cluster._launch("shop", ["worker", "tests.scenarios.cluster.shop:app"])
        await cluster.have(api=1, scheduler=1, recorder=1)
        await worker.ready()
        await cluster.known(worker)
        schema = cluster._env["NOONDAY_POSTGRES_SCHEMA"]
        await cluster.store.query(f"CREATE SCHEMA {schema}_shop")
        await cluster.store.query(f"CREATE TABLE {schema}_shop.effects (execution uuid, what text)")
        try:
            yield cluster
        finally:
            await cluster.store.query(f"DROP SCHEMA {schema}_shop CASCADE")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(cluster: Cluster) -> AsyncIterator[Running]:
    with pytest.MonkeyPatch.context() as environ:
        for name, value in _variables(cluster).items():
            environ.setenv(name, value)
        async with app.cluster() as running:
            yield running


@pytest_asyncio.fixture(loop_scope="module")
async def connection(cluster: Cluster) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(cluster.servers.postgres)
    yield connection
    await connection.close()


def _variables(cluster: Cluster) -> dict[str, str]:
    return cluster._env | cluster.servers.variables()


async def effects(cluster: Cluster, execution: str) -> list[str]:
    schema = cluster._env["NOONDAY_POSTGRES_SCHEMA"]
    rows = await cluster.store.query(f"SELECT what FROM {schema}_shop.effects WHERE execution = $1", execution)
    return [row[0] for row in rows]


async def ended(cluster: Cluster, running: Running, job: JobView) -> ExecutionView:
    row = await cluster.execution({"jobId": job.job_id}, "SUCCEEDED")
    return await running.get_execution(str(row["id"]))


async def test_an_application_creates_jobs_of_a_cluster_and_reads_their_results(running: Running) -> None:
    job = await app.enqueue(ship, {"order": 1})
    assert await app.result(job, timeout=60) == "shipped 1"
    assert len(await app.enqueue_many([app.spec_for(ship, {"order": 2}, delay=3600)])) == 1
    assert (await running.get_job(job.job_id)).state == "COMPLETED"


async def test_declared_jobs_exist_on_the_cluster(cluster: Cluster, running: Running) -> None:
    jobs = (await cluster.get("/v1/jobs?uniqueKey=code:nightly"))["jobs"]
    assert [job["name"] for job in jobs] == ["nightly"]


async def test_a_job_of_a_committed_transaction_runs_at_once(
    cluster: Cluster, running: Running, connection: Any
) -> None:
    async with connection.transaction():
        job = await app.enqueue(ship, {"order": 3}, connection=connection)
    execution = await ended(cluster, running, job)
    assert (execution.state, execution.result, execution.attempt) == ("SUCCEEDED", "shipped 3", 1)
    assert await effects(cluster, execution.execution_id) == ["shipped"]


async def test_a_job_of_psycopg_does_so_too(cluster: Cluster, running: Running) -> None:
    async with await psycopg.AsyncConnection.connect(cluster.servers.postgres) as connection:
        job = await app.enqueue(ship, {"order": 4}, connection=connection)
    assert await app.result(job, timeout=60) == "shipped 4"


async def test_a_job_of_a_transaction_that_was_rolled_back_never_was(
    cluster: Cluster, running: Running, connection: Any
) -> None:
    transaction = connection.transaction()
    await transaction.start()
    job = await app.enqueue(ship, {"order": 5}, connection=connection)
    await transaction.rollback()
    later = await app.enqueue(ship, {"order": 6})
    await app.result(later, timeout=60)
    assert (await cluster.ask("GET", f"/v1/jobs/{job.job_id}"))[0] == 404


async def test_a_handler_that_fails_before_its_commit_has_written_nothing(cluster: Cluster, running: Running) -> None:
    job = await app.enqueue(ship, {"order": 7, "failures": 1})
    execution = await ended(cluster, running, job)
    assert (execution.state, execution.attempt) == ("SUCCEEDED", 2)
    assert await effects(cluster, execution.execution_id) == ["shipped"]


async def test_work_of_a_handler_after_its_commit_changes_nothing(cluster: Cluster, running: Running) -> None:
    job = await app.enqueue("ship_and_go_on", {"order": 8})
    execution = await ended(cluster, running, job)
    assert execution.state == "SUCCEEDED"

    async def went_on() -> bool:
        return await effects(cluster, execution.execution_id) == ["shipped", "went on"]

    await until(went_on)
    after = await app.enqueue(ship, {"order": 9})
    await app.result(after, timeout=60)
    again = await running.get_execution(execution.execution_id)
    assert (again.state, again.attempt, again.dispatch, again.result) == ("SUCCEEDED", 1, 1, 8)


async def test_plain_function_cannot_complete(running: Running) -> None:
    job = await app.enqueue("plain")
    assert "only in a coroutine handler on a cluster" in await app.result(job, timeout=60)


async def test_dispatched_jobs_are_replayed(cluster: Cluster, running: Running) -> None:
    job = await app.enqueue(ship, {"order": 10})
    await app.result(job, timeout=60)
    words = [
        "replay",
        "--pool",
        "shop",
        "--from",
        "-1h",
        "--to",
        "+1m",
        "--id",
        "once",
        "--url",
        str(cluster.one("api").url),
    ]

    counted = await _noonday(cluster, *words, "--dry-run", "--json")
    made = await _noonday(cluster, *words, "--yes", "--json", "--rate", "100", "--stop-after-failures", "1000")

    assert made["created"] == counted["executions"] > 0

    async def all_ran() -> bool:
        jobs = (await cluster.get("/v1/jobs?tag=replay:once&limit=500"))["jobs"]
        return len(jobs) == made["created"] and all(job["state"] == "COMPLETED" for job in jobs)

    await until(all_ran)


async def _noonday(cluster: Cluster, *words: str) -> Any:
    ran = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-m", "noonday", *words],
        env={"PATH": "/usr/bin:/bin", **_variables(cluster)},
        cwd=cluster.folder,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)
