"""Notifications, and a sender, a poller and a recorder on a store in memory."""

from collections import deque
from typing import Any

import uuid_utils

from noonday.crypto.keyring import Keyring
from noonday.drivers.memory.bus import MemoryBus
from noonday.drivers.memory.throttles import MemoryThrottles
from noonday.drivers.sqlite.store import SqliteStore
from noonday.model.execution import Outcome
from noonday.model.ids import ExecutionId, InstanceId, JobId, WorkerId
from noonday.model.message import Dispatch, Report, Token
from noonday.model.notifications.notification import Notification, NotificationDispatch, NotificationId
from noonday.model.notifications.results import SendResult
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
from noonday.notifications.accepting import StoredAcceptor
from noonday.notifications.accounts import AccountCache
from noonday.notifications.dispatching import Sealer, dispatch_of, row_of
from noonday.notifications.placing import Placing
from noonday.notifications.poller import Poller
from noonday.notifications.profiles import Profiles
from noonday.notifications.recorder import NotificationRecorder
from noonday.notifications.sending import NotificationSender
from noonday.ports.providers import Provider
from noonday.worker.context import Context
from tests.support.clock import ManualClock
from tests.support.factories import NOW_MS, TENANT

CHANNEL = ChannelKind.EMAIL
USER = "ann"
ACCOUNTS = (
    ProviderAccount("", "mail-1", ProviderKind.SMTP, order=1),
    ProviderAccount("", "mail-2", ProviderKind.SMTP, order=2),
    ProviderAccount("", "text-1", ProviderKind.TWILIO, order=1),
)


def notification(**fields: Any) -> Notification:
    id_ = NotificationId(fields.pop("id", None) or str(uuid_utils.uuid7()))
    return Notification(
        **{
            "id": id_,
            "tenant": TENANT,
            "user_id": USER,
            "channels": (CHANNEL,),
            "content": Content(text="hello"),
            "send_ms": NOW_MS,
            "expires_ms": NOW_MS + 3_600_000,
            "created_ms": NOW_MS,
            "send_key": id_,
            **fields,
        }
    )


class ScriptedProvider(Provider):
    """Answers with the outcomes that a test gives it, and remembers which account was called."""

    def __init__(self) -> None:
        self.outcomes: deque[ProviderOutcome | BaseException] = deque()
        self.found: ProviderOutcome | None = None
        self.called: list[str] = []

    def answer(self, *kinds: OutcomeKind, **fields: Any) -> None:
        self.outcomes.extend(ProviderOutcome(kind, detail="said so", **fields) for kind in kinds)

    async def send(self, account: ProviderAccount, message: ProviderMessage) -> ProviderOutcome:
        self.called.append(account.name)
        outcome = self.outcomes.popleft() if self.outcomes else ProviderOutcome(OutcomeKind.ACCEPTED, provider_id="p")
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    async def find(self, account: ProviderAccount, message: ProviderMessage, since_ms: int) -> ProviderOutcome | None:
        return self.found

    async def close(self) -> None: ...


class SendingBench:
    """The stages of notifications on one store, without loops."""

    def __init__(self, store: SqliteStore) -> None:
        self.store, self.clock, self.keyring = store, ManualClock(), Keyring.generate()
        self.sealer, self.bus, self.placing = Sealer(self.keyring), MemoryBus(self.clock), Placing()
        self.scheduled, self.events, self.send_keys = (
            store.scheduled_notifications,
            store.notification_events,
            store.send_keys,
        )
        self.profiles = Profiles(store.users, self.keyring)
        self.provider = ScriptedProvider()
        self.accounts = AccountCache(store.provider_accounts, self.keyring, self.clock, ACCOUNTS)
        self.acceptor = StoredAcceptor(self.scheduled, self.bus, self.clock, self.sealer, self.placing, "w")
        self.sender = self.new_sender()
        self.recorder = NotificationRecorder(
            bus=self.bus,
            partition=0,
            scheduled=self.scheduled,
            events=self.events,
            send_keys=self.send_keys,
            acceptor=self.acceptor,
            placing=self.placing,
            sealer=self.sealer,
            keyring=self.keyring,
            clock=self.clock,
        )

    def new_sender(self) -> NotificationSender:
        """Return a sender as a process has that has just started."""
        return NotificationSender(
            profiles=self.profiles,
            accounts=self.accounts,
            send_keys=self.send_keys,
            events=self.events,
            providers={ProviderKind.SMTP: self.provider, ProviderKind.TWILIO: self.provider},
            throttles=MemoryThrottles(),
            clock=self.clock,
            always_looks_up=True,
        )

    def new_poller(self, name: str = "i-1", *, is_durable: bool = False) -> Poller:
        return Poller(
            InstanceId(name), self.scheduled, self.events, self.bus, self.clock, self.sealer, is_durable=is_durable
        )

    async def add_user(self, **fields: Any) -> None:
        profile = Profile(**{"email": "ann@example.com", "phone": "+4930123456", **fields})
        await self.store.users.put(TENANT, USER, self.profiles.seal(profile, TENANT, USER), NOW_MS)

    async def send(self, dispatch: NotificationDispatch, number: int = 1) -> SendResult:
        """Send a dispatch as a worker does that has claimed it."""
        message = self.dispatch(dispatch, number)
        return await self.sender.send(Context(message, Token(number, self.clock.now_ms()), None), dispatch)

    def dispatch(self, dispatch: NotificationDispatch, number: int = 1) -> Dispatch:
        now_ms = self.clock.now_ms()
        row = row_of(dispatch, number, dispatch.notification.send_ms, now_ms, self.placing, self.sealer)
        return dispatch_of(row, now_ms)

    async def record(self, one: Notification, result: SendResult | None, number: int = 1, **fields: Any) -> None:
        """Report how a dispatch ended, and record it."""
        await self.record_sealed(
            one, self.sealer.seal(result, one.tenant, one.id) if result else None, number, **fields
        )

    async def record_sealed(self, one: Notification, result: bytes | None, number: int = 1, **fields: Any) -> None:
        """Report a sealed result, and record it."""
        now_ms = self.clock.now_ms()
        report = Report(
            **{
                "execution_id": ExecutionId(one.id),
                "dispatch": number,
                "worker_id": WorkerId("w-1"),
                "outcome": int(Outcome.SUCCEEDED),
                "started_ms": now_ms,
                "ended_ms": now_ms,
                "result": result,
                "job_id": JobId(one.id),
                "tenant": one.tenant,
                **fields,
            }
        )
        await self.bus.report(0, [report])
        await self.recorder.drain()

    async def names(self, one: Notification) -> list[str]:
        """Return the names of the events of a notification."""
        found = (await self.events.events_of([(one.tenant, one.id)])).get(one.id, [])
        return [event.name for event in found]

    async def waiting(self) -> list[Dispatch]:
        """Return what is in the topics."""
        return await self.bus.take(WorkerId("w"), {"push": 1_000, "sms": 1_000, "email": 1_000}, 0)
