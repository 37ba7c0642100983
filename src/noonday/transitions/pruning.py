"""Progress of pruning where tenants have different retention times."""

from bisect import bisect_left
from collections.abc import Collection, Iterator, Sequence
from itertools import islice

from noonday.model.ids import TenantId

SCAN_FACTOR = 10
"""A step scans at most this many times the number of rows that it may drop."""
MAX_TENANTS = 50
"""Maximum number of tenants visited in one step."""
ROUND_MS = 3_600_000
"""Minimum time between the starts of two walks over the same executions."""


class PruneWalk:
    """Marks that advance with each small step of two walks.

    One walk covers all executions and skips those of tenants with a longer retention. It starts again no sooner than an hour
    after it began, because a row that it has passed becomes old enough only if its execution ended late. The other walk
    covers the jobs of tenants with a retention of their own, in an endless round.
    """

    def __init__(self, first: str) -> None:
        """`first`: a text that sorts before every id."""
        self._first = first
        self._marks: dict[str, str] = {}
        self._began_ms: dict[str, int] = {}
        self._tenant = ""
        self.job = first
        """The last job that was scanned, of the tenant that is being visited."""

    def mark_of(self, walk: str) -> str:
        return self._marks.get(walk, self._first)

    def move(self, walk: str, mark: str | None, now_ms: int) -> None:
        """Advance the mark of a walk. None means that nothing is left after the mark."""
        began_ms = self._began_ms.setdefault(walk, now_ms)
        if mark is not None:
            self._marks[walk] = mark
        elif now_ms - began_ms >= ROUND_MS:
            del self._began_ms[walk]
            self._marks.pop(walk, None)

    def tenants_from_mark(self, tenants: Collection[TenantId]) -> Iterator[TenantId]:
        """Yield the tenants to visit in this step: first the one that is not finished, then those after it."""
        ordered = sorted(tenants)
        at = bisect_left(ordered, self._tenant)
        for tenant in islice(ordered[at:] + ordered[:at], MAX_TENANTS):
            if tenant != self._tenant:
                self._tenant, self.job = tenant, self._first
            yield tenant

    def page_done(self, jobs: Sequence[str], limit: int) -> None:
        """Pass a page of the visited tenant's jobs, of which nothing is left to drop."""
        if len(jobs) == limit:
            self.job = jobs[-1]
        else:
            self._tenant, self.job = self._tenant + "\0", self._first
