"""Runs that were reported as ended and still continue.

A thread cannot be stopped, nor can a coroutine that never awaits or that swallows its cancellation. A run that was asked to end
and has not ended within the cancel grace is abandoned: the worker reports its end, so that a retry, a person or a deploy need not
wait for it. The result of the run is dropped if it comes. Its effects may overlap with the next attempt: the fencing token
(`ctx.token`) orders them. Each abandoned run keeps a thread, memory and connections, so only `limit` of them are replaced.
"""

from collections.abc import Iterator

from noonday.model.handler import Mode
from noonday.model.ids import ExecutionId
from noonday.worker.run import Run


class Abandoned:
    """The abandoned runs of one worker. For its control loop only."""

    def __init__(self, limit: int) -> None:
        """`limit`: maximum number of abandoned runs whose slots are given to other runs."""
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
        """True if the next abandoned run keeps its slot."""
        return len(self._runs) >= self.limit

    def add(self, run: Run) -> bool:
        """Add an abandoned run. Returns whether another run may take its slot. A process keeps its slot until it is dead."""
        replaced = not self.is_full and run.mode is not Mode.PROCESS
        self._runs[run] = replaced
        return replaced

    def remove(self, run: Run) -> bool:
        """Remove a run that has ended after all. Returns whether it had kept its slot."""
        return not self._runs.pop(run)
