"""Where the pruning has come to of what not all tenants keep equally long."""

from bisect import bisect_left
from collections.abc import Collection, Iterator, Sequence
from itertools import islice

from noonday.model.ids import TenantId

LOOKED_AT = 10
"""A step passes so many times more rows than it may drop."""
MOST_TENANTS = 50
"""So many are visited in one step."""
ROUND_MS = 3_600_000


class PruneWalk:
    """Marks that move on with each small step.

    Two walks. Along all executions, passing over those of tenants that keep theirs for longer: what has been passed is
    looked at again no sooner than an hour after the walk began, because it can go only if it ended late. And along the
    jobs of tenants that have a time of their own, round and round.
    """

    def __init__(self, first: str) -> None:
        """`first`: what comes before every id."""
        self._first = first
        self._marks: dict[str, str] = {}
        self._began_ms: dict[str, int] = {}
        self._tenant = ""
        self.job = first
        """The last job that was looked at, of the tenant that is visited."""

    def mark_of(self, walk: str) -> str:
        return self._marks.get(walk, self._first)

    def move(self, walk: str, mark: str | None, now_ms: int) -> None:
        """None: there is nothing after the mark."""
        began_ms = self._began_ms.setdefault(walk, now_ms)
        if mark is not None:
            self._marks[walk] = mark
        elif now_ms - began_ms >= ROUND_MS:
            del self._began_ms[walk]
            self._marks.pop(walk, None)

    def tenants_from_mark(self, tenants: Collection[TenantId]) -> Iterator[TenantId]:
        """Whom to visit in this step: the one whose jobs were not all looked at, then those after it."""
        ordered = sorted(tenants)
        at = bisect_left(ordered, self._tenant)
        for tenant in islice(ordered[at:] + ordered[:at], MOST_TENANTS):
            if tenant != self._tenant:
                self._tenant, self.job = tenant, self._first
            yield tenant

    def looked_at(self, jobs: Sequence[str], limit: int) -> None:
        """A page of the visited tenant's jobs has nothing left that may go."""
        if len(jobs) == limit:
            self.job = jobs[-1]
        else:
            self._tenant, self.job = self._tenant + "\0", self._first
