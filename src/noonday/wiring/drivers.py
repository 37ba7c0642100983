"""The ports that a process uses, with the drivers of its mode behind them."""

from dataclasses import dataclass, field

from noonday.crypto.keyring import Keyring
from noonday.drivers.memory.breakers import MemoryBreakers
from noonday.drivers.memory.throttles import MemoryThrottles
from noonday.drivers.memory.tokens import MemoryTokens
from noonday.model.budget import EntryBudget
from noonday.ports.alerts import Alerts
from noonday.ports.breakers import Breakers
from noonday.ports.bus import Bus
from noonday.ports.child_jobs import ChildJobs
from noonday.ports.clock import Clock
from noonday.ports.completions import Completions
from noonday.ports.endpoints import Endpoints
from noonday.ports.execution_search import ExecutionSearch
from noonday.ports.executions import Executions
from noonday.ports.firing import Firing
from noonday.ports.hot_index import HotIndex
from noonday.ports.jobs import Jobs
from noonday.ports.leases import Leases
from noonday.ports.notices import Notices
from noonday.ports.notifications import NotificationEvents, ProviderAccounts, ScheduledNotifications, SendKeys, Users
from noonday.ports.offload import InlineOffload, Offload
from noonday.ports.operations import Operations
from noonday.ports.queries import QueryStore
from noonday.ports.selection import Selection
from noonday.ports.settings import SettingsStore
from noonday.ports.signals import Signals
from noonday.ports.throttles import Throttles
from noonday.ports.tokens import Tokens
from noonday.ports.workload import Workload


@dataclass(frozen=True)
class WorkerDrivers:
    """The drivers of a worker, which has no access to the store."""

    clock: Clock
    keyring: Keyring
    bus: Bus
    signals: Signals
    breakers: Breakers
    throttles: Throttles
    completions: Completions | None = None


@dataclass(frozen=True)
class NotificationDrivers:
    """The drivers of notifications: their stores, and a bus and signals of their own."""

    bus: Bus
    signals: Signals
    scheduled_notifications: ScheduledNotifications
    notification_events: NotificationEvents
    send_keys: SendKeys


@dataclass(frozen=True)
class Drivers:
    """The drivers of all ports that the stages use."""

    clock: Clock
    jobs: Jobs
    child_jobs: ChildJobs
    firing: Firing
    executions: Executions
    query_store: QueryStore
    execution_search: ExecutionSearch
    settings_store: SettingsStore
    workload: Workload
    endpoints: Endpoints
    alerts: Alerts
    notices: Notices
    users: Users
    provider_accounts: ProviderAccounts
    operations: Operations
    selection: Selection
    index: HotIndex
    bus: Bus
    signals: Signals
    leases: Leases
    keyring: Keyring
    budget: EntryBudget = field(default_factory=EntryBudget)
    """Shared by the hot index and the dispatcher."""
    tokens: Tokens = field(default_factory=MemoryTokens)
    breakers: Breakers = field(default_factory=MemoryBreakers)
    throttles: Throttles = field(default_factory=MemoryThrottles)
    offload: Offload = field(default_factory=InlineOffload)
    notifications: NotificationDrivers | None = None
    """None if the mode has no stores for notifications."""

    @property
    def of_worker(self) -> WorkerDrivers:
        return WorkerDrivers(self.clock, self.keyring, self.bus, self.signals, self.breakers, self.throttles)
