"""Composition of the roles of a process, in the order of their start."""

from noonday.wiring.drivers import Drivers
from noonday.wiring.intake import IntakePart
from noonday.wiring.roles.alerts import dead_mans_switch, endpoint_disabling, incidents, notices
from noonday.wiring.roles.child_jobs import child_jobs
from noonday.wiring.roles.housekeeping import housekeeping
from noonday.wiring.roles.notifications import NotificationRole
from noonday.wiring.roles.operations import operations
from noonday.wiring.roles.recorder import RecorderGroupRole, RecorderRole
from noonday.wiring.roles.remote import RemoteRole
from noonday.wiring.roles.resuming import resuming
from noonday.wiring.roles.role import ProcessContext, ProcessRole
from noonday.wiring.roles.scheduler import SchedulerRole
from noonday.wiring.roles.worker import WorkerRole


def compose(
    drivers: Drivers,
    context: ProcessContext,
    intake: IntakePart,
    *,
    scheduler: SchedulerRole | None = None,
    recorder: RecorderRole | RecorderGroupRole | None = None,
    worker: WorkerRole | None = None,
    remote: RemoteRole | None = None,
    notifications: NotificationRole | None = None,
    shows_clock: bool = False,
) -> list[ProcessRole]:
    """Return the given roles and those that go with them, in the order of their start.

    A scheduler comes with housekeeping, bulk operations, the resumer and the dead man's switch, a recorder with what creates the
    child jobs and consumes the incidents that it records. `shows_clock`: whether housekeeping sets the clock offset gauge. False
    if a clock role does.
    """
    roles: list[ProcessRole] = [role for role in (scheduler, recorder) if role is not None]
    if scheduler is not None:
        roles.append(housekeeping(drivers, context, shows_clock=shows_clock))
        roles += [operations(drivers, intake), resuming(drivers, intake)]
    if recorder is not None:
        roles += [
            child_jobs(drivers, context, intake),
            incidents(drivers, intake),
            endpoint_disabling(drivers, intake),
        ]
    if scheduler is not None:
        roles.append(dead_mans_switch(drivers, context.settings))
    if recorder is not None:
        roles.append(notices(drivers, intake))
    return [*roles, *(role for role in (worker, remote, notifications) if role is not None)]
