"""The timeline and what takes rows off it: the scheduler's side of the store."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence

import msgspec

from noonday.model.firing import Entry, FirePlan
from noonday.model.ids import ExecutionId, InstanceId, JobId, TenantId
from noonday.model.job import Job
from noonday.model.message import Dispatch
from noonday.model.slots import SlotKey

Mark = tuple[int, str]
"""A place on the timeline: (due_ms, key)."""


class Owner(msgspec.Struct, frozen=True):
    """Who fires, and under which epochs. The store refuses a partition whose epoch is no longer this one."""

    instance: InstanceId
    epochs: Mapping[int, int]


class TakenOver(msgspec.Struct, frozen=True):
    epoch: int
    former: InstanceId
    """Whose it was before. Empty if nobody ever had it."""


class RecurringJob(msgspec.Struct, frozen=True):
    """A job whose fire needs a plan, as of the revision the entry names."""

    job: Job
    runs_left: int | None
    flaw: str | None = None
    """Why the store's row cannot be read. Then `job` has its schedule alone, as far as that is readable."""


class FireRequest(msgspec.Struct, frozen=True):
    """An entry to fire. Without a plan it fires its nominal time and is done."""

    entry: Entry
    plan: FirePlan | None = None
    runs_left: int | None = None
    """What the job's fire row says, as far as it was read with the plan."""


class Blocked(msgspec.Struct, frozen=True):
    """An entry that stays on the timeline for a reason that has a name."""

    entry: Entry
    reason: str
    slot: SlotKey
    """What it waits for."""
    limit: int
    """So many can have that at once."""


class FireResult(msgspec.Struct, frozen=True):
    """What a fire did. Every entry given is in exactly one of: done, refused, held."""

    batches: tuple[int, ...]
    """The unsealed batches that the dispatches belong to."""
    dispatches: tuple[Dispatch, ...]
    entries: tuple[Entry, ...]
    """Rows that are on the timeline now: next fires, and the present row of each key whose entry was stale."""
    revocations: tuple[tuple[str, ExecutionId, int, str], ...] = ()
    """Open executions that an overlap asked to cancel."""
    refused: int = 0
    """Entries that were stale: another revision, another nominal time, already fired."""
    lost: tuple[int, ...] = ()
    """Partitions whose epoch is not the owner's any more: nothing of theirs was fired."""
    blocked: tuple[Blocked, ...] = ()
    paused: int = 0
    """Entries, among `entries`, of a tenant or pool that is paused."""
    decided: Mapping[str, int] = {}
    """How many occurrences were decided against, by outcome."""


class Batch(msgspec.Struct, frozen=True):
    id: int
    owner: InstanceId
    fired_ms: int


class Firing(ABC):
    """Firing is one transaction. No lock is held while a client thinks."""

    @abstractmethod
    async def take_over(self, instance: InstanceId, partitions: Collection[int]) -> Mapping[int, TakenOver]:
        """Raise the epoch of these partitions in this instance's name. From then on a former owner is refused."""

    @abstractmethod
    async def walk(self, partitions: Collection[int], after: Mark | None, until_ms: int, limit: int) -> list[Entry]:
        """Rows of some partitions with a due time up to `until_ms`, in order of (due time, key), beginning after a mark."""

    @abstractmethod
    async def walk_tenant(
        self, tenant: TenantId, partitions: Collection[int], first: Mark, until_ms: int, limit: int
    ) -> list[Entry]:
        """The same of one tenant, beginning with a mark."""

    @abstractmethod
    async def plans(self, entries: Sequence[Entry]) -> dict[tuple[JobId, int], RecurringJob]:
        """The jobs behind entries that need a plan, by (job, revision). Those of an old revision are missing.

        A row that cannot be read is answered with its flaw, the others as ever.
        """

    @abstractmethod
    async def fire(self, owner: Owner, firings: Sequence[FireRequest], now_ms: int) -> FireResult:
        """Turn due entries into executions, all in one transaction.

        Checked for each: the partition's epoch; the row is still the one the entry names (compare and set); it is due by the
        store's clock plus the lead; no pause that was stored before stops its tenant or pool. The schedule is advanced or its
        row taken off, executions are made PENDING with dispatch 1 (or the named dispatch handed out again), decisions written,
        overlap and keys decided, and the batch noted.
        """

    @abstractmethod
    async def seal(self, batches: Sequence[int]) -> None:
        """The bus has acknowledged all dispatches of these batches."""

    @abstractmethod
    async def unsealed(self, before_ms: int, limit: int, after: int = 0) -> list[Batch]:
        """Batches fired before that instant that are not sealed, by id, from the first one after `after` on."""

    @abstractmethod
    async def dispatches_of(self, batch: Batch) -> list[Dispatch]:
        """What of a batch is still PENDING under the dispatch it was fired with."""

    @abstractmethod
    async def requeue_orphans(
        self, fired_before_ms: int, limit: int, now_ms: int, *, ahead: bool = True
    ) -> list[Entry]:
        """Put back what the bus lost: PENDING, bound to no worker, handed out before that time, or (`ahead`) stamped so far
        ahead of now that the clock was set back since. With the next dispatch number; CANCELLED if that was wished. Answers the
        new rows of the timeline."""

    @abstractmethod
    async def count_due(self, now_ms: int) -> dict[str, tuple[int, int]]:
        """For each pool with due rows on the timeline: how many, and the due time of the oldest."""

    @abstractmethod
    async def zone_data(self) -> str | None:
        """The version of the time-zone data that all schedules are planned with, such as `2026a`. None before the first."""

    @abstractmethod
    async def replan_again(self, newest: str) -> None:
        """Ask whoever has the newest time-zone data to look at all jobs once more."""

    @abstractmethod
    async def replan(self, version: str, limit: int, now_ms: int) -> int:
        """Recompute the next fire of some jobs that were planned with older time-zone data, and note how far that came.

        Answers how many jobs it looked at; fewer than the limit: those were the last. Nothing is done for data that is not
        newer than what schedules are planned with, or are being planned with.
        """
