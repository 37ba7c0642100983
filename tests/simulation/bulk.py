"""A bulk operation whose process is killed again and again."""

import asyncio
from random import Random
from typing import Any

import msgspec

from noonday.model.job import JobType
from noonday.model.operation import OperationFilter, OperationKind, OperationRequest
from tests.simulation.embedded import USER, Simulation

DEAD_LETTERS = 12
REQUEST = OperationRequest(
    kind=OperationKind.RETRY_DEAD_LETTERS,
    filter=OperationFilter(),
    sample_size=2,
    rate_per_sec=5,
    stop_above_percent=100,
)
DEATHS = 4


async def bulk_retry_with_deaths(simulation: Simulation) -> None:
    """Retry dead letters in bulk. The retries fail, too: they are dead letters that are too young for the operation."""
    for number in range(DEAD_LETTERS):
        payload = {"v": number, "do": "fail", "times": 99}
        await simulation.create(simulation.spec(type=JobType.DELAYED, delay_sec=0, payload=payload))
    await _until(simulation, f"SELECT count(*) >= {DEAD_LETTERS} FROM dead")
    await asyncio.sleep(1)
    await simulation.ask("operation", "", lambda engine: engine.services.operations.create(USER, REQUEST))
    await _until(simulation, "SELECT count(*) FROM operations")
    random = Random(f"deaths/{simulation.world.seed}")
    for _ in range(DEATHS):
        await asyncio.sleep(random.random() * 2)
        if simulation.process is not None and simulation.process.alive:
            simulation.process.kill()
        await asyncio.sleep(0.1)
    await _until(simulation, "SELECT count(*) FROM operations WHERE state = 'DONE'", 600)
    simulation.history.problems += _flaws(simulation)


def _flaws(simulation: Simulation) -> list[str]:
    """Return what the operation lost, repeated or counted wrongly."""
    counts = msgspec.json.decode(_first(simulation, "SELECT body FROM operations"))["counts"]
    found = {
        "done": counts["done"],
        "skipped or failed": counts["skipped"] + counts["failed"],
        "retries": _first(simulation, "SELECT count(*) FROM executions WHERE retry_of IS NOT NULL"),
        "entries of the audit": _first(simulation, "SELECT count(*) FROM audit WHERE action = 'dead.retry'"),
    }
    wanted = {**dict.fromkeys(found, DEAD_LETTERS), "skipped or failed": 0}
    return [f"operation: {found[name]} {name}, not {wanted[name]}" for name in found if found[name] != wanted[name]]


def _first(simulation: Simulation, query: str) -> Any:
    return simulation.disk.conn.execute(query).fetchone()[0]


async def _until(simulation: Simulation, query: str, seconds: float = 60) -> None:
    """Wait for something that a mutant may prevent."""
    for _ in range(int(seconds * 10)):
        if _first(simulation, query):
            return
        await asyncio.sleep(0.1)
