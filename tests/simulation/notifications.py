"""An embedded Noonday that sends notifications in a simulated process, and providers that remember every call."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random

from msgspec.structs import replace

from noonday.crypto.keyring import Keyring
from noonday.drivers.memory.bus import MemoryBus
from noonday.drivers.memory.hot_index import MemoryHotIndex
from noonday.drivers.memory.leases import LocalLeases
from noonday.drivers.memory.signals import MemorySignals
from noonday.drivers.sqlite.connection import MEMORY
from noonday.drivers.sqlite.store import store_on
from noonday.model.errors import NoondayError, StoreUnavailable
from noonday.model.ids import InstanceId, TenantId
from noonday.model.notifications.identity import new_notification_id, send_key, stream_of
from noonday.model.notifications.notification import (
    EventKind,
    Notification,
    NotificationEvent,
    NotificationId,
    NotificationPriority,
    OnUnknown,
)
from noonday.model.notifications.sending import (
    ChannelKind,
    Content,
    OutcomeKind,
    ProviderAccount,
    ProviderKind,
    ProviderMessage,
    ProviderOutcome,
)
from noonday.model.notifications.user import Profile
from noonday.notifications.accounts import AccountCache
from noonday.notifications.profiles import Profiles
from noonday.ports.providers import Provider
from noonday.runtime.metrics import Metrics
from noonday.runtime.tracing import Tracing
from noonday.wiring.drivers import Drivers
from noonday.wiring.embedded import notification_drivers_on
from noonday.wiring.roles.notifications import NotificationRole
from noonday.wiring.roles.role import ProcessContext
from noonday.wiring.roles.role_group import RoleGroup
from noonday.wiring.settings import Settings
from noonday.wiring.settings.outgoing import NotificationSettings
from tests.simulation.embedded import Disk, SimDatabase
from tests.simulation.kernel import FaultKind, FaultPlan, Process, SimClock, World

TENANT = TenantId("acme")
USERS = ("ann", "bob", "no-phone", "nobody")
ACCOUNTS = (
    ProviderAccount("", "mail-1", ProviderKind.SMTP, order=1),
    ProviderAccount("", "mail-2", ProviderKind.SMTP, order=2),
    ProviderAccount("", "text-1", ProviderKind.TWILIO, order=1),
)
QUIET_MS = 170_000
"""Time after the last fault in which everything ends: back-offs, expiries, and the closing of the last bucket."""


ROUND_MS = 10_000
AFTER_MS = 45_000
"""Time after the last final status: buckets are examined, and rows behind the position would be published again."""


@dataclass
class Call:
    """One call of a provider."""

    notification: NotificationId
    number: int
    channel: ChannelKind
    account: str
    process: str
    began_ms: int
    outcome: OutcomeKind | None = None
    """None: its process died before it heard the answer."""


@dataclass
class Request:
    """A notification that the user posted, once or again with the same key."""

    notification: Notification
    bodies: list[Notification] = field(default_factory=list)
    """All that was posted under its id. One of them is sent."""
    accepted: bool | None = None
    """None: the process died before it answered."""


@dataclass
class NotificationHistory:
    requests: dict[NotificationId, Request] = field(default_factory=dict)
    calls: list[Call] = field(default_factory=list)
    wakes: list[tuple[str, int]] = field(default_factory=list)
    """(process, time) of each end of a freeze."""

    def was_frozen(self, call: Call) -> bool:
        return any(process == call.process and 0 <= call.began_ms - ms < 10 for process, ms in self.wakes)


class SimProvider(Provider):
    """A provider that answers by chance, and remembers."""

    def __init__(
        self,
        history: NotificationHistory,
        random: Random,
        process: Process,
        now_ms: Callable[[], int],
        seconds: Sequence[float],
    ) -> None:
        """`seconds`: how long calls take."""
        self._seconds = seconds
        self._history = history
        self._random = random
        self._process = process
        self._now_ms = now_ms

    async def send(self, account: ProviderAccount, message: ProviderMessage) -> ProviderOutcome:
        call = Call(
            NotificationId(message.notification_id),
            message.number,
            message.channel,
            account.name,
            str(self._process),
            self._now_ms(),
        )
        self._history.calls.append(call)
        await asyncio.sleep(self._random.choice(self._seconds))
        kind = self._random.choices(
            [
                OutcomeKind.ACCEPTED,
                OutcomeKind.RETRY,
                OutcomeKind.RECIPIENT_REJECTED,
                OutcomeKind.REQUEST_REJECTED,
                OutcomeKind.UNKNOWN,
            ],
            [12, 4, 1, 1, 1],
        )[0]
        await asyncio.sleep(0.001)
        call.outcome = kind
        return ProviderOutcome(kind, provider_id="sim", detail="said so")

    async def find(self, account: ProviderAccount, message: ProviderMessage, since_ms: int) -> ProviderOutcome | None:
        await asyncio.sleep(0.01)
        return None

    async def close(self) -> None: ...


class NotificationSimulation:
    """One seed: a disk, a process that dies and is started again, a user who posts, and what the providers saw."""

    def __init__(self, seed: int, faults: FaultPlan | None = None) -> None:
        self.world = World(seed)
        self.random = Random(f"user/{seed}")
        self.disk = Disk(Random(f"disk/{seed}"), self.world.now_ms)
        self.disk.check_every = 1_000_000  # there are no jobs
        self.keyring = Keyring.generate()
        self.is_slow = seed % 5 == 1
        """Whether calls take long and one runs at a time, so that dispatches wait in the topics."""
        sending = NotificationSettings(concurrency=1 if self.is_slow else 50)
        self.settings = replace(Settings(), data=MEMORY, notifications=sending)
        self.history = NotificationHistory()
        self.faults = faults
        self.process: Process | None = None
        self.role: NotificationRole | None = None
        self._boots = 0

    def __enter__(self) -> "NotificationSimulation":
        return self

    def __exit__(self, *exception: object) -> None:
        self.world.close()
        self.disk.conn.close()

    def run(self, director: Callable[[], object]) -> list[str]:
        """Play the director's part under faults, then quiet. Returns the promises that were broken."""

        async def play() -> None:
            await self.boot()
            restarting = asyncio.create_task(self._restart_forever())
            self.world.faults = self.faults
            await director()  # type: ignore[misc]
            self.world.faults = None
            if self.process is not None and self.process.frozen:
                self.process.wake()
            await self._settle()
            restarting.cancel()

        self.world.run(play())
        self.history.wakes = [
            (each.process, each.now_ms) for each in self.world.fault_log if each.kind is FaultKind.WAKE
        ]
        return [*self.disk.problems, *check(self.history, self.events(), self.world.now_ms())]

    async def _settle(self) -> None:
        """Wait until every accepted notification has a final status, and for what might still be called after that."""
        for _ in range(QUIET_MS // ROUND_MS):
            await asyncio.sleep(ROUND_MS / 1000)
            if not _check_final(self.history, self.events()):
                await asyncio.sleep(AFTER_MS / 1000)
                return

    # -- the process ---------------------------------------------------------------------------------------------------

    async def boot(self) -> None:
        self._boots += 1
        self.process = process = self.world.process("noonday")
        self.role = None
        up = self.world.loop.create_future()
        process.spawn(self._live(process, up))
        while not up.done() and process.alive:
            await asyncio.sleep(0.01)

    async def _live(self, process: Process, up: "asyncio.Future[None]") -> None:
        clock = SimClock(self.world, process)
        random = Random(f"latency/{self.world.seed}/{self._boots}")
        store = store_on(SimDatabase(self.disk, clock, random), self.settings.scheduler.lead_ms)
        notifications = notification_drivers_on(store, clock)  # type: ignore[arg-type]
        drivers = Drivers(
            clock=clock,  # type: ignore[arg-type]
            **store.ports,
            index=MemoryHotIndex(self.settings.scheduler.lead_ms),
            bus=MemoryBus(clock),  # type: ignore[arg-type]
            signals=MemorySignals(),
            leases=LocalLeases(None, clock),  # type: ignore[arg-type]
            keyring=self.keyring,
            notifications=notifications,
        )
        if self._boots == 1:
            await self._put_users(drivers)
        context = ProcessContext(InstanceId(f"i-{self._boots}"), self.settings, Metrics(0), Tracing(None))
        seconds = (1, 6, 14) if self.is_slow else (0.001, 0.05, 0.5, 3)
        provider = SimProvider(self.history, random, process, self.world.now_ms, seconds)
        role = NotificationRole(
            drivers,
            notifications,
            context,
            {ProviderKind.SMTP: provider, ProviderKind.TWILIO: provider},
            AccountCache(drivers.provider_accounts, self.keyring, clock, ACCOUNTS),  # type: ignore[arg-type]
        )
        try:
            await role.open()
        except StoreUnavailable:
            process.kill()
            await asyncio.sleep(0)
        RoleGroup(context, [role]).run()
        self.role = role
        up.set_result(None)

    async def _restart_forever(self) -> None:
        while True:
            assert self.process is not None
            await self.process.wait_dead()
            self.role = None
            await asyncio.sleep(self.random.choice([0.01, 0.5, 3, 20]))
            await self.boot()

    async def _put_users(self, drivers: Drivers) -> None:
        """Write the profiles before the first request. No fault happens until then."""
        profiles = Profiles(drivers.users, self.keyring)
        for user in USERS[:-1]:
            phone = None if user == "no-phone" else "+4930123456"
            sealed = profiles.seal(Profile(email=f"{user}@example.com", phone=phone), TENANT, user)
            await drivers.users.put(TENANT, user, sealed, self.world.now_ms())

    # -- the user ------------------------------------------------------------------------------------------------------

    def any_notification(self) -> Notification:
        """Return a random notification: now or later, with one channel or two, with a key or without."""
        random, now_ms = self.random, self.world.now_ms()
        wait_ms = random.choice([0, 0, 0, 500, 3_000, 5_000, 30_000, 61_000])
        channels = random.choice([(ChannelKind.EMAIL,), (ChannelKind.SMS,), (ChannelKind.SMS, ChannelKind.EMAIL)])
        priority = random.choice(list(NotificationPriority))
        user, key = random.choice(USERS), random.choice([None, None, f"key-{random.randint(1, 4)}"])
        dedupe = random.choice([None, None, None, "again"])
        stream = stream_of(channels[0], priority)
        id_ = new_notification_id(TENANT, now_ms + wait_ms, stream, key or str(random.random()), at_once=not wait_ms)
        return Notification(
            id=id_,
            tenant=TENANT,
            user_id=user,
            channels=channels,
            priority=priority,
            content=Content(text="hello"),
            send_ms=now_ms + wait_ms,
            expires_ms=now_ms + wait_ms + random.choice([15_000, 50_000]),
            created_ms=now_ms,
            send_key=send_key(TENANT, user, dedupe, key, id_),
            key_window_ms=600_000 if dedupe or key else 0,
            on_unknown=OnUnknown.LEAVE,
        )

    async def post(self, notification: Notification) -> bool | None:
        """Post a notification, if the process is up. Returns whether it was accepted, None without an answer."""
        role, process = self.role, self.process
        if role is None or process is None or not process.alive:
            return None
        request = self.history.requests.setdefault(notification.id, Request(notification))
        request.bodies.append(notification)
        answers: list[bool] = []

        async def call() -> None:
            try:
                answers.append((await role.acceptor.accept([notification]))[0] is None)
            except NoondayError:
                answers.append(False)

        process.spawn(call())
        while not answers and process.alive:
            await asyncio.sleep(0.02)
        if answers and answers[0]:
            request.accepted = True
        return answers[0] if answers else None

    def events(self) -> dict[NotificationId, list[NotificationEvent]]:
        """Return the events on the disk, by notification."""
        found: dict[NotificationId, list[NotificationEvent]] = {}
        query = "SELECT tenant, notification_id, name, at_ms, kind, number FROM notification_events"
        for tenant, id_, name, at_ms, kind, number in self.disk.conn.execute(query):
            event = NotificationEvent(tenant, NotificationId(id_), name, at_ms, EventKind(kind), number, b"")
            found.setdefault(event.notification_id, []).append(event)
        return found


FINAL = {
    EventKind.EXPIRED,
    EventKind.DUPLICATE,
    EventKind.FAILED,
    EventKind.UNKNOWN,
    EventKind.SENT,
}
ENDS_FOR_GOOD = {OutcomeKind.ACCEPTED, OutcomeKind.UNKNOWN, None}
"""Outcomes after which nobody may be called again: the provider has it, or may have it."""


def check(
    history: NotificationHistory, events: dict[NotificationId, list[NotificationEvent]], now_ms: int
) -> list[str]:
    """Return the promises that are broken."""
    return [
        *_check_final(history, events),
        *_check_calls(history),
        *_check_keys(history),
        *_check_statuses(history, events),
    ]


def _check_final(history: NotificationHistory, events: dict[NotificationId, list[NotificationEvent]]) -> list[str]:
    """N1: what was accepted has a final status. What was refused is called at most once."""
    return [
        f"N1: {id_} was accepted and has {[event.name for event in events.get(id_, [])]}"
        for id_, request in history.requests.items()
        if request.accepted and not any(event.kind in FINAL for event in events.get(id_, []))
    ]


def _check_calls(history: NotificationHistory) -> list[str]:
    """N2: no call follows one that was accepted, or may have been. N3: no call is early. None is made after the expiry."""
    problems, over = [], set()
    for call in history.calls:
        if call.notification in over:
            problems.append(f"N2: {call} follows a call that was or may have been accepted")
        if call.outcome in ENDS_FOR_GOOD:
            over.add(call.notification)
        bodies = history.requests[call.notification].bodies
        if all(call.began_ms < body.send_ms for body in bodies):
            problems.append(f"N3: {call} is early")
        # A process that is frozen between its last check and the call is late: nothing can prevent that.
        if all(call.began_ms > body.expires_ms for body in bodies) and not history.was_frozen(call):
            problems.append(f"N1: {call} was made after the expiry")
    return problems


def _check_keys(history: NotificationHistory) -> list[str]:
    """N14: of the notifications with one send key, one is sent."""
    sent: dict[str, Call] = {}
    problems = []
    for call in history.calls:
        key = history.requests[call.notification].notification.send_key
        if key in sent and sent[key].notification != call.notification:
            problems.append(f"N14: {call} has the send key of {sent[key]}")
        if call.outcome in ENDS_FOR_GOOD:
            sent.setdefault(key, call)
    return problems


def _check_statuses(history: NotificationHistory, events: dict[NotificationId, list[NotificationEvent]]) -> list[str]:
    """N10: SENT means that a provider accepted it; UNKNOWN, that one may have; FAILED, EXPIRED and DUPLICATE that none did."""
    accepted = {call.notification for call in history.calls if call.outcome is OutcomeKind.ACCEPTED}
    maybe = {call.notification for call in history.calls if call.outcome in ENDS_FOR_GOOD}
    problems = []
    for id_, found in events.items():
        kinds = {event.kind for event in found}
        if EventKind.SENT in kinds and id_ not in accepted:
            problems.append(f"N10: {id_} is SENT, and no provider accepted it")
        if not kinds & {EventKind.SENT, EventKind.UNKNOWN} and id_ in maybe:
            problems.append(f"N10: {id_} has {sorted(kinds)}, and a provider has it or may have it")
    return problems
