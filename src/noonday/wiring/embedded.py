"""Embedded mode: one process on one SQLite file."""

import asyncio
from collections.abc import Collection, Mapping
from pathlib import Path

from noonday.alerts.channels import CONCURRENCY
from noonday.crypto.keyring import Keyring, load_or_create
from noonday.drivers.memory.bus import MemoryBus
from noonday.drivers.memory.hot_index import MemoryHotIndex
from noonday.drivers.memory.leases import LocalLeases
from noonday.drivers.memory.signals import MemorySignals
from noonday.drivers.sqlite.connection import MEMORY, FileOptions
from noonday.drivers.sqlite.store import SqliteStore, open_store
from noonday.model.budget import EntryBudget
from noonday.model.errors import InvalidInput, nearest
from noonday.model.handler import Handler
from noonday.model.ids import InstanceId
from noonday.model.pool import NOTICES_POOL
from noonday.model.shell import POOL as SHELL_POOL
from noonday.ports.clock import Clock
from noonday.ports.leases import Leases
from noonday.runtime.clock import SystemClock
from noonday.runtime.offload import ThreadOffload
from noonday.runtime.supervise import StopDeadline
from noonday.webhooks.handler import POOL
from noonday.wiring.built_in_handlers import BuiltInHandlers
from noonday.wiring.drivers import Drivers, NotificationDrivers
from noonday.wiring.engine import Engine
from noonday.wiring.sending import Sending
from noonday.wiring.settings import Settings
from noonday.wiring.stopping import stop_deadline
from noonday.wiring.telemetry import tracing_of


class Embedded:
    """An engine on one SQLite file, from `open` to `close`."""

    def __init__(self, store: SqliteStore, engine: Engine, built_in: BuiltInHandlers, sending: Sending) -> None:
        self.store = store
        self.engine = engine
        self.sending = sending
        self._built_in = built_in

    @classmethod
    async def open(
        cls,
        settings: Settings,
        handlers: Mapping[tuple[str, str], Handler],
        *,
        handlers_loop: asyncio.AbstractEventLoop | None = None,
        concurrency: Mapping[str, int] | None = None,
        clock: Clock | None = None,
        run: bool = True,
        offers_doubles: bool = False,
    ) -> "Embedded":
        """Lock and open the file, recover the state of the last process, and start the engine.

        With `run=False` no loop runs: a test runs each round itself. With `offers_doubles`, notifications go to doubles while
        no tenant has a provider account. Raises AlreadyRunning if another process has the file.
        """
        check_concurrency(concurrency or {}, {pool for pool, _ in handlers})
        clock = clock or SystemClock()
        leases = LocalLeases(None if settings.data == MEMORY else Path(f"{settings.data}.lock"), clock)
        store = sending = None
        try:
            # Lock before opening: a second process must not even migrate the file.
            await leases.join(InstanceId(""), 1.0)
            store = open_store(settings.data, file_options(settings), settings.scheduler.lead_ms)
            drivers = drivers_on(store, leases, keyring_of(settings), clock, settings)
            built_in = BuiltInHandlers(settings, drivers.keyring, clock)
            pools = built_in_pools(settings)
            with_doubles = offers_doubles and not await store.provider_accounts.has_any()
            sending = await Sending.open(settings, clock, with_doubles=with_doubles)
            engine = Engine(
                drivers,
                settings,
                {**built_in.of_pools(pools), **handlers},
                handlers_loop=handlers_loop,
                concurrency={**pools, **(concurrency or {})},
                tracing=tracing_of(settings),
                sending=sending,
            )
            await engine.open()
            if run:
                engine.run()
        except BaseException:
            if sending:
                await sending.close()
            if store:
                await store.close()
            await leases.leave()
            raise
        return cls(store, engine, built_in, sending)

    async def close(self, deadline: StopDeadline | None = None) -> None:
        """Stop the engine and release the file, by the deadline if one is given."""
        engine = self.engine
        deadline = deadline or stop_deadline(engine.settings, engine.drivers.clock)
        try:
            await engine.stop(deadline)
            await deadline.step("webhooks", self._built_in.close())
            await deadline.step("providers", self.sending.close())
        finally:
            await deadline.step("store", self.store.close())

    async def abandon(self) -> None:
        """Release everything without waiting for runs to finish."""
        self.engine.worker.abandon()
        if self.engine.notifications is not None:
            self.engine.notifications.worker.abandon()
        await self._built_in.close()
        await self.sending.close()
        await self.engine.ownership.leave()
        await self.store.close()


def drivers_on(store: SqliteStore, leases: Leases, keyring: Keyring, clock: Clock, settings: Settings) -> Drivers:
    budget = EntryBudget(settings.scheduler.index_entries)
    return Drivers(
        clock=clock,
        **store.ports,
        index=MemoryHotIndex(settings.scheduler.lead_ms, budget=budget),
        budget=budget,
        bus=MemoryBus(clock),
        signals=MemorySignals(),
        leases=leases,
        keyring=keyring,
        offload=ThreadOffload(),
        notifications=notification_drivers_on(store, clock),
    )


def notification_drivers_on(store: SqliteStore, clock: Clock) -> NotificationDrivers:
    return NotificationDrivers(
        MemoryBus(clock), MemorySignals(), store.scheduled_notifications, store.notification_events, store.send_keys
    )


def check_concurrency(concurrency: Mapping[str, int], pools: Collection[str]) -> None:
    """Raise InvalidInput if a number of concurrent runs is for a pool without handlers, or below 1."""
    for pool, count in concurrency.items():
        if pool not in pools:
            guess = nearest(pool, pools)
            hint = f"did you mean {guess}?" if guess else f"the pools of the handlers are {', '.join(sorted(pools))}"
            raise InvalidInput.of(
                "/concurrency", f"concurrency: no pool {pool}; {hint}", pool, allowed=sorted(pools), nearest=guess
            )
        if count < 1:
            raise InvalidInput.of(f"/concurrency/{pool}", f"concurrency of pool {pool} must be at least 1, not {count}")


def built_in_pools(settings: Settings) -> dict[str, int]:
    """Return the built-in pools that an embedded engine works for, with their concurrency."""
    webhooks = {POOL: settings.webhooks.concurrency} if settings.webhooks.concurrency else {}
    shell = {SHELL_POOL: settings.shell.concurrency} if settings.shell.allow else {}
    return {NOTICES_POOL: CONCURRENCY, **webhooks, **shell}


def keyring_of(settings: Settings) -> Keyring:
    if settings.encryption.keys:
        return Keyring.from_env_value(settings.encryption.keys)
    if settings.data == MEMORY:
        return Keyring.generate()
    return load_or_create(Path(f"{settings.data}.keys"))


def file_options(settings: Settings) -> FileOptions:
    store = settings.store
    return FileOptions(store.synchronous, store.cache_mb, store.busy_timeout_ms)
