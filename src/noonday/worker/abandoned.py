"""Runs that were reported as ended and go on nevertheless.

A thread cannot be stopped, and a coroutine that never waits, or swallows its cancellation, cannot either. Whoever was asked to
end and has not done so within the grace is abandoned: its end is reported for it, so that a retry, a person and a deploy need not
wait for it. Its own result is dropped when it comes. Its effects may overlap with the next attempt: the fencing token
(`ctx.token`) orders them. Each abandoned run keeps a thread, memory and connections, so only so many of them are replaced.
"""

from collections.abc import Iterator

from noonday.model.ids import ExecutionId
from noonday.worker.handler import Mode
from noonday.worker.run import Run


class Abandoned:
    """The abandoned runs of one worker. For its control loop only."""

    def __init__(self, limit: int) -> None:
        """`limit`: how many of them other runs may take the slots of."""
        self.limit = limit
        self._runs: dict[Run, bool] = {}
        """Abandoned runs that have not ended, and whether another run may take their slot."""

    def __len__(self) -> int:
        return len(self._runs)

    def __contains__(self, run: Run) -> bool:
        return run in self._runs

    def __iter__(self) -> Iterator[ExecutionId]:
        return (run.dispatch.execution_id for run in self._runs)

    @property
    def is_full(self) -> bool:
        """Whether the next one would keep its slot."""
        return len(self._runs) >= self.limit

    def add(self, run: Run) -> bool:
        """Note a run. Returns whether another one may take its slot: a process keeps its own until it is dead."""
        replaced = not self.is_full and run.mode is not Mode.PROCESS
        self._runs[run] = replaced
        return replaced

    def remove(self, run: Run) -> bool:
        """Note that a run has ended after all. Returns whether it still kept its slot."""
        return not self._runs.pop(run)
