"""PostgreSQL is the truth: without it no request is accepted and nothing fires, and no running execution is lost."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from servers import Postgres, free_port
from tests.scenarios.cluster.cluster import Answered, Cluster, Servers, cluster_on
from tests.scenarios.cluster.cuts import Cut, every_cut, only_in_chaos
from tests.scenarios.process import job_body, until
from tests.support.tcp_cutter import HOST, Cutter

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]


@pytest.fixture(scope="module")
def postgres(folder: Path) -> Iterator[Postgres]:
    with Postgres(folder / "postgres", free_port(), throwaway=True) as postgres:
        yield postgres


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(folder: Path, postgres: Postgres) -> AsyncIterator[Cluster]:
    async with cluster_on(folder, Servers.shared(postgres=postgres.url)) as cluster:
        yield cluster


@pytest_asyncio.fixture(autouse=True, loop_scope="module")
async def no_promise_is_broken(cluster: Cluster, postgres: Postgres) -> AsyncIterator[None]:
    await cluster.have(api=1, scheduler=1, recorder=1, worker=1)
    yield
    postgres.resume()
    postgres.start()
    cluster.release_all()
    await cluster.quiet()
    assert not await cluster.problems()


async def test_while_postgres_is_away_handlers_finish_and_their_reports_wait(
    cluster: Cluster, postgres: Postgres
) -> None:
    release = cluster.new_hold()
    running = await cluster.create_all([job_body("stay", {"until": str(release)})] * 10)
    for job in running:
        await cluster.execution(job, "RUNNING")
    await cluster.create_rhythm(20, for_sec=5)
    jobs = await cluster.create_many(300, within_sec=3)
    await cluster.started(jobs[50])

    in_trouble = [process.will_say("round failed") for process in cluster.alive("scheduler", "recorder")]
    await asyncio.to_thread(postgres.stop)
    status, problem, headers = await answer_to_create(cluster)
    release.touch()
    await until(lambda: len(cluster.lines("end")) >= 10 and all(cluster.lines("end", job) for job in running))
    await asyncio.gather(*in_trouble)
    await asyncio.to_thread(postgres.start)

    await cluster.done([*running, *jobs])
    assert status == 503, problem
    assert int(headers["Retry-After"]) > 0
    assert all(len(cluster.lines("start", job)) == 1 for job in running)
    print(f"\nPostgreSQL restarted: late at most {await cluster.lateness(jobs):.2f} s")


@only_in_chaos
async def test_a_postgres_that_stands_still_for_all_starts_no_storm_of_take_overs(
    cluster: Cluster, postgres: Postgres
) -> None:
    await cluster.have(scheduler=2)
    epochs = await cluster.epochs()
    jobs = await cluster.create_many(200, within_sec=2)
    await cluster.started(jobs[20])

    given_up = [scheduler.will_say("giving up the lease") for scheduler in cluster.alive("scheduler")]
    postgres.pause()
    await asyncio.gather(*given_up)
    postgres.resume()
    await cluster.done(jobs)
    await cluster.owned_by(2)

    # Once when each of the two is back, and once when its share is assigned to it.
    assert max(epoch - epochs[partition] for partition, epoch in (await cluster.epochs()).items()) <= 4
    print(f"\nPostgreSQL stood still: late at most {await cluster.lateness(jobs):.2f} s")


async def test_a_frozen_postgres_is_answered_with_503(cluster: Cluster, postgres: Postgres) -> None:
    postgres.pause()
    began = time.monotonic()
    status, problem, _ = await answer_to_create(cluster)
    took = time.monotonic() - began
    postgres.resume()

    assert status == 503, problem
    print(f"\nPostgreSQL frozen: answered after {took:.1f} s")


@every_cut
async def test_process_cut_off_from_postgres_is_replaced(cluster: Cluster, postgres: Postgres, cut: Cut) -> None:
    count = len(cluster.alive("scheduler"))
    async with Cutter(HOST, postgres.port) as cutter:
        servers = cluster.servers.seen(postgres=f"postgresql://postgres@{HOST}:{cutter.port}/noonday")
        scheduler, recorder = cluster.serve("scheduler", servers=servers), cluster.serve("recorder", servers=servers)
        leaving = cluster.serve("api,scheduler", servers=servers)
        with cluster.guest(scheduler), cluster.guest(recorder), cluster.guest(leaving):
            await cluster.ready(scheduler, recorder, leaving)
            await cluster.owned_by(count + 2)
            await cluster.all_recorded()

            jobs = await cut.happen(cluster, cutter)
            took = await cluster.owned_by(count)
            await cluster.done(jobs)
            await cluster.all_recorded()
            leaving.stop()
            assert await leaving.exit_code() == 0, leaving.output
            await cutter.heal()
            await cluster.owned_by(count + 1)
            assert recorder.is_alive, recorder.output

    print(f"\nschedulers without PostgreSQL: others own all after {took:.2f} s")


async def answer_to_create(cluster: Cluster) -> Answered:
    return await cluster.ask("POST", "/v1/jobs", job_body("act"))
