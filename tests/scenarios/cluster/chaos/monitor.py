"""Monitor the store during a run: the invariants of every commit, and the progress."""

import asyncio
import contextlib
from collections.abc import Iterable
from contextlib import closing
from datetime import UTC, datetime

import asyncpg

from tests.scenarios.cluster.store import StoreView
from tests.simulation.checker import check_commit

EVERY_SEC = 5.0
CHECK_SEC = 10.0
"""Seconds after which a store that does not answer is asked again later."""


class StoreMonitor:
    """Checks the store regularly, with its own session and no connection that could be cut."""

    def __init__(self, url: str, schema: str) -> None:
        self.problems: dict[str, str] = {}
        """Each problem once, with the time of its first observation."""
        self.checks = 0
        self.done = 0
        """The number of executions that had ended at the last check."""
        self._store = StoreView(url, schema)
        self._epochs: dict[int, int] = {}

    async def run(self) -> None:
        """Check the store for ever."""
        while True:
            await asyncio.sleep(EVERY_SEC)
            with contextlib.suppress(
                OSError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError
            ):
                async with asyncio.timeout(CHECK_SEC):
                    await self.check()

    async def check(self) -> None:
        with closing(await self._store.copy_unfinished()) as copy:
            self._note(check_commit(copy))
        self._compare(dict(await self._store.query("SELECT partition, epoch FROM partitions")))
        self.done = (await self._store.query("SELECT count(*) FROM executions WHERE state >= 2"))[0][0]
        self.checks += 1

    def _compare(self, epochs: dict[int, int]) -> None:
        self._note(
            f"I5: the epoch of partition {partition} fell from {before} to {epochs[partition]}"
            for partition, before in self._epochs.items()
            if epochs.get(partition, before) < before
        )
        self._epochs = epochs

    def _note(self, problems: Iterable[str]) -> None:
        at = datetime.now(UTC).strftime("%H:%M:%S")
        for problem in problems:
            self.problems.setdefault(problem, f"seen at {at}, while it ran: {problem}")

    async def close(self) -> None:
        await self._store.close()
