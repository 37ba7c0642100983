"""One of three brokers dies: the others carry on."""

import asyncio
from pathlib import Path

import pytest

from servers import Kafka, free_ports
from tests.scenarios.cluster.cluster import Servers, cluster_on
from tests.scenarios.cluster.cuts import only_in_chaos
from tests.scenarios.process import job_body


@pytest.mark.slow
@only_in_chaos
async def test_one_of_three_brokers_is_killed(tmp_path: Path) -> None:
    kafka = Kafka(tmp_path / "kafka", free_ports(6), nodes=3, throwaway=True)
    try:
        await asyncio.to_thread(kafka.start)
        async with cluster_on(tmp_path, Servers.shared(kafka=kafka.url)) as cluster:
            await cluster.have(api=1, scheduler=1, recorder=1, worker=2)
            release = cluster.new_hold()
            running = await cluster.create_all([job_body("stay", {"until": str(release)})] * 10)
            for job in running:
                await cluster.execution(job, "RUNNING")
            jobs = await cluster.create_many(300, within_sec=4)
            await cluster.started(jobs[50])

            kafka.kill(node=1)
            await cluster.done(jobs)
            release.touch()
            await cluster.done(running)

            print(f"\none of three brokers killed: late at most {await cluster.lateness(jobs):.2f} s")
            assert all(len(cluster.lines("start", job)) == 1 for job in running)
            assert not await cluster.problems()
    finally:
        await asyncio.to_thread(kafka.wipe)
