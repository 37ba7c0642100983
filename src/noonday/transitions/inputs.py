"""Inputs: the rows from which a transition is decided."""

from collections.abc import Iterable

import msgspec

from noonday.model.execution import Execution
from noonday.model.firing import Fire
from noonday.model.ids import ExecutionId, JobId
from noonday.model.job import Job
from noonday.model.message import HandlerInfo
from noonday.model.retry import DEFAULT_POLICY, RetryPolicy
from noonday.model.slots import SlotKey, of_key, of_ordering_key
from noonday.model.view import PoolSettings


class Limit(msgspec.Struct, frozen=True):
    """Overlap rule and concurrency key of a job."""

    overlap: str | None = None
    """A value of `Overlap`, or one of a newer version that this one does not know."""
    key: str | None = None
    limit: int | None = None
    ordered: bool = False

    @property
    def slot(self) -> str | None:
        if not self.key:
            return None
        return of_ordering_key(self.key) if self.ordered else of_key(self.key)

    @property
    def ordering_key(self) -> str | None:
        return self.key if self.ordered else None


NO_LIMIT = Limit()


class RetryPolicySources(msgspec.Struct, frozen=True):
    """Retry policies of an execution, in order of precedence: of the job as it fired, its handler, its pool."""

    job: RetryPolicy | None
    handler: HandlerInfo | None
    pool: PoolSettings | None

    @property
    def policy(self) -> RetryPolicy:
        of_handler = self.handler and self.handler.retry_policy
        of_pool = self.pool and self.pool.retry_policy
        return self.job or of_handler or of_pool or DEFAULT_POLICY


class Inputs:
    """Rows as they were read, updated with the decisions made since."""

    def __init__(
        self,
        *,
        open_: Iterable[Execution] = (),
        used: dict[SlotKey, int] | None = None,
        caps: dict[SlotKey, int] | None = None,
        limits: dict[JobId, Limit] | None = None,
        policies: dict[ExecutionId, RetryPolicy] | None = None,
        jobs: Iterable[Job] = (),
        fires: dict[JobId, Fire] | None = None,
        paused: Iterable[JobId] = (),
        heads: dict[tuple[str, str], str] | None = None,
        kept: dict[str, tuple[str, ...]] | None = None,
    ) -> None:
        """Take the rows that the decision needs.

        `open_`: open executions of each job whose overlap rule matters: one more unbuffered one than the decision may close, and
        the first buffered one. `used`: slots in use, of concurrency keys and of limits in `caps`. `jobs`: jobs whose present
        definition matters, and `fires`: their fire rows. `paused`: paused jobs among those whose executions may return to the
        timeline. `heads`: the entry key of the earliest fire of each ordering key, by (tenant, ordering key). `kept`: slots that
        waiting executions keep.
        """
        self.open: dict[JobId, list[Execution]] = {}
        for execution in open_:
            self.open.setdefault(execution.job_id, []).append(execution)
        self.used = used or {}
        self.caps = caps or {}
        self.limits = limits or {}
        self.policies = policies or {}
        self.jobs = {job.id: job for job in jobs}
        self.fires = fires or {}
        self.paused = frozenset(paused)
        self.heads = heads or {}
        self.kept = kept or {}

    def limit_of(self, job_id: JobId) -> Limit:
        return self.limits.get(job_id, NO_LIMIT)

    def note(self, now: Execution, *, is_open: bool) -> None:
        """Replace an open execution by its new row, or remove it if it is closed."""
        rows = self.open.get(now.job_id)
        if rows is None:
            return
        at = next((at for at, row in enumerate(rows) if row.id == now.id), None)
        if at is None:
            return
        if is_open:
            rows[at] = now
        else:
            del rows[at]
