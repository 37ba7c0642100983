"""Carry out a script. Each step meets the process that has its seat at that time."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from redis.asyncio import Redis as RedisClient

from servers import Server
from tests.scenarios.cluster.chaos.script import Step
from tests.scenarios.cluster.chaos.seats import Seat
from tests.scenarios.cluster.chaos.site import Site
from tests.scenarios.cluster.cluster import Cluster
from tests.scenarios.cluster.history import BROKER, EVERYONE, Fault
from tests.scenarios.server_run import now_ms

VICTIMS = {"redis": EVERYONE, "kafka": BROKER}
"""The victims of the loss of a server, as far as second runs are concerned: claims are in Redis, reports go through Kafka."""


@dataclass(frozen=True)
class Done:
    """A step that was carried out, with its start and end."""

    step: Step
    at_ms: int
    until_ms: int


class Faults:
    """The faults that were carried out, and the number of those that were not: a seat was empty, or a server already
    harmed."""

    def __init__(self, cluster: Cluster, site: Site, seats: Mapping[str, Seat]) -> None:
        self.done: list[Done] = []
        self.left_out = 0
        self.begun = 0
        self._cluster = cluster
        self._site = site
        self._seats = seats
        self._harmed: set[str] = set()

    async def carry_out(self, script: Iterable[Step]) -> None:
        """Carry out all steps. Returns when all faults are healed."""
        began = asyncio.get_running_loop().time()
        async with asyncio.TaskGroup() as group:
            for step in script:
                await asyncio.sleep(began + step.at_sec - asyncio.get_running_loop().time())
                group.create_task(self._take(step))

    async def _take(self, step: Step) -> None:
        at_ms = now_ms()
        self.begun += 1
        happened = await (self._harm_seat(step) if step.whom in self._seats else self._harm_server(step))
        if happened:
            self.done.append(Done(step, at_ms, now_ms()))
        else:
            self.left_out += 1
            self.begun -= 1

    async def _harm_seat(self, step: Step) -> bool:
        seat = self._seats[step.whom]
        match step.what:
            case "kill":
                return seat.kill(step.lasts_sec)
            case "freeze":
                return await seat.freeze(step.lasts_sec)
            case "stop":
                return await seat.stop()
            case "cut":
                return await seat.cut(step.server, step.towards, step.lasts_sec)
            case "refuse":
                return await seat.refuse(step.server, step.lasts_sec)
        raise ValueError(f"nobody can {step.what} a process")

    async def _harm_server(self, step: Step) -> bool:
        if step.whom in self._harmed:
            return False
        self._harmed.add(step.whom)
        forgot = step.whom == "redis" and step.what in ("flush", "empty")
        fault = Fault(f"{step.whom}: {step.what}", VICTIMS.get(step.whom, step.whom), now_ms(), forgot=forgot)
        self._cluster.faults.append(fault)
        try:
            if step.what == "flush":
                await self._flush()
            else:
                await self._interrupt(self._site.servers[step.whom], step)
        finally:
            fault.until_ms = now_ms()
            self._harmed.discard(step.whom)
        return True

    async def _interrupt(self, server: Server, step: Step) -> None:
        away: Mapping[str, Callable[[], object]] = {
            "restart": server.stop,
            "kill": server.kill,
            "freeze": server.pause,
            "empty": server.wipe,
        }
        try:
            await asyncio.to_thread(away[step.what])
            await asyncio.sleep(step.lasts_sec)
        finally:
            await asyncio.to_thread(server.resume if step.what == "freeze" else server.start)

    async def _flush(self) -> None:
        async with RedisClient.from_url(self._site.redis.url) as client:
            await client.flushall()
