"""The services of notifications over a store in memory, without poller and senders."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from noonday.crypto.keyring import Keyring
from noonday.drivers.memory.bus import MemoryBus
from noonday.drivers.sqlite.connection import MEMORY, FileOptions
from noonday.drivers.sqlite.store import SqliteStore, open_store
from noonday.intake.receipts import Receipts
from noonday.model.caller import Caller
from noonday.model.ids import TenantId
from noonday.model.notifications.notification import EventDetail, EventKind, NotificationEvent, NotificationId
from noonday.model.notifications.sending import ProviderKind
from noonday.model.notifications.wire import ProviderSpec
from noonday.notifications.accepting import StoredAcceptor
from noonday.notifications.account_service import AccountService
from noonday.notifications.accounts import AccountCache
from noonday.notifications.dispatching import Sealer
from noonday.notifications.placing import Placing
from noonday.notifications.profiles import Profiles
from noonday.notifications.queries import NotificationQueries
from noonday.notifications.service import NotificationService
from noonday.notifications.user_quota import UserQuota
from noonday.notifications.user_service import UserService
from tests.support.clock import ManualClock
from tests.support.factories import TENANT

ANN = Caller(TENANT, "ann", frozenset({"admin"}))
STRANGER = Caller(TenantId("globex"), "bob", frozenset({"admin"}))
SMTP = ProviderSpec(kind=ProviderKind.SMTP, settings={"host": "smtp.example.com"}, secrets={"password": "hunter2"})


class NotificationParts:
    """The services, and what is below them."""

    def __init__(self, store: SqliteStore, quota: UserQuota | None = None) -> None:
        self.store, self.clock, self.keyring = store, ManualClock(), Keyring.generate()
        self.sealer, self.bus = Sealer(self.keyring), MemoryBus(self.clock)
        self.scheduled, self.events = store.scheduled_notifications, store.notification_events
        receipts, profiles = Receipts(store.jobs, self.keyring, self.clock), Profiles(store.users, self.keyring)
        self.users = UserService(store.users, profiles, receipts, self.clock)
        self.cache = AccountCache(store.provider_accounts, self.keyring, self.clock)
        self.accounts = AccountService(
            store.provider_accounts, self.cache, self.keyring, lambda kind, settings, secrets: (), receipts, self.clock
        )
        acceptor = StoredAcceptor(self.scheduled, self.bus, self.clock, self.sealer, Placing(), "writer")
        self.service = NotificationService(acceptor, store.users, profiles, self.cache.has_any, self.clock, quota)
        self.queries = NotificationQueries(self.scheduled, self.events, self.sealer, self.clock)

    async def record(
        self, notification: str, kind: EventKind, number: int = 1, tenant: TenantId = TENANT, **detail: object
    ) -> None:
        """Record an event, as the recorder does."""
        id_, at_ms = NotificationId(notification), self.clock.now_ms()
        sealed = self.sealer.seal(EventDetail(**detail), tenant, id_)  # type: ignore[arg-type]
        await self.events.append([NotificationEvent(tenant, id_, f"{kind}/{number}", at_ms, kind, number, sealed)])


@asynccontextmanager
async def opened_parts(quota: UserQuota | None = None) -> AsyncIterator[NotificationParts]:
    """The parts, with an account for email."""
    store = open_store(MEMORY, FileOptions(), lead_ms=0)
    parts = NotificationParts(store, quota)
    await parts.accounts.put(ANN, "mail", SMTP)
    yield parts
    await store.close()
