"""Hundreds of simulation runs of an embedded Noonday: the process is killed and frozen, the disk is full, and a user
changes everything."""

import asyncio
import os
from datetime import timedelta

import pytest

from noonday.model.job import JobType, Overlap
from tests.simulation.embedded import OTHER, Simulation
from tests.simulation.kernel import FaultPlan
from tests.simulation.load import load_of

SEEDS = int(os.environ.get("NOONDAY_SIMULATION_SEEDS", "250"))
CHUNK = 25


def simulate(seed: int) -> list[str]:
    """Play one run: half a minute of requests under faults, then quiet."""
    kill = (0.0, 0.00026, 0.0013)[seed % 3]
    faults = FaultPlan(kill=kill, freeze=0.00026 if seed % 4 == 0 else 0.0, freeze_ms=(10, 8_000), limit=6)
    with Simulation(seed, faults=faults, concurrency=(8, 2)[seed % 2], load=load_of(seed)) as simulation:
        random = simulation.random

        async def director() -> None:
            jobs = []
            await simulation.keep()
            if seed % 5 == 3:
                await simulation.cap(3)
            if seed % 7 == 2:
                await simulation.rate(2.0)
            elif seed % 7 == 4:
                await simulation.cap(1, OTHER.tenant)
            for _ in range(12):
                job = await simulation.create_any()
                if job is not None:
                    jobs.append(job)
                await asyncio.sleep(random.random() * 2)
                if jobs and random.random() < 0.6:
                    await simulation.meddle(jobs)
                if random.random() < 0.1:
                    simulation.interrupt(random.randint(10, 3_000))
                if random.random() < 0.05:
                    await simulation.full_disk(random.random() * 3)
            if seed % 10 == 3:
                await simulation.cap(6)
            await simulation.resume_all(jobs)

        return simulation.run(director)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_no_promise_is_broken_in_any_run(first: int) -> None:
    broken = {seed: problems for seed in range(first, min(first + CHUNK, SEEDS)) if (problems := simulate(seed))}
    assert not broken, f"to see one again: simulate({next(iter(broken))}) in {__name__}\n{broken}"


def die_at(step: int) -> list[str]:
    """Play a short run with a failure and a schedule, killed right after the given step of its first process."""
    with Simulation(7, concurrency=2) as simulation:

        async def director() -> None:
            process = simulation.process
            assert process is not None
            begun = process.steps
            process.on_step = lambda steps: process.kill() if steps >= begun + step else None
            await simulation.create(simulation.spec(type=JobType.DELAYED, delay_sec=0.1, payload=FAILS_ONCE))
            end = simulation.instant() + timedelta(seconds=2.5)
            await simulation.create(
                simulation.spec(type=JobType.CRON, schedule="* * * * * *", end_at=end, overlap=Overlap.BUFFER_ONE)
            )
            await asyncio.sleep(4)

        return simulation.run(director)


FAILS_ONCE = {"v": 1, "do": "fail", "times": 1}
STEPS = 1_000
"""About the number of steps until the end of that run."""


@pytest.mark.slow
@pytest.mark.parametrize("first", range(10))
def test_no_promise_is_broken_by_dying_after_any_step(first: int) -> None:
    broken = {step: problems for step in range(first, STEPS, 10) if (problems := die_at(step))}
    assert not broken, f"to see one again: die_at({next(iter(broken))}) in {__name__}\n{broken}"


def die_while_retimed(step: int) -> tuple[list[str], int]:
    """Play a short run in which an occurrence is moved and a pause ends, killed right after the given step of its first process.

    Returns what it broke, and the number of steps of the first process.
    """
    with Simulation(7, concurrency=2) as simulation:

        async def director() -> None:
            process = simulation.process
            assert process is not None
            begun = process.steps

            def count(steps: int) -> None:
                taken[0] = steps - begun
                if taken[0] >= step:
                    process.kill()

            process.on_step = count
            now_ms, end = simulation.world.now_ms(), simulation.instant() + timedelta(seconds=6)
            jobs = [
                await simulation.create(simulation.spec(type=JobType.CRON, schedule="* * * * * *", end_at=end))
                for _ in range(2)
            ]
            moved, paused = (job.job_id if job else "" for job in jobs)
            at_ms = now_ms // 1_000 * 1_000 + 1_000
            if moved:
                await simulation.move(moved, at_ms, at_ms + 500)
                await simulation.move(moved, at_ms + 1_000, at_ms + 300)
            if paused:
                await simulation.pause_until(paused, now_ms + 1_700)
            await asyncio.sleep(4)
            process.on_step = None

        taken = [0]
        return simulation.run(director), taken[0]


@pytest.mark.slow
@pytest.mark.parametrize("first", range(10))
def test_no_promise_is_broken_by_dying_after_any_step_of_a_move_or_a_pause(first: int) -> None:
    broken, step = {}, first
    while True:
        problems, taken = die_while_retimed(step)
        if problems:
            broken[step] = problems
        if taken < step:
            break  # it has outlived the run
        step += 10
    assert not broken, f"to see one again: die_while_retimed({next(iter(broken))}) in {__name__}\n{broken}"
    assert step > first + 100, "the run has too few steps to be of use"
