"""The real services of intake over a store in memory, without the stages that would run jobs."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from starlette.types import ASGIApp

from noonday.alerts.alert_service import AlertService
from noonday.alerts.notice_jobs import NoticeJobs
from noonday.alerts.preferences import PreferenceService, Seal
from noonday.api.app import create_app
from noonday.api.context import ApiServices
from noonday.api.hosts import KnownHosts
from noonday.api.limits import ApiLimits
from noonday.crypto.keyring import Keyring
from noonday.drivers.memory.bus import MemoryBus
from noonday.drivers.memory.hot_index import MemoryHotIndex
from noonday.drivers.memory.leases import LocalLeases
from noonday.drivers.memory.signals import MemorySignals
from noonday.drivers.memory.tokens import MemoryTokens
from noonday.drivers.sqlite.connection import MEMORY, FileOptions
from noonday.drivers.sqlite.store import SqliteStore, open_store
from noonday.intake.services import IntakeServices, intake_services
from noonday.intake.visits import Visits
from noonday.mail.smtp import MailServer, SmtpChannel
from noonday.model.audit import AuditEntry
from noonday.model.caller import ALL_SCOPES, Caller
from noonday.model.claim import Revocation
from noonday.model.errors import Unauthorized
from noonday.model.ids import JobId, TenantId, WorkerId
from noonday.model.limits import Sizes
from noonday.model.message import Beat, Hello
from noonday.model.notice import ChannelType
from noonday.model.recording import Checkpoint
from noonday.model.view import PoolSettings
from noonday.notifications.accounts import AccountCache
from noonday.notifications.providers.hosts import ProviderHosts
from noonday.notifications.services import NotificationServices
from noonday.ports.clock import Clock
from noonday.ports.offload import Offload
from noonday.runtime.offload import ThreadOffload
from noonday.runtime.tracing import Tracing
from noonday.tasks.endpoint_disabler import EndpointDisabler
from noonday.tasks.endpoints import EndpointService
from noonday.tasks.secrets import SecretService
from noonday.tasks.task_service import TaskService
from noonday.webhooks.addresses import Networks
from noonday.webhooks.bounds import DEFAULT_BOUNDS
from noonday.wiring.drivers import Drivers
from noonday.wiring.embedded import notification_drivers_on
from noonday.wiring.notifications import flaws_for, notification_services

NOON_MS = 1_893_499_200_000
"""2030-01-01T12:00:00Z"""


class StandingClock(Clock):
    def now_ms(self) -> int:
        return NOON_MS

    def monotonic(self) -> float:
        return 0.0

    async def sleep(self, seconds: float) -> None:
        """Wait for ever: this clock stands still."""
        await asyncio.Event().wait()


@dataclass
class Tokens:
    """Knows a token by the scope it is named after, such as `write` or, of another tenant than acme, `write@globex`."""

    trouble: Exception | None = None
    """Headers or query that every request gets, if any."""

    async def authenticate(self, header: str | None) -> Caller:
        if self.trouble:
            raise self.trouble
        scope, _, tenant = (header or "").removeprefix("Bearer ").partition("@")
        if scope not in ALL_SCOPES:
            raise Unauthorized("no valid token")
        return Caller(TenantId(tenant or "acme"), "somebody", frozenset({scope}))


class ShakySignals(MemorySignals):
    """Signals that are unavailable while there is trouble."""

    trouble: Exception | None = None

    async def revoke(self, pool: str, flags: Sequence[Revocation]) -> None:
        if self.trouble:
            raise self.trouble
        await super().revoke(pool, flags)

    async def fence(self, pool: str, job: JobId, until_ms: int) -> None:
        if self.trouble:
            raise self.trouble
        await super().fence(pool, job, until_ms)


@dataclass
class Pulse:
    reasons: list[str] = field(default_factory=list)
    alive: bool = True

    def ready(self) -> list[str]:
        return self.reasons

    def live(self) -> bool:
        return self.alive

    def metrics(self) -> bytes:
        return b"noonday_due 0\n"


@dataclass
class Backstage:
    """The services and stores behind an application under test."""

    store: SqliteStore
    services: IntakeServices
    tasks: TaskService
    secrets: SecretService
    signals: ShakySignals
    preferences: PreferenceService
    notifications: NotificationServices
    accounts: AccountCache
    tokens: Tokens = field(default_factory=Tokens)
    pulse: Pulse = field(default_factory=Pulse)

    @classmethod
    def make(cls, offload: Offload | None = None) -> "Backstage":
        store, clock, keyring = open_store(MEMORY, FileOptions(), lead_ms=0), StandingClock(), Keyring.generate()
        signals = ShakySignals()
        services = intake_services(
            jobs=store.jobs,
            query_store=store.query_store,
            execution_search=store.execution_search,
            operations=store.operations,
            selection=store.selection,
            settings_store=store.settings_store,
            workload=store.workload,
            index=MemoryHotIndex(0),
            signals=signals,
            tokens=MemoryTokens(),
            offload=offload or ThreadOffload(),
            clock=clock,
            keyring=keyring,
            limits=Sizes(),
            hint_ahead_ms=0,
            tracing=Tracing(None),
            live=_no_figures,
        )
        secrets = SecretService(store.endpoints, services.receipts, keyring, clock)
        endpoint_disabler = EndpointDisabler(store.endpoints, services.jobs)
        endpoints = EndpointService(store.endpoints, endpoint_disabler, services.receipts, clock)
        tasks = TaskService(services, secrets, store.query_store, store.executions, clock, endpoints, DEFAULT_BOUNDS)
        preferences = _preferences(store, services, secrets, keyring, clock)
        drivers = _drivers(store, clock, keyring, signals)
        check = flaws_for(ProviderHosts(Networks(()), ()))
        accounts = AccountCache(store.provider_accounts, keyring, clock)
        notifications = notification_services(drivers, services.receipts, accounts, check, "api")
        return cls(store, services, tasks, secrets, signals, preferences, notifications, accounts)

    def api_services(
        self, limits: ApiLimits | None = None, on_answer: Callable[[int], None] = lambda status: None
    ) -> ApiServices:
        return ApiServices(
            intake=self.services,
            tasks=self.tasks,
            secrets=self.secrets,
            authenticator=self.tokens,
            health=self.pulse,
            limits=limits or ApiLimits(),
            now_ms=lambda: NOON_MS,
            preferences=self.preferences,
            alerts=AlertService(self.store.alerts, self.services.receipts, StandingClock()),
            notifications=self.notifications,
            on_answer=on_answer,
        )

    def app(self, limits: ApiLimits) -> ASGIApp:
        hosts = KnownHosts("127.0.0.1", 8080, ["http://testserver"], is_loopback=True)
        return create_app(self.api_services(limits), hosts)

    def app_of_another_process(self) -> ASGIApp:
        """An application of another process: over the same store, with empty caches."""
        self.services = replace(self.services, visits=Visits(self.store.settings_store, StandingClock()))
        return self.app(ApiLimits())

    async def add_worker(self, name: str, stuck: tuple[str, ...] = ()) -> None:
        worker = WorkerId(name)
        signs = [Hello(worker, NOON_MS, "here", 7, {"demo": 1}, ()), Beat(worker, NOON_MS, (), stuck)]  # type: ignore[arg-type]
        place = Checkpoint(0, "generation", 1, 0)
        await self.store.executions.settle([], signs, was=None, now=place, now_ms=NOON_MS)

    async def add_demo_pool(self) -> None:
        audit = AuditEntry(TenantId("acme"), NOON_MS, "somebody", "pool.put", "demo")
        await self.store.settings_store.put_pool("demo", PoolSettings(), audit)


def _preferences(
    store: SqliteStore, services: IntakeServices, secrets: SecretService, keyring: Keyring, clock: Clock
) -> PreferenceService:
    post = NoticeJobs(
        jobs=store.jobs,
        settings_store=store.settings_store,
        sender=services.sender,
        pools=services.pools,
        keyring=keyring,
        clock=clock,
        make_first_secret=secrets.make_first,
    )
    channels = {ChannelType.EMAIL: SmtpChannel(MailServer("mail.example", "noonday@mail.example"))}
    return PreferenceService(store.notices, channels, Seal(keyring), post, services.receipts, clock, DEFAULT_BOUNDS)


def _drivers(store: SqliteStore, clock: Clock, keyring: Keyring, signals: MemorySignals) -> Drivers:
    return Drivers(
        clock=clock,
        **store.ports,
        index=MemoryHotIndex(0),
        bus=MemoryBus(clock),
        signals=signals,
        leases=LocalLeases(None, clock),
        keyring=keyring,
        notifications=notification_drivers_on(store, clock),
    )


def _no_figures() -> dict[str, object]:
    return {"tickAgeMs": 0}
