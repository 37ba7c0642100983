"""The roles of one process: runs their loops, reports their health, and stops them in order."""

import asyncio
from collections.abc import Sequence

from noonday.runtime.supervise import Loop, StopDeadline, Tasks, reasons_not_ready
from noonday.wiring.roles.role import ProcessContext, ProcessRole


class RoleGroup:
    """Roles that share a process. They start and hand over in the given order, and finish in the opposite order."""

    def __init__(self, context: ProcessContext, roles: Sequence[ProcessRole]) -> None:
        self.loops: dict[str, Loop] = {name: loop for role in roles for name, loop in role.loops.items()}
        self._metrics = context.metrics
        self._roles = roles
        self._tasks = Tasks()

    def run(self) -> None:
        """Start a task for each loop."""
        for loop in self.loops.values():
            self._metrics.watch_tick(loop.name, loop.age_sec)
            self._tasks.spawn(loop.run(), loop.name)
        for role in self._roles:
            for name, coroutine in role.coroutines().items():
                self._tasks.spawn(coroutine, name)

    @property
    def failed(self) -> "asyncio.Future[None]":
        """Future that completes with the error of the first loop that ended. The caller then stops the process."""
        return self._tasks.failed

    def is_live(self) -> bool:
        return not self.failed.done() and all(role.is_live() for role in self._roles)

    def reasons_not_ready(self) -> list[str]:
        """Return the reasons why this process is not ready; an empty list if it is ready."""
        if self.failed.done():
            return [f"a loop has failed: {self.failed.exception()!r}"]
        if not self._tasks:
            return ["not started"]
        reasons = [reason for role in self._roles for reason in role.reasons_not_ready()]
        return reasons + reasons_not_ready(self.loops.values())

    async def hand_over(self, deadline: StopDeadline | None = None) -> None:
        """Begin nothing new, and release what other processes wait for, by the deadline if one is given."""
        for role in self._roles:
            handing_over = role.hand_over(self._tasks)
            await (deadline.step(f"hand over {role.name}", handing_over) if deadline else handing_over)

    async def stop(self, deadline: StopDeadline) -> None:
        """After `hand_over`, finish what was begun, end all loops, and release the leases."""
        for role in reversed(self._roles):
            await deadline.step(role.name, role.finish(self._tasks, deadline))
        await deadline.step("loops", self._tasks.end())
        for role in self._roles:
            await deadline.step(f"leave {role.name}", role.leave())
