"""The store as the scheduler uses it: the timeline, fires, batches and orphan recovery."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence

import msgspec

from noonday.model.firing import Entry, FirePlan
from noonday.model.ids import ExecutionId, InstanceId, JobId, TenantId
from noonday.model.job import Job
from noonday.model.message import Dispatch
from noonday.model.slots import SlotKey

Mark = tuple[int, str]
"""A position on the timeline: (due_ms, key)."""


class Owner(msgspec.Struct, frozen=True):
    """The instance that fires, and the epoch of each of its partitions. The store refuses partitions whose epoch differs."""

    instance: InstanceId
    epochs: Mapping[int, int]


class TakenOver(msgspec.Struct, frozen=True):
    """The new epoch of a partition, and its former owner."""

    epoch: int
    former: InstanceId
    """The former owner. Empty if the partition never had one."""


class RecurringJob(msgspec.Struct, frozen=True):
    """A job whose fire needs a plan, at the revision that the entry names."""

    job: Job
    runs_left: int | None
    flaw: str | None = None
    """Why the job's row cannot be read. If set, `job` has only its schedule, as far as that is readable."""


class FireRequest(msgspec.Struct, frozen=True):
    """An entry to fire. Without a plan, its nominal time fires and no next time follows."""

    entry: Entry
    plan: FirePlan | None = None
    runs_left: int | None = None
    """`runs_left` of the job's fire row, if it was read together with the plan."""


class Blocked(msgspec.Struct, frozen=True):
    """An entry that a limit keeps on the timeline."""

    entry: Entry
    reason: str
    slot: SlotKey
    """The slot that the entry waits for."""
    limit: int
    """How many executions may occupy the slot at once."""


class FireResult(msgspec.Struct, frozen=True):
    """The result of a fire. Each given entry is exactly one of done, refused and blocked."""

    batches: tuple[int, ...]
    """The unsealed batches that the dispatches belong to."""
    dispatches: tuple[Dispatch, ...]
    entries: tuple[Entry, ...]
    """Rows that are on the timeline now: next fires, and the present row of each key whose entry was stale."""
    revocations: tuple[tuple[str, ExecutionId, int, str], ...] = ()
    """(pool, execution, dispatch, reason) of open executions that an overlap policy cancels."""
    refused: int = 0
    """Number of stale entries: another revision, another nominal time, or already fired."""
    lost: tuple[int, ...] = ()
    """Partitions whose epoch is no longer the owner's. None of their entries was fired."""
    blocked: tuple[Blocked, ...] = ()
    paused: int = 0
    """Number of entries, among `entries`, of a paused tenant or pool."""
    decided: Mapping[str, int] = {}
    """Number of occurrences that were decided not to fire, by outcome."""


class Batch(msgspec.Struct, frozen=True):
    """Dispatches that were fired together and are not all published yet."""

    id: int
    owner: InstanceId
    fired_ms: int


class Firing(ABC):
    """Walk the timeline and fire what is due. A fire is one transaction, and no lock waits for a client."""

    @abstractmethod
    async def take_over(self, instance: InstanceId, partitions: Collection[int]) -> Mapping[int, TakenOver]:
        """Raise the epoch of these partitions for an instance. From then on, former owners are refused."""

    @abstractmethod
    async def walk(self, partitions: Collection[int], after: Mark | None, until_ms: int, limit: int) -> list[Entry]:
        """Return rows of some partitions with a due time up to `until_ms`, by (due time, key), beginning after a mark."""

    @abstractmethod
    async def walk_tenant(
        self, tenant: TenantId, partitions: Collection[int], first: Mark, until_ms: int, limit: int
    ) -> list[Entry]:
        """Return rows like `walk`, but of one tenant and beginning at a mark, inclusive."""

    @abstractmethod
    async def plans(self, entries: Sequence[Entry]) -> dict[tuple[JobId, int], RecurringJob]:
        """Return the jobs of entries that need a plan, by (job, revision). Entries of an old revision have none.

        A row that cannot be read is returned with its flaw and does not affect the others.
        """

    @abstractmethod
    async def fire(self, owner: Owner, firings: Sequence[FireRequest], now_ms: int) -> FireResult:
        """Turn due entries into executions, all in one transaction.

        For each entry the store checks four conditions: the partition has the owner's epoch; the row is still the one that the
        entry names (compare and set); it is due by the store's clock plus the lead; no pause that was stored before stops its
        tenant or pool. It then decides overlap and keys, advances the fire row or deletes the dispatch row, inserts PENDING
        executions with dispatch 1 (or marks the named dispatch as fired), and writes decisions and the batch.
        """

    @abstractmethod
    async def seal(self, batches: Sequence[int]) -> None:
        """Mark batches as published: the bus has acknowledged all their dispatches."""

    @abstractmethod
    async def unsealed(self, before_ms: int, limit: int, after: int = 0) -> list[Batch]:
        """Return batches that were fired before an instant and are not sealed, by id, beginning after the id `after`."""

    @abstractmethod
    async def dispatches_of(self, batch: Batch) -> list[Dispatch]:
        """Return the dispatches of a batch that are still PENDING under the number they were fired with."""

    @abstractmethod
    async def requeue_orphans(
        self, fired_before_ms: int, limit: int, now_ms: int, *, ahead: bool = True
    ) -> list[Entry]:
        """Return orphaned executions to the timeline with the next dispatch number, or cancel those that are so revoked.

        An orphan is PENDING, bound to no worker, and was fired before `fired_before_ms`. With `ahead`, an execution whose fire
        is stamped so far ahead of now that the clock was set back since is an orphan too. Returns the new rows of the timeline.
        """

    @abstractmethod
    async def count_due(self, now_ms: int) -> dict[str, tuple[int, int]]:
        """Return (count, earliest due_ms) of the due rows on the timeline, by pool."""

    @abstractmethod
    async def zone_data(self) -> str | None:
        """Return the version of the time-zone data that all schedules are planned with, such as `2026a`. None at first."""

    @abstractmethod
    async def replan_again(self, newest: str) -> None:
        """Ask the instances that have the newest time-zone data to replan all jobs once more."""

    @abstractmethod
    async def replan(self, version: str, limit: int, now_ms: int) -> int:
        """Recompute the next fire of some jobs that were planned with older time-zone data, and store the progress.

        Returns how many jobs were examined; fewer than the limit means that they were the last. Does nothing if `version` is
        not newer than the version that schedules are planned with, or are being planned with.
        """
