"""The store as the recorder uses it: settled reports, checkpoints of the log, incidents and retention."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

from noonday.model.attempt import AttemptRecord
from noonday.model.ids import ExecutionId, WorkerId
from noonday.model.incident import Incident
from noonday.model.message import Beat, Bye, Hello, Report
from noonday.model.recording import Checkpoint, SettleResult
from noonday.model.retention import Retention


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
    ) -> SettleResult:
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
    async def lose_workers(self, workers: Sequence[WorkerId], now_ms: int) -> SettleResult:
        """Mark workers as lost. Their RUNNING executions become FAILED_WORKER_LOST and are retried by their policy."""

    @abstractmethod
    async def recover_log(self, partition: int, generation: str, now_ms: int) -> SettleResult:
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
    async def keep_logs(self, reports: Sequence[Report]) -> None:
        """Store the log lines of these reports, all of which have some. Lines that are stored already are not stored again.

        Called before the reports are settled; lines of reports that are then refused stay. Of each execution, the lines of the
        last LOGGED_DISPATCHES dispatches stay. Lines of an execution that is no longer stored are dropped.
        """

    @abstractmethod
    async def incidents(self, limit: int) -> list[Incident]:
        """Return the oldest incidents. `Alerts.record` turns them into alerts and deletes them."""

    @abstractmethod
    async def revocations(self, pool: str, ended_since_ms: int) -> list[tuple[ExecutionId, int, str]]:
        """Return (execution, dispatch, reason) of the revoked executions of a pool that are dispatched or running.

        Includes those that have ended since an instant: a duplicate delivery of them may still arrive.
        """

    @abstractmethod
    async def prune(self, policy: "Retention", now_ms: int, limit: int) -> int:
        """Delete some rows that are past their retention. Returns how many rows were deleted; 0 when none is left."""
