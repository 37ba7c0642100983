"""Hundreds of simulation runs of notifications: the process is killed and frozen while notifications are posted and sent."""

import asyncio
import os

import pytest

from noonday.model.notifications.sending import ChannelKind
from tests.simulation.kernel import FaultPlan
from tests.simulation.notifications import NotificationSimulation

SEEDS = int(os.environ.get("NOONDAY_NOTIFICATION_SEEDS", "1000"))
CHUNK = 50


def simulate(seed: int) -> list[str]:
    """Play one run: a minute and a half of notifications under faults, then quiet."""
    kill = (0.0, 0.0006, 0.003)[seed % 3]
    faults = FaultPlan(kill=kill, freeze=0.0004 if seed % 4 == 0 else 0.0, freeze_ms=(10, 100_000), limit=8)
    with NotificationSimulation(seed, faults) as simulation:

        async def director() -> None:
            for _ in range(14):
                await simulation.post(simulation.any_notification())
                await asyncio.sleep(simulation.random.choice([0, 0.01, 0.3, 2, 20]))
            if simulation.is_slow:  # faults also while buckets are closed whose dispatches wait
                await asyncio.sleep(90)

        return simulation.run(director)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_no_promise_of_notifications_is_broken(first: int) -> None:
    broken = {seed: problems for seed in range(first, min(first + CHUNK, SEEDS)) if (problems := simulate(seed))}
    assert not broken, f"to see one again: simulate({next(iter(broken))}) in {__name__}\n{broken}"


def die_at(step: int) -> list[str]:
    """Play a short run of two notifications, killed right after the given step of its first process."""
    with NotificationSimulation(7) as simulation:

        async def director() -> None:
            process = simulation.process
            assert process is not None
            begun = process.steps
            process.on_step = lambda steps: process.kill() if steps >= begun + step else None
            while len(simulation.history.requests) < 2:
                notification = simulation.any_notification()
                if ChannelKind.EMAIL in notification.channels:
                    await simulation.post(notification)
                await asyncio.sleep(0.1)

        return simulation.run(director)


STEPS = 600


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, STEPS, 50))
def test_a_kill_at_any_step_loses_and_repeats_nothing(first: int) -> None:
    broken = {step: problems for step in range(first, first + 50) if (problems := die_at(step))}
    assert not broken, f"to see one again: die_at({next(iter(broken))}) in {__name__}\n{broken}"
