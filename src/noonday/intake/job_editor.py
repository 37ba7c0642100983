"""Job editor: applies decisions to jobs."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TypeVar

from noonday.intake.change_sender import ChangeSender
from noonday.intake.idempotency import AlreadyAnswered, Idempotency
from noonday.intake.receipts import Receipts
from noonday.model.caller import Caller
from noonday.model.change import Change, ChangeResult
from noonday.model.errors import NotFound
from noonday.model.ids import ExecutionId, JobId
from noonday.model.snapshot import Scope, Snapshot
from noonday.ports.jobs import Decide, Jobs

T = TypeVar("T")


class JobEditor:
    """Applies a decision to one job, once per Idempotency-Key, and sends the change."""

    def __init__(self, jobs: Jobs, receipts: Receipts, sender: ChangeSender) -> None:
        self._jobs = jobs
        self._receipts = receipts
        self._sender = sender

    async def edit(
        self,
        caller: Caller,
        job_id: str,
        decide: Decide,
        view: Callable[[ChangeResult], T],
        now_ms: int,
        idem: Idempotency | None = None,
        *,
        show: Sequence[ExecutionId] = (),
    ) -> T:
        """Apply a decision and return the view of its result. `show`: executions that the view needs. Raises NotFound."""
        try:
            async with self._receipts.once(caller, idem):
                seal = None
                if idem:
                    seal = lambda applied: self._receipts.of(caller, idem, now_ms, view(applied))  # noqa: E731
                applied = await self._jobs.edit(caller.tenant, JobId(job_id), decide, show=show, seal=seal)
                await self._sender.send(applied)
        except AlreadyAnswered:
            await self.fence_again(caller, job_id)
            raise
        return view(applied)

    async def apply(self, caller: Caller, job_id: JobId, decide: Decide) -> ChangeResult:
        """Apply a decision that is one step of a request. The caller keeps the receipt of the request."""
        applied = await self._jobs.edit(caller.tenant, job_id, decide)
        await self._sender.send(applied)
        return applied

    async def fence_again(self, caller: Caller, job_id: str) -> None:
        """Fence a job before a stored response is repeated.

        The first request may have stored its change and failed to reach the signals. When the client repeats it, the response
        must not come before workers know of the change.
        """
        with suppress(NotFound):
            pools: set[str] = set()

            def collect_pools(before: Snapshot) -> Change:
                open_ = before.open_in(Scope.UNBUFFERED)
                pools.update([before.job.spec.target.pool], (e.pool for e in open_))
                return Change()

            await self._jobs.edit(caller.tenant, JobId(job_id), collect_pools)
            await self._sender.fence(JobId(job_id), sorted(pools))
