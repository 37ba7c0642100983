"""Cuts that take too long for every run of the tests, and the variants of a cut."""

import os
from dataclasses import dataclass

import pytest

from tests.scenarios.cluster.cluster import Cluster, Job
from tests.scenarios.cluster.processes import Process
from tests.support.tcp_cutter import Cutter, Side

only_in_chaos = pytest.mark.skipif(not os.environ.get("CHAOS"), reason="takes long: set CHAOS=1 to run it")


@dataclass(frozen=True)
class Cut:
    """A cut between two processes and a server: of both directions or one, before a burst or in the middle of it."""

    towards: Side | None = None
    in_a_burst: bool = False

    def __str__(self) -> str:
        return f"{self.towards or 'both'}-{'burst' if self.in_a_burst else 'idle'}"

    async def happen(self, cluster: Cluster, cutter: Cutter, *victims: Process) -> list[Job]:
        """Cut, and return the jobs of the burst."""
        if self.in_a_burst:
            jobs = await cluster.create_many(200, within_sec=2)
            await cluster.started(jobs[20])
        await cutter.cut(self.towards)
        for victim in victims:
            cluster.note_cut_off(victim)
        return jobs if self.in_a_burst else await cluster.create_many(200, within_sec=1)


_LONG = [Cut(in_a_burst=True), Cut("server", in_a_burst=True), Cut("client", in_a_burst=True)]
every_cut = pytest.mark.parametrize("cut", [Cut(), *(pytest.param(cut, marks=only_in_chaos) for cut in _LONG)], ids=str)
