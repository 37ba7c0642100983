"""The role of notifications: publish them at their time, send them, and record what came of them."""

import asyncio
from collections.abc import Coroutine, Mapping
from typing import Any

from noonday.model.notifications.sending import ChannelKind
from noonday.notifications.accepting import StoredAcceptor
from noonday.notifications.accounts import AccountCache
from noonday.notifications.dispatching import POOLS, Sealer
from noonday.notifications.housekeeping import NotificationHousekeeper
from noonday.notifications.placing import Placing
from noonday.notifications.poller import Poller
from noonday.notifications.profiles import Profiles
from noonday.notifications.recorder import NotificationRecorder
from noonday.notifications.sending import NotificationSender
from noonday.ports.providers import Providers
from noonday.runtime.supervise import Loop, StopDeadline, Tasks, every
from noonday.wiring.drivers import Drivers, NotificationDrivers, WorkerDrivers
from noonday.wiring.roles.role import ProcessContext, ProcessRole
from noonday.wiring.stopping import drain_left_sec
from noonday.worker.options import WorkerOptions
from noonday.worker.worker import Worker

POLL_SEC = 1.0
RESULT_BYTES = 1_000_000
"""Largest result of a sender: it has the notification, if another dispatch follows."""


class NotificationRole(ProcessRole):
    """Poller, senders and recorder of a process that has all partitions."""

    def __init__(
        self,
        drivers: Drivers,
        notifications: NotificationDrivers,
        context: ProcessContext,
        providers: Providers,
        accounts: AccountCache,
    ) -> None:
        """Call this on the event loop that senders run on: no handler of an application may block them."""
        self._context = context
        self._drivers = drivers
        self._signals = notifications.signals
        clock, sealer, placing = drivers.clock, Sealer(drivers.keyring), Placing()
        self.acceptor = StoredAcceptor(
            notifications.scheduled_notifications, notifications.bus, clock, sealer, placing, context.instance
        )
        self.poller = Poller(
            context.instance,
            notifications.scheduled_notifications,
            notifications.notification_events,
            notifications.bus,
            clock,
            sealer,
            is_durable=False,
        )
        self.recorder = NotificationRecorder(
            bus=notifications.bus,
            partition=0,
            scheduled=notifications.scheduled_notifications,
            events=notifications.notification_events,
            send_keys=notifications.send_keys,
            acceptor=self.acceptor,
            placing=placing,
            sealer=sealer,
            keyring=drivers.keyring,
            clock=clock,
        )
        sender = NotificationSender(
            profiles=Profiles(drivers.users, drivers.keyring),
            accounts=accounts,
            send_keys=notifications.send_keys,
            events=notifications.notification_events,
            providers=providers,
            throttles=drivers.throttles,
            clock=clock,
            always_looks_up=True,
        )
        of_worker = WorkerDrivers(
            clock, drivers.keyring, notifications.bus, notifications.signals, drivers.breakers, drivers.throttles
        )
        self.worker = _worker(sender, of_worker, context)
        housekeeper = NotificationHousekeeper(
            notifications.scheduled_notifications,
            notifications.notification_events,
            notifications.send_keys,
            retention_ms=context.settings.notifications.retention_days * 86_400_000,
        )
        super().__init__(
            "notifications",
            Loop("poller", self.poller, clock, every(POLL_SEC), stuck_after_sec=30),
            Loop("notification-recorder", self.recorder, clock, every(0), stuck_after_sec=30),
            Loop("notification-housekeeping", housekeeper, clock, every(60.0), stuck_after_sec=600),
        )

    async def open(self) -> None:
        """Take over what the former process left, and join the pools."""
        for pool in POOLS.values():
            await self._signals.begin_generation(pool)
        await self.poller.open()
        await self.worker.open()

    def coroutines(self) -> Mapping[str, Coroutine[Any, Any, None]]:
        return {f"sender-{name}": loop for name, loop in self.worker.loops().items()}

    def is_live(self) -> bool:
        return self.worker.live()

    def reasons_not_ready(self) -> list[str]:
        return self.worker.reasons_not_ready()

    async def hand_over(self, tasks: Tasks) -> None:
        """Publish and take nothing more. Calls that have begun may end."""
        await tasks.end("poller")
        await self.worker.stop_taking()

    async def finish(self, tasks: Tasks, deadline: StopDeadline) -> None:
        """Let calls end within the drain time that is left, and record them."""
        await self.worker.close(drain_left_sec(self._context.settings, deadline))
        await tasks.end("notification-recorder")
        while await self.recorder.drain():
            pass


def _worker(sender: NotificationSender, drivers: WorkerDrivers, context: ProcessContext) -> Worker:
    settings = context.settings
    concurrency = {POOLS[channel]: settings.notifications.concurrency for channel in ChannelKind}
    return Worker(
        handlers=sender.handlers(),
        bus=drivers.bus,
        signals=drivers.signals,
        breakers=drivers.breakers,
        throttles=drivers.throttles,
        clock=drivers.clock,
        keyring=drivers.keyring,
        metrics=context.metrics,
        tracing=context.tracing,
        options=WorkerOptions(
            concurrency=concurrency,
            beat_sec=settings.worker.beat_sec,
            drain_sec=settings.worker.drain_sec,
            cancel_grace_sec=settings.worker.cancel_grace_sec,
            # The senders decide about repeats themselves.
            retry_breaker_min_runs_per_minute=0,
            result_limit=RESULT_BYTES,
        ),
        handlers_loop=asyncio.get_running_loop(),
    )
