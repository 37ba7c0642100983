"""The store as the recorder uses it: settled reports, checkpoints of the log, incidents and retention."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

import msgspec

from noonday.model.execution import Outcome
from noonday.model.firing import Entry
from noonday.model.ids import ExecutionId, JobId, TenantId, WorkerId
from noonday.model.message import Beat, Bye, Hello, Report
from noonday.model.usage import NOTHING, Usage


class Checkpoint(msgspec.Struct, frozen=True):
    """How far a log partition is recorded. `generation` names the log: another generation is another log."""

    partition: int
    generation: str
    offset: int
    tick_ms: int
    """The store's time in the last tick that was applied."""
    recent: str = ""
    """`Figures` of the last seconds, as JSON."""


class Settled(msgspec.Struct, frozen=True):
    """The result of settling a batch of reports."""

    entries: tuple[Entry, ...]
    """Rows now on the timeline: retries, snoozes, and buffered executions whose turn has come."""
    refused: tuple[Report, ...]
    """Reports of another dispatch or worker, or of an illegal transition. They changed nothing."""
    by_state: dict[str, int]
    """Number of executions that ended in each state."""
    freed: tuple[str, ...] = ()
    """Concurrency keys that have a free slot again."""
    usage: Usage = NOTHING
    """The usage that was added to tenants."""


class Incident(msgspec.Struct, frozen=True):
    """An event that needs attention, stored until an alert has taken it in."""

    id: int
    kind: str
    tenant: TenantId
    execution_id: ExecutionId
    job_id: JobId
    message: str
    at_ms: int


class AttemptRecord(msgspec.Struct, frozen=True):
    """The details of one attempt that were kept, such as the request and response of a webhook call."""

    dispatch: int
    attempt: int
    outcome: Outcome
    started_ms: int
    ended_ms: int
    account: bytes
    """The details, as ciphertext."""


class Executions(ABC):
    """Settle reports, judge workers, and keep the records of attempts."""

    @abstractmethod
    async def find_checkpoint(self, partition: int) -> Checkpoint | None:
        """Return the checkpoint of a log partition, or None if it has none yet."""

    @abstractmethod
    async def oldest_tick_ms(self) -> int | None:
        """Return the time of the last tick that was applied on the log partition that is furthest behind.

        None if a partition has no tick yet.
        """

    @abstractmethod
    async def settle(
        self,
        reports: Sequence[Report],
        signs: Sequence[Hello | Beat | Bye],
        *,
        was: Checkpoint | None,
        now: Checkpoint,
        now_ms: int,
    ) -> Settled:
        """Apply a batch of the log in one transaction, and move the checkpoint from `was` to `now` by compare and set.

        A report counts only if it names the present dispatch, the execution has no row on the timeline, and no other worker
        runs it. The run's usage is added to its tenant in the same transaction, once, however often the report arrives. If the
        handler recorded its success itself, the first report of it adds the usage. Raises StaleEpoch if the checkpoint is not
        `was`: another recorder has this partition.
        """

    @abstractmethod
    async def workers_to_judge(self, partition: int) -> list[WorkerId]:
        """Return the workers of a log partition that count as alive or have RUNNING executions.

        The latter include workers that were judged before, and workers that never reported anything else.
        """

    @abstractmethod
    async def lose_workers(self, workers: Sequence[WorkerId], now_ms: int) -> Settled:
        """Mark workers as lost. Their RUNNING executions become FAILED_WORKER_LOST and are retried by their policy."""

    @abstractmethod
    async def recover_log(self, partition: int, generation: str, now_ms: int) -> Settled:
        """Recover from the loss of the log and the pool topics.

        RUNNING executions of this partition are lost. Dispatched executions that have not started return to the timeline with
        the next dispatch number, or are CANCELLED if they are so revoked.
        """

    @abstractmethod
    async def keep_attempts(self, reports: Sequence[Report]) -> None:
        """Store the attempt records of these reports. A record that is stored already is not stored again.

        Called before the reports are settled. The records of reports that are then refused stay: they happened.
        """

    @abstractmethod
    async def attempt_records(self, execution: ExecutionId) -> list[AttemptRecord]:
        """Return the attempt records of an execution, in the order of the attempts."""

    @abstractmethod
    async def incidents(self, limit: int) -> list[Incident]:
        """Return the oldest incidents. `Alerts.take_in` turns them into alerts and deletes them."""

    @abstractmethod
    async def revocations(self, pool: str, ended_since_ms: int) -> list[tuple[ExecutionId, int, str]]:
        """Return (execution, dispatch, reason) of the revoked executions of a pool that are dispatched or running.

        Includes those that have ended since an instant: a duplicate delivery of them may still arrive.
        """

    @abstractmethod
    async def prune(self, policy: "Retention", now_ms: int, limit: int) -> int:
        """Delete some rows that are past their retention. Returns how many rows were deleted; 0 when none is left."""


class Retention(msgspec.Struct, frozen=True):
    """Retention periods, in milliseconds."""

    succeeded_ms: int
    cancelled_ms: int
    expired_ms: int
    dead_ms: int
    jobs_ms: int
    """Cancelled and completed jobs: the time since their last change."""
    decisions_ms: int
    audit_ms: int
    receipts_ms: int
    tenants: Mapping[TenantId, int] = {}
    """Periods of tenants that have one of their own for ended executions and jobs."""

    def jobs_before_ms(self, tenant: TenantId, now_ms: int) -> int:
        """Return the instant such that an ended job of this tenant may be deleted if it has not changed since."""
        return now_ms - self.tenants.get(tenant, self.jobs_ms)

    def any_jobs_before_ms(self, now_ms: int) -> int:
        """Return the instant such that no job that has changed since may be deleted, whatever its tenant."""
        return now_ms - min([self.jobs_ms, *self.tenants.values()])

    def keep_longer_than(self, age_ms: int) -> list[TenantId]:
        """Return the tenants whose own period is longer than an age."""
        return [tenant for tenant, own_ms in self.tenants.items() if own_ms > age_ms]


def attempt_rows(reports: Sequence[Report]) -> list[tuple[ExecutionId, int, int, int, int, int, bytes]]:
    """Return (execution, dispatch, started, ended, attempt, outcome, record) of each report that has an attempt record."""
    return [
        (r.execution_id, r.dispatch, r.started_ms, r.ended_ms, r.attempt, r.outcome, r.account)
        for r in reports
        if r.account is not None
    ]
