"""The rows a decision may look at."""

from collections.abc import Iterable

import msgspec

from noonday.model.ids import ExecutionId, JobId
from noonday.model.job import Job
from noonday.model.message import HandlerInfo
from noonday.model.retry import DEFAULT_POLICY, RetryPolicy
from noonday.model.slots import SlotKey, of_key, of_ordering_key
from noonday.model.view import PoolSettings
from noonday.ports.jobs import Execution, Fire


class Limit(msgspec.Struct, frozen=True, array_like=True):
    """What a job says about overlap and concurrency."""

    overlap: str | None = None
    """One of Overlap, if this version knows it."""
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


class RetryPolicySources(msgspec.Struct, frozen=True, array_like=True):
    """Who says how failures of an execution are retried: the job as it was fired, its handler, its pool."""

    job: RetryPolicy | None
    handler: HandlerInfo | None
    pool: PoolSettings | None

    @property
    def policy(self) -> RetryPolicy:
        of_handler = self.handler and self.handler.retry_policy
        of_pool = self.pool and self.pool.retry_policy
        return self.job or of_handler or of_pool or DEFAULT_POLICY


class Inputs:
    """Rows as they were read, kept up with what was decided since."""

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
        """`open_`: of each job whose overlap may matter the first open executions, one more of those whose turn it is than the
        decision may end, and one that is buffered; `fires`: the fire rows of `jobs`; `paused`: which jobs are, of those that
        something of may wait again; `used`: slots in use, of keys and of what has a cap in `caps`; `heads`: the key of the first
        fire of each line, by (tenant, line); `kept`: which slots waiting executions have kept."""
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
        """An open execution is another one now, or closed."""
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
