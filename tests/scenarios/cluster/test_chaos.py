"""A short run of `make chaos`."""

from collections import Counter
from pathlib import Path

import pytest

from tests.scenarios.cluster.chaos.run import Plan, run_chaos
from tests.scenarios.cluster.chaos.script import (
    KINDS,
    PROCESS_FAULTS,
    REACHES,
    SERVER_FAULTS,
    Step,
    seats_of,
    write_script,
)

SEED = 38
SMALL = {"api": 1, "scheduler": 2, "recorder": 2, "worker": 2}


@pytest.mark.slow
async def test_a_cluster_that_is_broken_in_many_ways_keeps_its_promises(tmp_path: Path) -> None:
    report = await run_chaos(tmp_path, Plan(SEED, seconds=20, kinds=SMALL, users=3, quiet_sec=600), say=print)

    print(report.text)
    assert not report.broken, report.text


def test_a_seed_always_writes_the_same_script() -> None:
    assert script_of(7) == script_of(7) != script_of(8)


@pytest.mark.slow
def test_a_long_script_has_every_fault_of_every_table() -> None:
    steps = Counter((step.whom.split()[0], step.what, step.server) for step in script_of(7, seconds=50_000))

    on_wires = {(kind, what, server) for kind in KINDS for what in ("cut", "refuse") for server in REACHES[kind]}
    on_processes = {(kind, what, "") for kind in KINDS for what in PROCESS_FAULTS.keys() - {"cut", "refuse"}}
    on_servers = {(server, what, "") for server, faults in SERVER_FAULTS.items() for what in faults}
    assert steps.keys() == on_wires | on_processes | on_servers


def script_of(seed: int, seconds: float = 600) -> list[Step]:
    return list(write_script(seed, seconds, 2.0, seats_of(KINDS)))
