"""Parts of a process: intake, scheduler, recorder and worker, each built from the drivers that it needs."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from noonday import __version__
from noonday.alerts.alert_service import AlertService
from noonday.alerts.channels import handlers_of
from noonday.alerts.dead_mans_switch import DeadMansSwitch
from noonday.alerts.lateness import Lateness
from noonday.alerts.notice_jobs import NoticeJobs
from noonday.alerts.notices import Notifier
from noonday.alerts.preferences import PreferenceService, Seal
from noonday.crypto.keyring import Keyring
from noonday.drivers.memory.breakers import MemoryBreakers
from noonday.drivers.memory.throttles import MemoryThrottles
from noonday.drivers.memory.tokens import MemoryTokens
from noonday.intake.services import intake_services
from noonday.intake.waiting import Waiting
from noonday.model.budget import EntryBudget
from noonday.model.handler import Handler
from noonday.model.ids import InstanceId, JobId, WorkerId, new_job_id, new_worker_id
from noonday.model.notice import ChannelType
from noonday.model.pool import BUILT_IN_POOLS, NOTICES_POOL
from noonday.model.recording import Settled
from noonday.ports.alerts import Alerts
from noonday.ports.aside import Aside, Inline
from noonday.ports.breakers import Breakers
from noonday.ports.bus import Bus
from noonday.ports.channels import Channel, Channels
from noonday.ports.clock import Clock
from noonday.ports.completions import Completions
from noonday.ports.endpoints import Endpoints
from noonday.ports.executions import Executions
from noonday.ports.firing import Firing
from noonday.ports.hot_index import HotIndex
from noonday.ports.jobs import Jobs
from noonday.ports.leases import Leases
from noonday.ports.notices import Notices
from noonday.ports.queries import QueryStore
from noonday.ports.settings import SettingsStore
from noonday.ports.signals import Signals
from noonday.ports.throttles import Throttles
from noonday.ports.tokens import Tokens
from noonday.ports.workload import Workload
from noonday.recorder.recorder import Recorder
from noonday.runtime.metrics import Metrics
from noonday.runtime.supervise import Loop, StopDeadline, every
from noonday.runtime.tracing import Tracing
from noonday.scheduler.allowances import Allowances
from noonday.scheduler.dispatcher import Dispatcher
from noonday.scheduler.hydrator import Hydrator
from noonday.scheduler.in_flight import InFlight
from noonday.scheduler.ownership import Ownership
from noonday.scheduler.publishing import Publisher
from noonday.scheduler.replanner import Replanner
from noonday.scheduler.sweeper import Sweeper
from noonday.tasks.endpoint_disabler import EndpointDisabler
from noonday.tasks.endpoints import EndpointService
from noonday.tasks.secrets import SecretService
from noonday.tasks.task_service import TaskService
from noonday.webhooks.addresses import Networks
from noonday.webhooks.bounds import CallBounds
from noonday.webhooks.handler import NAME, WebhookHandler
from noonday.wiring.settings import Settings
from noonday.wiring.settings.outgoing import EmailSettings
from noonday.worker.options import WorkerOptions
from noonday.worker.worker import Worker


@dataclass(frozen=True)
class Drivers:
    """The drivers of all ports that the stages use."""

    clock: Clock
    jobs: Jobs
    firing: Firing
    executions: Executions
    query_store: QueryStore
    settings_store: SettingsStore
    workload: Workload
    endpoints: Endpoints
    alerts: Alerts
    notices: Notices
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
    aside: Aside = field(default_factory=Inline)


@dataclass(frozen=True)
class ProcessContext:
    """Identity, settings, metrics and tracing, which all parts of a process share."""

    instance: InstanceId
    settings: Settings
    metrics: Metrics
    tracing: Tracing

    @property
    def hint_ahead_ms(self) -> int:
        return self.settings.scheduler.hint_ahead_sec * 1000


def webhooks_of(settings: Settings, keyring: Keyring, clock: Clock) -> WebhookHandler:
    webhooks = settings.webhooks
    ca_file = Path(webhooks.ca_file) if webhooks.ca_file else None
    return WebhookHandler(
        keyring,
        clock,
        user_agent=f"noonday/{__version__}",
        allow_networks=webhooks.networks,
        ca_file=ca_file,
        max_timeout_sec=webhooks.max_timeout_sec,
    )


def channels_of(settings: Settings) -> Channels:
    """Return the configured channels of notices. Add a new channel here."""
    return {ChannelType.EMAIL: _mail(settings.email)} if settings.email.host is not None else {}


def _mail(email: EmailSettings) -> Channel:
    from noonday.mail.smtp import MailServer, SmtpChannel  # importing it takes 0.1 s, and most processes do not need it

    assert email.host is not None
    assert email.sender is not None
    server = MailServer(
        email.host,
        email.sender,
        port=email.port,
        username=email.username,
        password=email.password,
        password_file=Path(email.password_file) if email.password_file else None,
        tls=email.tls,
        starttls=email.starttls,
        ca_file=Path(email.ca_file) if email.ca_file else None,
        timeout_sec=email.timeout_sec,
        recipients=email.allowed_recipients,
    )
    return SmtpChannel(server)


def notice_handlers(settings: Settings, webhooks: WebhookHandler, keyring: Keyring) -> dict[tuple[str, str], Handler]:
    """Return the handlers that send notices: one for each channel, and one that calls webhooks."""
    call = replace(webhooks.handler(), pool=NOTICES_POOL)
    return {(NOTICES_POOL, NAME): call, **handlers_of(channels_of(settings), keyring)}


class IntakePart:
    """Services and queries behind the API. They never wait for a scheduler."""

    def __init__(
        self,
        drivers: Drivers,
        context: ProcessContext,
        *,
        live: Callable[[], dict[str, Any]] = dict,
        new_id: Callable[[], JobId] = new_job_id,
        on_placed: Callable[[], None] = lambda: None,
    ) -> None:
        """`on_placed` is called after entries were hinted to the hot index."""
        clock = drivers.clock
        self.services = intake_services(
            jobs=drivers.jobs,
            query_store=drivers.query_store,
            settings_store=drivers.settings_store,
            workload=drivers.workload,
            index=drivers.index,
            signals=drivers.signals,
            tokens=drivers.tokens,
            aside=drivers.aside,
            clock=clock,
            keyring=drivers.keyring,
            limits=context.settings.sizes,
            hint_ahead_ms=context.hint_ahead_ms,
            tracing=context.tracing,
            logs_url=context.settings.logs_url_template,
            live=live,
            new_id=new_id,
            on_placed=on_placed,
            on_created=context.metrics.count_created,
        )
        receipts = self.services.receipts
        self.secrets = SecretService(drivers.endpoints, receipts, drivers.keyring, clock)
        self.endpoint_disabler = EndpointDisabler(drivers.endpoints, self.services.jobs)
        endpoints = EndpointService(drivers.endpoints, self.endpoint_disabler, receipts, clock)
        webhooks = context.settings.webhooks
        bounds = CallBounds(Networks(webhooks.networks), webhooks.max_timeout_sec)
        self.tasks = TaskService(
            self.services, self.secrets, drivers.query_store, drivers.executions, clock, endpoints, bounds
        )
        seal, notice_jobs = Seal(drivers.keyring), self._make_notice_jobs(drivers, new_id)
        channels = channels_of(context.settings)
        self.alerts = AlertService(drivers.alerts, receipts, clock)
        self.preferences = PreferenceService(drivers.notices, channels, seal, notice_jobs, receipts, clock, bounds)
        self.notifier = Notifier(drivers.alerts, drivers.notices, drivers.query_store, seal, notice_jobs, clock)

    def _make_notice_jobs(self, drivers: Drivers, new_id: Callable[[], JobId]) -> NoticeJobs:
        return NoticeJobs(
            jobs=drivers.jobs,
            settings_store=drivers.settings_store,
            sender=self.services.sender,
            pools=self.services.pools,
            keyring=drivers.keyring,
            clock=drivers.clock,
            make_first_secret=self.secrets.make_first,
            new_id=new_id,
        )


def dead_mans_switch_of(drivers: Drivers, settings: Settings) -> DeadMansSwitch:
    alerts = settings.alerts
    lateness = Lateness(drivers.query_store, drivers.settings_store, _waiting_of(drivers))
    return DeadMansSwitch(drivers.alerts, lateness, alerts.late_after_sec * 1000, alerts.slow_after_sec * 1000)


def _waiting_of(drivers: Drivers) -> Waiting:
    return Waiting(drivers.query_store, drivers.settings_store, drivers.workload, drivers.tokens, drivers.clock)


class SchedulerPart:
    """The loops of a scheduler: own partitions, and fire the due entries in them."""

    def __init__(self, drivers: Drivers, context: ProcessContext, load: Callable[[], float] = lambda: 0.0) -> None:
        scheduler, clock = context.settings.scheduler, drivers.clock
        self.ownership = Ownership(
            context.instance, drivers.leases, drivers.firing, drivers.index, drivers.bus, clock, load=load
        )
        in_flight = InFlight()
        allowances = Allowances(drivers.settings_store, drivers.tokens, drivers.index, clock, in_flight)
        publisher = Publisher(drivers.bus, drivers.endpoints, context.tracing, clock)
        self.dispatcher = Dispatcher(
            ownership=self.ownership,
            allowances=allowances,
            in_flight=in_flight,
            firing=drivers.firing,
            index=drivers.index,
            bus=drivers.bus,
            signals=drivers.signals,
            clock=clock,
            publisher=publisher,
            metrics=context.metrics,
            batch=scheduler.batch,
            hint_ahead_ms=context.hint_ahead_ms,
            budget=drivers.budget,
        )
        hydrator = Hydrator(
            drivers.firing,
            drivers.index,
            lambda: self.ownership.partitions,
            scheduler.hydrate_ahead_sec * 1000,
            self.dispatcher.tracks,
        )
        sweeper = Sweeper(
            firing=drivers.firing,
            executions=drivers.executions,
            index=drivers.index,
            publisher=publisher,
            ownership=self.ownership,
            is_tracked=self.dispatcher.tracks,
            grace_ms=scheduler.grace_ms,
        )
        self.loops = by_name(
            Loop("dispatcher", self.dispatcher, clock, self.dispatcher.next_wait, stuck_after_sec=5),
            Loop("hydrator", _StoreService(hydrator, self), clock, every(1.0), stuck_after_sec=30),
            Loop(
                "sweeper",
                _StoreService(sweeper, self),
                clock,
                every(scheduler.sweep_every_ms / 1000),
                stuck_after_sec=30,
            ),
            Loop("replanner", Replanner(drivers.firing, clock), clock, every(5.0), stuck_after_sec=120),
            Loop("tenants", allowances, clock, every(1.0), stuck_after_sec=30),
            Loop("bus", _BusCheck(self.ownership), clock, every(1.0), stuck_after_sec=60),
            Loop("ownership", self.ownership, clock, self.ownership.next_wait, stuck_after_sec=10),
        )
        self.ownership.on_gained = lambda partitions: self._on_gained(hydrator, partitions)

    def wake(self) -> None:
        """Wake the dispatcher, because a new entry may be due."""
        self.loops["dispatcher"].wake.set()

    def on_settled(self, settled: Settled) -> None:
        """Wake the dispatcher when a recorder of the same process freed slots or returned entries to the timeline."""
        if settled.freed:
            self.dispatcher.release_blocked(settled.freed)
        if settled.freed or settled.entries:
            self.wake()

    def _on_gained(self, hydrator: Hydrator, partitions: Any) -> None:
        hydrator.walk_again(partitions)
        self.loops["hydrator"].wake.set()


class _StoreService:
    """A hydrator or sweeper. Each round proves that the store is available, and wakes the dispatcher if it found entries."""

    def __init__(self, service: Hydrator | Sweeper, scheduler: SchedulerPart) -> None:
        self._service = service
        self._scheduler = scheduler

    async def run_once(self, now_ms: int) -> int:
        found = await self._service.run_once(now_ms)
        self._scheduler.ownership.note_store_round()
        if found:
            self._scheduler.wake()
        return found


class _BusCheck:
    """Checks that the bus is available. A process that cannot publish must not keep its partitions."""

    def __init__(self, ownership: Ownership) -> None:
        self._ownership = ownership

    async def run_once(self, now_ms: int) -> int:
        await self._ownership.check_bus()
        return 0


def recorder_of(partition: int, drivers: Drivers, context: ProcessContext) -> Recorder:
    return Recorder(
        instance=context.instance,
        partition=partition,
        executions=drivers.executions,
        endpoints=drivers.endpoints,
        bus=drivers.bus,
        index=drivers.index,
        signals=drivers.signals,
        clock=drivers.clock,
        metrics=context.metrics,
        tracing=context.tracing,
        hint_ahead_ms=context.hint_ahead_ms,
    )


STOP_SLACK_SEC, ORDERLY_SEC = 2.0, 1.25
"""Seconds after the drain time and the cancel grace within which a process has exited, and the part of them that an orderly stop
may take."""


def stop_within_sec(settings: Settings) -> float:
    """Return the maximum time of a stop in seconds, even if servers are unavailable or handlers do not end."""
    return settings.worker.drain_sec + settings.worker.cancel_grace_sec + STOP_SLACK_SEC


def stop_deadline(settings: Settings, clock: Clock) -> StopDeadline:
    """Return the deadline of an orderly stop that begins now."""
    return StopDeadline(clock, settings.worker.drain_sec + settings.worker.cancel_grace_sec + ORDERLY_SEC)


async def close_worker(worker: Worker, settings: Settings, deadline: StopDeadline) -> None:
    """Close a worker with the drain time that earlier steps of the stop have left."""
    left_sec = deadline.left_sec() - settings.worker.cancel_grace_sec - ORDERLY_SEC
    await deadline.step("worker", worker.close(max(0.0, min(float(settings.worker.drain_sec), left_sec))))


def worker_of(
    handlers: Mapping[tuple[str, str], Handler],
    context: ProcessContext,
    *,
    bus: Bus,
    signals: Signals,
    breakers: Breakers,
    throttles: Throttles,
    clock: Clock,
    keyring: Keyring,
    concurrency: Mapping[str, int],
    handlers_loop: asyncio.AbstractEventLoop,
    frozen_after_sec: float | None = None,
    completions: Completions | None = None,
    new_id: Callable[[], WorkerId] = new_worker_id,
) -> Worker:
    """Return a worker for the pools in `concurrency`. It needs no store."""
    worker = context.settings.worker
    options = WorkerOptions(
        concurrency=concurrency,
        shares=dict.fromkeys(BUILT_IN_POOLS, context.settings.webhooks.share_percent / 100),
        threads=worker.threads,
        processes=worker.processes,
        beat_sec=worker.beat_sec,
        drain_sec=worker.drain_sec,
        cancel_grace_sec=worker.cancel_grace_sec,
        max_abandoned=worker.max_abandoned,
        retry_breaker_min_runs_per_minute=worker.retry_breaker_min_runs_per_minute,
        result_limit=context.settings.limits.result_bytes,
        progress_limit=context.settings.limits.progress_bytes,
        frozen_after_sec=frozen_after_sec,
    )
    return Worker(
        handlers=handlers,
        bus=bus,
        signals=signals,
        breakers=breakers,
        throttles=throttles,
        clock=clock,
        keyring=keyring,
        metrics=context.metrics,
        tracing=context.tracing,
        options=options,
        handlers_loop=handlers_loop,
        completions=completions,
        new_id=new_id,
    )


def by_name(*loops: Loop) -> dict[str, Loop]:
    return {loop.name: loop for loop in loops}
