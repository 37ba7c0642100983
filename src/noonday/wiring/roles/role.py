"""Base of all roles: loops, reasons why a role is not ready, and its part in the stop of a process."""

import asyncio
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any

from noonday.model.ids import InstanceId
from noonday.runtime.metrics import Metrics
from noonday.runtime.supervise import Loop, StopDeadline, Tasks
from noonday.runtime.tracing import Tracing
from noonday.wiring.settings import Settings


@dataclass(frozen=True)
class ProcessContext:
    """Identity, settings, metrics and tracing, which all roles of a process share."""

    instance: InstanceId
    settings: Settings
    metrics: Metrics
    tracing: Tracing
    dispatcher_wake: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when an entry may be due. Wakes the dispatcher, if this process has one."""
    child_jobs_wake: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when a recorder of this process has stored child jobs. Wakes the loop that creates them."""

    @property
    def hint_ahead_ms(self) -> int:
        return self.settings.scheduler.hint_ahead_sec * 1000


class ProcessRole:
    """A role: loops that start and stop together. A role with more to do than to run its loops extends it."""

    def __init__(self, name: str, *loops: Loop) -> None:
        self.name = name
        self.loops = {loop.name: loop for loop in loops}

    def coroutines(self) -> Mapping[str, Coroutine[Any, Any, None]]:
        """Return what runs beside the loops, by name."""
        return {}

    def is_live(self) -> bool:
        """Return False if only a restart of the process helps."""
        return True

    def reasons_not_ready(self) -> list[str]:
        """Return the reasons that the loops themselves do not know."""
        return []

    async def hand_over(self, tasks: Tasks) -> None:
        """Begin nothing new, and release what other processes wait for."""

    async def finish(self, tasks: Tasks, deadline: StopDeadline) -> None:
        """Finish what was begun. The other loops of the process still run."""

    async def leave(self) -> None:
        """Release what is held until no loop runs any more."""
