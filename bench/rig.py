"""What a work is measured on."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from bench.notes import Seen
from noonday.model.caller import Caller
from noonday.model.ids import JobId
from noonday.model.job import JobSpec
from noonday.model.view import TenantSettings
from noonday.wiring.engine_queries import OWNER
from noonday.wiring.settings import Settings

Memory = tuple[float | None, float | None]
"""Resident, in MB: now, and at its peak."""


class Rig(ABC):
    """An engine that runs, one that creates jobs in it, and one that looks at what it does from outside."""

    mode: str
    settings: Settings
    look_every_sec: float
    """How often it may be asked whether all is recorded without that being felt."""

    @abstractmethod
    def now_ms(self) -> int:
        """By the clock that decides what is due."""

    @abstractmethod
    async def create(self, specs: Sequence[JobSpec], caller: Caller = OWNER) -> Sequence[JobId]:
        """In one transaction."""

    @abstractmethod
    async def put_tenant(self, tenant: str, settings: TenantSettings) -> None: ...

    @abstractmethod
    async def make_secret(self) -> None:
        """For webhooks to be signed with."""

    @abstractmethod
    def check(self) -> None:
        """Raises BenchFailed if the engine has stopped."""

    @abstractmethod
    def started(self) -> int | None:
        """How often a handler was called so far. None if that cannot be seen while they run."""

    @abstractmethod
    async def all_recorded(self, last_due_ms: int) -> bool:
        """Whether nothing that was due by then is open any more. What was recorded has been synced."""

    @abstractmethod
    def used_sec(self) -> Mapping[str, float]:
        """CPU time so far, by who used it."""

    @abstractmethod
    def memory_mb(self) -> Mapping[str, Memory]:
        """Of each part of the engine."""

    @abstractmethod
    async def finish(self) -> Seen:
        """Run no more handlers. Answers what they saw. Raises BenchFailed if that is lost."""

    @abstractmethod
    async def succeeded(self, first_ms: int, last_ms: int) -> Sequence[str]:
        """The executions due in a range that are recorded as SUCCEEDED."""

    @abstractmethod
    async def count_jobs(self) -> int: ...

    @abstractmethod
    async def circumstances(self) -> dict[str, Any]:
        """What the figures depend on besides the code."""
