"""The engine: all roles in one process, on any set of drivers."""

import asyncio
from collections.abc import Callable, Mapping

import uuid_utils

from noonday.model.handler import Handler
from noonday.model.ids import InstanceId, JobId, new_job_id
from noonday.runtime.metrics import Metrics
from noonday.runtime.supervise import StopDeadline
from noonday.runtime.tracing import Tracing
from noonday.wiring.drivers import Drivers
from noonday.wiring.intake import IntakePart
from noonday.wiring.notifications import flaws_for
from noonday.wiring.roles.composition import compose
from noonday.wiring.roles.notifications import NotificationRole
from noonday.wiring.roles.recorder import RecorderRole
from noonday.wiring.roles.remote import RemoteRole
from noonday.wiring.roles.role import ProcessContext
from noonday.wiring.roles.role_group import RoleGroup
from noonday.wiring.roles.scheduler import SchedulerRole
from noonday.wiring.roles.worker import WorkerRole
from noonday.wiring.sending import Sending
from noonday.wiring.settings import Settings
from noonday.wiring.stopping import stop_deadline


class Engine:
    """Intake, scheduler, worker and recorder of one process, which start and stop together."""

    def __init__(
        self,
        drivers: Drivers,
        settings: Settings,
        handlers: Mapping[tuple[str, str], Handler],
        *,
        handlers_loop: asyncio.AbstractEventLoop | None = None,
        concurrency: Mapping[str, int] | None = None,
        tracing: Tracing | None = None,
        sending: Sending | None = None,
        new_id: Callable[[], JobId] = new_job_id,
    ) -> None:
        """Call this on the event loop that the engine will run on. Handlers run on `handlers_loop`, by default the same loop.

        Without `sending`, the engine sends no notifications.
        """
        self.drivers = drivers
        self.settings = settings
        self.instance = InstanceId(f"i-{uuid_utils.uuid7().hex[:20]}")
        self.metrics = Metrics(settings.metrics.named_tenants)
        self.tracing = tracing or Tracing(None)
        context = ProcessContext(self.instance, settings, self.metrics, self.tracing)
        scheduler = SchedulerRole(drivers, context, shares_partitions=False)
        worker = WorkerRole(
            handlers,
            dict.fromkeys((pool for pool, _ in handlers), settings.worker.concurrency) | dict(concurrency or {}),
            drivers.of_worker,
            context,
            handlers_loop=handlers_loop or asyncio.get_running_loop(),
        )
        remote = RemoteRole(drivers.of_worker, context)
        self.intake = IntakePart(
            drivers,
            context,
            live=scheduler.state,
            new_id=new_id,
            default_accounts=sending.default_accounts if sending is not None else (),
            flaws_of_account=flaws_for(sending.hosts) if sending is not None else None,
        )
        recorder = RecorderRole(
            drivers,
            context,
            lambda: [*worker.worker.pools, *remote.pools.names],
            scheduler.on_settled,
            self.intake.services.child_job_admission.admit,
        )
        self.ownership, self.dispatcher = scheduler.ownership, scheduler.dispatcher
        self.recorder, self.worker = recorder.recorder, worker.worker
        self.services, self.tasks, self.secrets = self.intake.services, self.intake.tasks, self.intake.secrets
        self.alerts, self.preferences = self.intake.alerts, self.intake.preferences
        self.notifications = None
        if sending is not None and drivers.notifications is not None:
            self.notifications = NotificationRole(
                drivers, drivers.notifications, context, sending.providers.by_kind, self.intake.accounts
            )
        roles = compose(
            drivers,
            context,
            self.intake,
            scheduler=scheduler,
            recorder=recorder,
            worker=worker,
            remote=remote,
            notifications=self.notifications,
            shows_clock=True,
        )
        self.remote = remote
        self._catch_up = recorder.catch_up
        self._roles = RoleGroup(context, roles)
        self.loops = self._roles.loops

    async def start(self) -> None:
        await self.open()
        self.run()

    async def open(self) -> None:
        """Take ownership of the partitions, recover the state of the last owner, and register the worker."""
        await self.ownership.join()
        await self.recorder.open()
        await self.worker.open()
        await self._catch_up()
        if self.notifications is not None:
            await self.notifications.open()

    def run(self) -> None:
        """Start a task for each loop."""
        self._roles.run()

    async def start_announced(self) -> None:
        """Record the starts that the worker announces, and then start those runs. For tests that run no loops."""
        if not self.worker.is_announcing:
            return
        announcing = asyncio.ensure_future(self.worker.announce_once())
        while not announcing.done():
            await self.recorder.drain()
            await asyncio.sleep(0)
        await announcing

    async def stop(self, deadline: StopDeadline | None = None) -> None:
        """Stop in the order of the data flow: stop firing, let runs end, record them, release the lease.

        Returns within the drain time, the cancel grace and 2 s, or by the deadline. The next start completes any step that
        was not done by then.
        """
        deadline = deadline or stop_deadline(self.settings, self.drivers.clock)
        await self._roles.hand_over(deadline)
        await self._roles.stop(deadline)

    @property
    def failed(self) -> "asyncio.Future[None]":
        """Future that completes with the error of the first loop that ended. The caller then stops the engine."""
        return self._roles.failed

    def live(self) -> bool:
        """Return False if a loop has ended: the process should be restarted."""
        return not self.failed.done()

    def ready(self) -> list[str]:
        """Return the reasons why this engine is not ready; an empty list if it is ready."""
        return self._roles.reasons_not_ready()
