"""Kafka carries dispatches and reports: while it is away, nothing starts, running executions go on, and nothing is lost."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from servers import Kafka, free_ports
from tests.scenarios.cluster.cluster import Cluster, Servers, cluster_on
from tests.scenarios.cluster.cuts import Cut, every_cut
from tests.scenarios.process import job_body, until
from tests.support.tcp_cutter import HOST, Cutter

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]


@pytest.fixture(scope="module")
def side_doors() -> list[int]:
    """Additional listeners of the broker, and the addresses that it advertises: the ports of cutters."""
    return free_ports(2)


@pytest.fixture(scope="module")
def kafka(folder: Path, side_doors: list[int]) -> Iterator[Kafka]:
    """Start a broker with a listener for each cutter: clients connect to the address that the broker advertises."""
    client, controller = ports = free_ports(2)
    behind, cutter = side_doors
    settings = {
        "listeners": f"CLIENT://{HOST}:{client},CUT://{HOST}:{behind},CONTROLLER://{HOST}:{controller}",
        "advertised.listeners": f"CLIENT://{HOST}:{client},CUT://{HOST}:{cutter}",
        "listener.security.protocol.map": "CLIENT:PLAINTEXT,CUT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    }
    with Kafka(folder / "kafka", ports, nodes=1, settings=settings, throwaway=True) as kafka:
        yield kafka


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cutter(kafka: Kafka, side_doors: list[int]) -> AsyncIterator[Cutter]:
    async with Cutter(HOST, side_doors[0], side_doors[1]) as cutter:
        yield cutter


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(folder: Path, kafka: Kafka) -> AsyncIterator[Cluster]:
    async with cluster_on(folder, Servers.shared(kafka=kafka.url)) as cluster:
        yield cluster


@pytest_asyncio.fixture(autouse=True, loop_scope="module")
async def no_promise_is_broken(cluster: Cluster, cutter: Cutter, kafka: Kafka) -> AsyncIterator[None]:
    await cluster.have(api=1, scheduler=1, recorder=1, worker=1)
    yield
    await cutter.heal()
    kafka.start()
    cluster.release_all()
    await cluster.quiet()
    assert not await cluster.problems()


async def test_the_broker_is_restarted(cluster: Cluster, kafka: Kafka) -> None:
    release = cluster.new_hold()
    running = await cluster.create_all([job_body("stay", {"until": str(release)})] * 10)
    for job in running:
        await cluster.execution(job, "RUNNING")
    await cluster.create_rhythm(20, for_sec=5)
    jobs = await cluster.create_many(300, within_sec=3)
    await cluster.started(jobs[50])

    await asyncio.to_thread(kafka.stop)
    release.touch()
    await until(lambda: all(cluster.lines("end", job) for job in running))
    await asyncio.to_thread(kafka.start)
    await cluster.done([*running, *jobs])

    assert all(len(cluster.lines("start", job)) == 1 for job in running)
    print(f"\nbroker restarted: late at most {await cluster.lateness(jobs):.2f} s")


@every_cut
async def test_process_cut_off_from_kafka_is_replaced(cluster: Cluster, cutter: Cutter, cut: Cut) -> None:
    servers = cluster.servers.seen(kafka=f"{HOST}:{cutter.port}")
    scheduler, recorder = cluster.serve("scheduler", servers=servers), cluster.serve("recorder", servers=servers)
    worker = cluster.work(servers=servers)
    with cluster.guest(scheduler), cluster.guest(recorder), cluster.guest(worker):
        await cluster.ready(scheduler, recorder, worker)
        await cluster.owned_by(2)
        await cluster.until_it_works(worker)
        await cluster.all_recorded()

        jobs = await cut.happen(cluster, cutter, worker)
        await cluster.done(jobs)
        await cluster.all_recorded()

    print(f"\ncut off from Kafka: late at most {await cluster.lateness(jobs):.2f} s")


async def test_a_worker_cut_off_from_kafka_stops_nevertheless(cluster: Cluster, cutter: Cutter) -> None:
    """The recorder of the worker marks it as lost, and so finds the runs that it could not report."""
    servers = cluster.servers.seen(kafka=f"{HOST}:{cutter.port}")
    for other in cluster.alive("worker"):
        cluster.kill(other)
    worker = cluster.work(servers=servers)
    await cluster.ready(worker)
    await cluster.until_it_works(worker)
    release = cluster.new_hold()
    (job,) = await cluster.create_all([job_body("stay", {"until": str(release)})])
    await cluster.execution(job, "RUNNING")

    await cutter.cut()
    cluster.note_cut_off(worker)
    worker.stop()

    await worker.exit_code()
    assert "stopped without acknowledged reports" in worker.output
    release.touch()
    await cluster.have(worker=1)
    await cluster.done([job])
