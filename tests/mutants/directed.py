"""Directed runs, each of which exercises one rule that random runs exercise too rarely. The same checker judges them."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from functools import partial
from typing import Any

import msgspec

from noonday.model.ids import ExecutionId
from noonday.model.job import Concurrency, JobSpec, JobType, Priority
from noonday.model.view import JobView
from noonday.worker.context import Context
from tests.simulation.bulk import bulk_retry_with_deaths
from tests.simulation.cluster import ClusterSimulation
from tests.simulation.embedded import USER, Simulation
from tests.simulation.kernel import Process

Director = Callable[[Any], Awaitable[None]]


class SlowFailures(Simulation):
    """Handlers that fail after a while, or when they are asked to end."""

    async def _behave(self, ctx: Context, payload: dict[str, Any]) -> Any:
        if payload.get("do") == "work, then fail":
            try:
                await asyncio.sleep(payload["sec"])
            except asyncio.CancelledError:
                raise ValueError("failed while it was cancelled") from None
            raise ValueError("failed after its work")
        return await super()._behave(ctx, payload)


def _play(director: Director, make: Callable[[int], Simulation], seed: int) -> list[str]:
    with make(seed) as simulation:
        return simulation.run(lambda: director(simulation))


def _one_shot(simulation: Simulation, delay_sec: float = 0.0, **fields: Any) -> JobSpec:
    return simulation.spec(type=JobType.DELAYED, delay_sec=delay_sec, **fields)


async def _until(condition: Callable[[], Any], seconds: float = 30) -> Any:
    """Wait for something that a mutant may prevent. Returns it, or None when the time is over."""
    for _ in range(int(seconds * 100)):
        if found := condition():
            return found
        await asyncio.sleep(0.01)
    return None


# -- ordering keys -----------------------------------------------------------------------------------------------------


async def ordering_keys(simulation: Simulation) -> None:
    """Jobs of two ordering keys and all priorities, some of which fail, snooze or take long."""
    random = simulation.random
    doing: list[dict[str, Any]] = [
        {},
        {"do": "fail", "times": 1},
        {"do": "sleep", "sec": 0.5},
        {"do": "snooze", "times": 1},
    ]
    for _ in range(16):
        await simulation.create(
            _one_shot(
                simulation,
                random.choice([0.0, 0.3, 1.0, 3.0]),
                payload={"v": 1, **random.choice(doing)},
                priority=random.choice(list(Priority)),
                concurrency=Concurrency(random.choice(["a", "b"]), 1, ordered=True),
            )
        )
        await asyncio.sleep(random.random() * 0.3)


# -- requests about dispatched executions ------------------------------------------------------------------------------


async def requests_before_start(simulation: Simulation) -> None:
    """Cancel executions that are dispatched and wait for a slot of the worker, and pause, edit and delete their jobs."""
    random = simulation.random
    jobs: dict[str, JobView] = {}
    for _ in range(6):
        job = await simulation.create(_each_second(simulation, 10))
        if job is not None:
            jobs[job.job_id] = job
    for _ in range(30):
        await asyncio.sleep(random.random() * 0.4)
        query = "SELECT id, job_id FROM executions WHERE state = 0 AND fired_ms IS NOT NULL"
        dispatched = simulation.disk.conn.execute(query).fetchall()
        if dispatched:
            action = random.choice(["cancel", "replace", "replace", "replace", "pause", "delete"])
            await _ask(simulation, action, *random.choice(dispatched))
        if random.random() < 0.2:
            await simulation.resume_all(list(jobs.values()))
    await simulation.resume_all(list(jobs.values()))


def _each_second(simulation: Simulation, seconds: float, value: int = 1) -> JobSpec:
    return simulation.spec(
        type=JobType.CRON,
        schedule="* * * * * *",
        end_at=simulation.instant() + timedelta(seconds=seconds),
        payload={"v": value, "do": "sleep", "sec": 0.4},
    )


async def _ask(simulation: Simulation, action: str, execution: str, job: str) -> None:
    if action == "cancel":
        await simulation.ask("cancel", execution, lambda e: e.services.executions.cancel(USER, ExecutionId(execution)))
    elif action != "replace":
        await simulation.ask(action, job, lambda e: getattr(e.services.jobs, action)(USER, job))
    elif (known := simulation._specs.get(job)) is not None:
        payload = {**known.payload, "v": simulation.world.now_ms()}
        await simulation.replace(job, msgspec.structs.replace(known, payload=payload))


async def requests_before_failure(simulation: Simulation) -> None:
    """Cancel executions, and delete their jobs, while they run and before they fail."""
    random = simulation.random
    effects = simulation.history.effects
    for number in range(8):
        sec = random.choice([0.3, 0.8, 2.0])
        payload = {"v": 1, "n": number, "do": "work, then fail", "sec": sec}
        job = await simulation.create(_one_shot(simulation, payload=payload))
        begun = await _until(lambda n=number: [each for each in effects if each.payload["n"] == n])
        if job is not None and begun:
            await asyncio.sleep(random.random() * sec * 0.8)
            await _ask(simulation, random.choice(["cancel", "delete"]), begun[0].execution, job.job_id)


# -- a cluster ---------------------------------------------------------------------------------------------------------


async def _create_some(simulation: ClusterSimulation, count: int, secs: Sequence[float]) -> None:
    for _ in range(count):
        await simulation.create(
            _one_shot(simulation, payload={"v": 1, "do": "sleep", "sec": simulation.random.choice(secs)})
        )
        await asyncio.sleep(simulation.random.random() * 0.3)


async def workers_come_and_go(simulation: ClusterSimulation) -> None:
    """Stop and start a worker again and again: messages that another worker runs are delivered to it."""
    creating = asyncio.create_task(_create_some(simulation, 60, [0.3, 0.8, 2.5]))
    while not creating.done():
        await asyncio.sleep(simulation.random.random())
        await simulation.stop("worker-1")
        await simulation.let_up("worker-1")
    await creating


async def answers_to_reports_are_lost(simulation: ClusterSimulation) -> None:
    """The log has a report, and the acknowledgement to its worker is lost, so that the worker sends it again."""
    creating = asyncio.create_task(_create_some(simulation, 20, [0.05, 0.3]))
    while not creating.done():
        caught = simulation.at("report", "worker", partial(_cut_from_kafka, simulation), done=True)
        await _until(lambda caught=caught: caught or creating.done())
        await asyncio.sleep(2)
    await creating


def _cut_from_kafka(simulation: ClusterSimulation, process: Process) -> None:
    cut, now_ms = (process.name, "kafka"), simulation.world.now_ms()
    simulation.network.cuts.add(cut)
    simulation.history.cuts.append((*cut, now_ms, now_ms + 1_000))
    simulation.world.loop.call_later(1.0, simulation.network.cuts.discard, cut)


async def owner_wakes_in_its_fire(simulation: ClusterSimulation) -> None:
    """A scheduler freezes before the store has its fire.

    It wakes when another instance owns its partitions and has not fired yet.
    """
    creating = asyncio.create_task(_create_some(simulation, 40, [0.05]))
    for _ in range(3):
        former = simulation.at("fire", "scheduler", lambda process: process.freeze(9_000))
        await _until(lambda former=former: former)
        successor = simulation.at("take_over", "scheduler", lambda process: process.freeze(9_000), done=True)
        await _until(lambda successor=successor: successor)
        await asyncio.sleep(20)
    await creating


def _cluster(seed: int) -> ClusterSimulation:
    return ClusterSimulation(seed, concurrency=4)


def _killed_in_a_bulk_operation(seed: int) -> list[str]:
    with Simulation(seed) as simulation:
        simulation.knows_limits = False
        return simulation.run(lambda: bulk_retry_with_deaths(simulation))


DIRECTED: dict[str, Callable[[int], list[str]]] = {
    "ordering keys": partial(_play, ordering_keys, Simulation),
    "requests before start": partial(_play, requests_before_start, lambda seed: Simulation(seed, concurrency=2)),
    "requests before failure": partial(_play, requests_before_failure, SlowFailures),
    "workers come and go": partial(_play, workers_come_and_go, _cluster),
    "answers to reports are lost": partial(_play, answers_to_reports_are_lost, _cluster),
    "owner wakes in its fire": partial(_play, owner_wakes_in_its_fire, _cluster),
    "bulk operation is killed": _killed_in_a_bulk_operation,
}
