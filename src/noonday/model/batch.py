"""A batch of entries to fire: its owner, its requests and their results."""

from collections.abc import Mapping

import msgspec

from noonday.model.firing import Entry, FirePlan
from noonday.model.ids import ExecutionId, InstanceId
from noonday.model.job import Job
from noonday.model.message import Dispatch
from noonday.model.slots import SlotKey

Mark = tuple[int, str]
"""A position on the timeline: (due_ms, key)."""


class Owner(msgspec.Struct, frozen=True):
    """The instance that fires, and the epoch of each of its partitions. The store refuses partitions whose epoch differs."""

    instance: InstanceId
    epochs: Mapping[int, int]


class Takeover(msgspec.Struct, frozen=True):
    """The new epoch of a partition, and its former owner."""

    epoch: int
    former: InstanceId
    """The former owner. Empty if the partition never had one."""


class RecurringJob(msgspec.Struct, frozen=True):
    """A job whose fire needs a plan, at the revision that the entry names."""

    job: Job
    runs_left: int | None
    flaw: str | None = None
    """Reason why the job's row cannot be read, or None. If set, `job` has only its schedule, as far as that is readable."""


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
    """Maximum number of executions that occupy the slot at once."""


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
