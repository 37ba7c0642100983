"""What workers report, settled: the recorder's side of the store."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

import msgspec

from noonday.model.execution import Outcome
from noonday.model.firing import Entry
from noonday.model.ids import ExecutionId, JobId, TenantId, WorkerId
from noonday.model.message import Beat, Bye, Hello, Report
from noonday.model.usage import NOTHING, Usage


class Checkpoint(msgspec.Struct, frozen=True):
    """How far the recorder of a partition of the log has come. `generation` names the log: another generation is another log."""

    partition: int
    generation: str
    offset: int
    tick_ms: int
    """The store's time in the last tick applied."""
    recent: str = ""
    """`Figures` of the last seconds, as JSON."""


class Settled(msgspec.Struct, frozen=True):
    """What a batch of reports did."""

    entries: tuple[Entry, ...]
    """Rows now on the timeline: retries, snoozes, buffered ones whose turn has come."""
    refused: tuple[Report, ...]
    """Reports of another dispatch or worker, or of an illegal move. They changed nothing."""
    by_state: dict[str, int]
    """How many executions ended in each state."""
    freed: tuple[str, ...] = ()
    """Concurrency keys that have a free slot again."""
    usage: Usage = NOTHING
    """What was added to the usage of tenants."""


class Incident(msgspec.Struct, frozen=True):
    """Something that somebody has to act upon."""

    id: int
    kind: str
    tenant: TenantId
    execution_id: ExecutionId
    job_id: JobId
    message: str
    at_ms: int


class AttemptRecord(msgspec.Struct, frozen=True):
    """What was kept of one attempt."""

    dispatch: int
    attempt: int
    outcome: Outcome
    started_ms: int
    ended_ms: int
    account: bytes
    """Ciphertext."""


class Executions(ABC):
    @abstractmethod
    async def place(self, partition: int) -> Checkpoint | None: ...

    @abstractmethod
    async def oldest_tick_ms(self) -> int | None:
        """The time of the last tick applied on that partition of the log that is furthest behind. None: one has none yet."""

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
        """Apply a batch of the log in one transaction, and move the recorder's place from `was` to `now` by compare and set.

        A report counts only if it names the present dispatch, the row is off the timeline, and no other worker has it.
        What the run used is added to the usage of its tenant in the same transaction, once, however often the report comes;
        that of a success which its handler recorded itself, with the first report of it.
        Raises StaleEpoch if the place is not `was`: somebody else records this partition.
        """

    @abstractmethod
    async def workers_to_judge(self, partition: int) -> list[WorkerId]:
        """Workers of this partition of the log that are taken for alive, and those that have RUNNING rows although they were
        judged before or never heard of."""

    @abstractmethod
    async def lose_workers(self, workers: Sequence[WorkerId], now_ms: int) -> Settled:
        """These workers are lost: their RUNNING executions fail as FAILED_WORKER_LOST, and are retried by policy."""

    @abstractmethod
    async def recover_log(self, partition: int, generation: str, now_ms: int) -> Settled:
        """The log and the pool topics lost their memory: RUNNING of this partition is lost, what was handed out and not
        started goes back on the timeline with the next dispatch number (CANCELLED, if that was wished)."""

    @abstractmethod
    async def keep_attempts(self, reports: Sequence[Report]) -> None:
        """What these reports have to be kept of their attempts. Before they are settled, and whether they are believed or not: it
        is what happened. Told twice, it is kept once."""

    @abstractmethod
    async def accounts(self, execution: ExecutionId) -> list[AttemptRecord]:
        """In the order of the attempts."""

    @abstractmethod
    async def incidents(self, limit: int) -> list[Incident]:
        """The oldest ones that nobody has acted upon yet. Whoever does takes them away (`Alerts.take_in`)."""

    @abstractmethod
    async def revocations(self, pool: str, ended_since_ms: int) -> list[tuple[ExecutionId, int, str]]:
        """(execution, dispatch, reason) of those of a pool that are handed out or running and asked to end, and of those that
        were, and have ended since an instant: a second delivery of them may still be on its way."""

    @abstractmethod
    async def prune(self, policy: "Retention", now_ms: int, limit: int) -> int:
        """Delete a small step of what retention no longer keeps. Answers how many rows went; 0 when nothing is left to do."""


class Retention(msgspec.Struct, frozen=True):
    """How long things are kept, in milliseconds."""

    succeeded_ms: int
    cancelled_ms: int
    expired_ms: int
    dead_ms: int
    jobs_ms: int
    """Cancelled and completed jobs, after their last change."""
    decisions_ms: int
    audit_ms: int
    receipts_ms: int
    tenants: Mapping[TenantId, int] = {}
    """Of tenants that keep their executions that ended, and their jobs that did, for another time than the rest: how long."""

    def jobs_before_ms(self, tenant: TenantId, now_ms: int) -> int:
        """A job of this tenant that ended may go if it has not changed since."""
        return now_ms - self.tenants.get(tenant, self.jobs_ms)

    def any_jobs_before_ms(self, now_ms: int) -> int:
        """No tenant lets go of a job that has changed since."""
        return now_ms - min([self.jobs_ms, *self.tenants.values()])

    def keep_longer_than(self, age_ms: int) -> list[TenantId]:
        return [tenant for tenant, own_ms in self.tenants.items() if own_ms > age_ms]


def attempt_rows(reports: Sequence[Report]) -> list[tuple[ExecutionId, int, int, int, int, int, bytes]]:
    """(execution, dispatch, started, ended, attempt, outcome, account) of those that have one."""
    return [
        (r.execution_id, r.dispatch, r.started_ms, r.ended_ms, r.attempt, r.outcome, r.account)
        for r in reports
        if r.account is not None
    ]
