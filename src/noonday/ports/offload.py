"""Execution of short CPU-heavy computations off the event loop, each with a budget of CPU time."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
MayContinue = Callable[[], bool]
"""Function that returns whether the budget of a computation allows another step."""


class Offload(ABC):
    """Runs CPU-heavy computations, so that they do not block the event loop."""

    @abstractmethod
    async def run(self, work: Callable[[MayContinue], T]) -> T:
        """Run `work`, which checks between its steps whether it may continue, and stops early if not. Raises Busy."""


class InlineOffload(Offload):
    """Runs at once and without a budget, for a program that has no other callers to serve."""

    async def run(self, work: Callable[[MayContinue], T]) -> T:
        return work(lambda: True)
