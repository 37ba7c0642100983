"""The services of notifications behind the API."""

from dataclasses import dataclass

from noonday.model.errors import NotInThisMode
from noonday.notifications.account_service import AccountService
from noonday.notifications.queries import NotificationQueries
from noonday.notifications.service import NotificationService
from noonday.notifications.user_service import UserService


@dataclass(frozen=True)
class NotificationServices:
    """Users and provider accounts, and in a mode that stores notifications, these."""

    users: UserService
    accounts: AccountService
    service: NotificationService | None
    """None if the mode has no stores for notifications."""
    stored: NotificationQueries | None

    @property
    def commands(self) -> NotificationService:
        """Return the commands. Raises NotInThisMode."""
        if self.service is None:
            raise _missing()
        return self.service

    @property
    def queries(self) -> NotificationQueries:
        """Return the queries. Raises NotInThisMode."""
        if self.stored is None:
            raise _missing()
        return self.stored


def _missing() -> NotInThisMode:
    return NotInThisMode(
        "a cluster does not send notifications yet: run `noonday up`, which has one SQLite file, and send them there",
        mode="cluster",
    )
