"""Short computations beside the event loop, each with a budget of CPU time."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
MayGoOn = Callable[[], bool]
"""Returns whether the budget allows more."""


class Aside(ABC):
    """Runs computations beside the event loop."""

    @abstractmethod
    async def run(self, work: Callable[[MayGoOn], T]) -> T:
        """Run `work`, which checks between its steps whether it may continue, and stops early if not. Raises Busy."""


class Inline(Aside):
    """Runs at once and without a budget, for a program that has no other callers to serve."""

    async def run(self, work: Callable[[MayGoOn], T]) -> T:
        return work(lambda: True)
