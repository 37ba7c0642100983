"""Jobs of one ordering key, and everything that may happen to the first of them."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from noonday.model.job import CatchUp, CatchUpPolicy, Concurrency, JobSpec, Overlap
from noonday.model.view import JobView, TenantSettings
from tests.simulation.embedded import USER, Simulation
from tests.simulation.kernel import FaultPlan
from tests.simulation.test_named_seeds import created, each_second, kill, once, one, play, states, until
from tests.simulation.test_tenants import settle_for

ORDERED = Concurrency("customer-42", 1, ordered=True)
Scenario = Callable[[Simulation], Awaitable[None]]


def ordered(simulation: Simulation, delay: float = 0.0, do: str = "", **fields: Any) -> JobSpec:
    return once(simulation, delay, payload={"v": 1, "do": do, **fields}, concurrency=ORDERED)


def ran(simulation: Simulation) -> list[str]:
    """The jobs of all runs, in the order of their starts."""
    job_of = dict(simulation.disk.conn.execute("SELECT id, job_id FROM executions").fetchall())
    return [job_of[effect.execution] for effect in sorted(simulation.history.effects, key=lambda e: e.start_ms)]


async def waiting_for_a_retry(simulation: Simulation, job: JobView) -> str:
    query = "SELECT id FROM executions WHERE job_id = ? AND attempt > 1 AND fired_ms IS NULL AND state = 0"
    (execution,) = await until(lambda: one(simulation, query, job.job_id))
    return str(execution)


@pytest.mark.slow
def test_retry_blocks_the_next_job() -> None:
    jobs: list[JobView] = []

    async def scenario(simulation: Simulation) -> None:
        jobs.append(await created(simulation, ordered(simulation, do="fail", times=2)))
        jobs.append(await created(simulation, ordered(simulation)))
        jobs.append(await created(simulation, ordered(simulation)))

    simulation = play(scenario)
    first, second, third = [job.job_id for job in jobs]
    assert ran(simulation) == [first, first, first, second, third]


@pytest.mark.slow
def test_snoozed_execution_blocks_the_next_job() -> None:
    jobs: list[JobView] = []

    async def scenario(simulation: Simulation) -> None:
        jobs.append(await created(simulation, ordered(simulation, do="snooze", times=2)))
        jobs.append(await created(simulation, ordered(simulation)))

    simulation = play(scenario)
    first, second = [job.job_id for job in jobs]
    assert ran(simulation)[-1] == second
    assert ran(simulation).count(second) == 1
    assert ran(simulation).count(first) > 1


@pytest.mark.slow
def test_dead_execution_frees_the_ordering_key() -> None:
    async def scenario(simulation: Simulation) -> None:
        await created(simulation, ordered(simulation, do="fail", times=99))
        await created(simulation, ordered(simulation))

    assert sorted(states(play(scenario))) == ["DEAD", "SUCCEEDED"]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_order_survives_the_death_of_the_process(seed: int) -> None:
    jobs: list[JobView] = []

    async def scenario(simulation: Simulation) -> None:
        specs = [ordered(simulation, 2.0 + n / 100, do="sleep", sec=3) for n in range(6)]
        jobs.extend([await created(simulation, spec) for spec in specs])
        await until(lambda: simulation.history.effects)
        await kill(simulation)
        await asyncio.sleep(8)
        await kill(simulation)

    simulation = play(scenario, seed)
    assert states(simulation) == ["SUCCEEDED"] * 6
    assert list(dict.fromkeys(ran(simulation))) == [job.job_id for job in jobs]


def test_job_paused_while_it_waits_for_a_retry_frees_the_ordering_key() -> None:
    jobs: list[JobView] = []

    async def scenario(simulation: Simulation) -> None:
        jobs.append(await created(simulation, ordered(simulation, do="fail", times=1)))
        jobs.append(await created(simulation, ordered(simulation)))
        first, second = jobs
        await waiting_for_a_retry(simulation, first)
        await simulation.ask("pause", first.job_id, lambda e: e.services.jobs.pause(USER, first.job_id))
        await until(
            lambda: one(simulation, "SELECT 1 FROM executions WHERE job_id = ? AND state = 5", second.job_id), 5
        )
        await simulation.ask("resume", first.job_id, lambda e: e.services.jobs.resume(USER, first.job_id))

    simulation = play(scenario)
    first, second = [job.job_id for job in jobs]
    assert ran(simulation) == [first, second, first]


def test_to_cancel_one_that_waits_for_a_retry_lets_the_next_go() -> None:
    async def scenario(simulation: Simulation) -> None:
        first = await created(simulation, ordered(simulation, do="fail", times=99))
        await created(simulation, ordered(simulation))
        execution = await waiting_for_a_retry(simulation, first)
        await simulation.ask("cancel", execution, lambda e: e.services.executions.cancel(USER, execution))

    assert sorted(states(play(scenario))) == ["CANCELLED", "SUCCEEDED"]


@pytest.mark.slow
def test_schedules_take_their_turns_with_one_shots() -> None:
    async def scenario(simulation: Simulation) -> None:
        every = CatchUp(CatchUpPolicy.ALL, 3600)
        for overlap in (Overlap.ALLOW, Overlap.BUFFER_ALL):
            payload = {"v": 1, "do": "sleep", "sec": 0.3}
            fields = {"catch_up": every, "overlap": overlap, "concurrency": ORDERED, "payload": payload}
            await created(simulation, each_second(simulation, 8, **fields))
        for n in range(5):
            await created(simulation, ordered(simulation, n + 0.5))

    simulation = play(scenario)
    rows = simulation.disk.conn.execute("SELECT id, due_ms, job_id FROM executions").fetchall()
    due = {execution: (due_ms, job) for execution, due_ms, job in rows}
    order = [due[effect.execution] for effect in sorted(simulation.history.effects, key=lambda e: e.start_ms)]
    assert order == sorted(order)
    assert len(order) > 15


@pytest.mark.slow
def test_each_of_many_jobs_follows_as_soon_as_the_former_one_ended() -> None:
    jobs: list[JobView] = []

    async def scenario(simulation: Simulation) -> None:
        jobs.extend([await created(simulation, ordered(simulation, 3.0)) for _ in range(60)])

    simulation = play(scenario)
    assert ran(simulation) == sorted(job.job_id for job in jobs)
    last = max(effect.start_ms for effect in simulation.history.effects)
    first = min(effect.start_ms for effect in simulation.history.effects)
    assert last - first < 60 * 100


@pytest.mark.slow
def test_jobs_that_wait_for_their_ordering_key_use_up_no_rate() -> None:
    async def scenario(simulation: Simulation) -> None:
        await settle_for(simulation, USER.tenant, TenantSettings(rate_per_sec=2, burst=1))
        await created(simulation, ordered(simulation, do="sleep", sec=60))
        for _ in range(20):
            await created(simulation, ordered(simulation, 1.0))
        await asyncio.sleep(5)
        for _ in range(20):
            await created(simulation, once(simulation))
        await until(lambda: len(simulation.history.effects) == 21, 15)

    assert states(play(scenario, knows_limits=False)) == ["SUCCEEDED"] * 41


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_ordering_keys_hold_in_runs_of_ordered_jobs_alone(seed: int) -> None:
    faults = FaultPlan(kill=0.0005, freeze=0.0002, freeze_ms=(10, 8_000), limit=4)
    doing = [{}, {"do": "fail", "times": 1}, {"do": "sleep", "sec": 0.5}, {"do": "snooze", "times": 1}]

    async def scenario(simulation: Simulation) -> None:
        jobs = []
        for _ in range(20):
            fields: dict[str, Any] = simulation.random.choice(doing)
            job = await simulation.create(ordered(simulation, simulation.random.random() * 10, **fields))
            jobs += [job] if job else []
            if jobs and simulation.random.random() < 0.3:
                await simulation.meddle(jobs)
        await simulation.resume_all(jobs)

    play(scenario, seed, faults=faults)
