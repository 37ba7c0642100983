"""Quota of notifications of one user and day, so that a loop in an application does not flood a person or a list."""

from collections import OrderedDict
from collections.abc import Sequence

from noonday.model.errors import QuotaExceeded
from noonday.model.ids import TenantId
from noonday.model.notifications.notification import DAY_MS

PER_USER_DAY = 10_000
"""Maximum number of notifications of one user that a process accepts in a day (UTC)."""
MOST_USERS = 100_000
"""Number of users whose notifications are counted. The user who was counted longest ago is forgotten."""
POLICY = "notifications-per-user"
"""Name of the policy in problems and headers."""


class UserQuota:
    """Counts the notifications of each user in this process. The counts end with the day and with the process."""

    def __init__(self, per_day: int = PER_USER_DAY, most_users: int = MOST_USERS) -> None:
        self._per_day = per_day
        self._most_users = most_users
        self._day = 0
        self._counts: OrderedDict[tuple[TenantId, str], int] = OrderedDict()

    def take(self, tenant: TenantId, user_id: str, now_ms: int) -> None:
        """Count a notification. Raises QuotaExceeded if the user has as many as a day allows."""
        self._begin_day(now_ms // DAY_MS)
        used = self._counts.get((tenant, user_id), 0)
        if used >= self._per_day:
            raise _exceeded(user_id, self._per_day, now_ms)
        self._counts[tenant, user_id] = used + 1
        self._counts.move_to_end((tenant, user_id))
        while len(self._counts) > self._most_users:
            self._counts.popitem(last=False)

    def give_back(self, tenant: TenantId, user_ids: Sequence[str]) -> None:
        """Take back the counts of notifications that were not accepted."""
        for user_id in user_ids:
            if (used := self._counts.get((tenant, user_id), 0)) > 0:
                self._counts[tenant, user_id] = used - 1

    def _begin_day(self, day: int) -> None:
        if day != self._day:
            self._day = day
            self._counts.clear()


def _exceeded(user_id: str, limit: int, now_ms: int) -> QuotaExceeded:
    retry_sec = (DAY_MS - now_ms % DAY_MS + 999) // 1000
    return QuotaExceeded(
        f"user {user_id!r} has {limit:,} notifications today, the maximum. Retry after {retry_sec} s, when the day ends (UTC)",
        **{
            "limit": limit,
            "used": limit,
            "requested": 1,
            "retryAfterSec": retry_sec,
            "violated-policies": [POLICY],
        },
    )
