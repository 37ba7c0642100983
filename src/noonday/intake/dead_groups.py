"""Dead letters grouped by their error: one problem or many?"""

from collections.abc import Sequence

from noonday.model.caller import Caller
from noonday.model.filters import DeadFilterQuery
from noonday.model.job import instant_of
from noonday.model.operation_view import DeadGroupList, DeadGroupView
from noonday.model.selection import DeadSelector, SelectedDeadLetter, fingerprint_of, pattern_of
from noonday.ports.offload import Offload
from noonday.ports.selection import Selection

SCAN_LIMIT = 5_000
"""Maximum number of dead letters that are examined, the newest ones."""
MOST_GROUPS = 50
"""Maximum number of groups of a response."""
HOUR_MS = 3_600_000


class DeadGroups:
    """Groups the newest open dead letters of a tenant by the fingerprints of their errors."""

    def __init__(self, selection: Selection, offload: Offload) -> None:
        """`offload` computes fingerprints off the event loop."""
        self._selection = selection
        self._offload = offload

    async def list_groups(self, caller: Caller, where: DeadFilterQuery) -> DeadGroupList:
        """Return the largest groups, the largest first."""
        selector = DeadSelector(
            job_id=where.job_id,
            pool=where.pool,
            handler=where.handler,
            since_ms=where.since_ms,
            until_ms=where.until_ms,
        )
        page = await self._selection.dead_letters(caller.tenant, selector, None, SCAN_LIMIT, most=SCAN_LIMIT)
        is_least = page.next is not None
        groups = await self._offload.run(lambda _: _groups(page.letters, is_least))
        return DeadGroupList(groups=tuple(groups[:MOST_GROUPS]), is_least=is_least or len(groups) > MOST_GROUPS)


def _groups(letters: Sequence[SelectedDeadLetter], is_least: bool) -> list[DeadGroupView]:
    by_error: dict[tuple[str, str], list[SelectedDeadLetter]] = {}
    for each in letters:
        by_error.setdefault((each.error_type, each.message), []).append(each)
    by_fingerprint: dict[str, list[SelectedDeadLetter]] = {}
    for error, members in by_error.items():
        by_fingerprint.setdefault(fingerprint_of(*error), []).extend(members)
    groups = [_group(name, members, is_least) for name, members in by_fingerprint.items()]
    return sorted(groups, key=lambda group: (-group.count, group.fingerprint))


def _group(name: str, members: Sequence[SelectedDeadLetter], is_least: bool) -> DeadGroupView:
    by_time = sorted(members, key=lambda one: (one.died_ms, one.id))
    first, last = by_time[0], by_time[-1]
    hours = max(1.0, (last.died_ms - first.died_ms) / HOUR_MS)
    return DeadGroupView(
        fingerprint=name,
        message=pattern_of(last.error_type, last.message),
        count=len(members),
        is_least=is_least,
        jobs=len({one.job_id for one in members}),
        first_at=instant_of(first.died_ms),
        last_at=instant_of(last.died_ms),
        per_hour=round(len(members) / hours, 1),
        sample=last.id,
    )
