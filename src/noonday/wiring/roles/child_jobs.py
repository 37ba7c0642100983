"""The role that creates the jobs which handlers have enqueued."""

from noonday.runtime.supervise import Loop, every
from noonday.wiring.drivers import Drivers
from noonday.wiring.intake import IntakePart
from noonday.wiring.roles.role import ProcessContext, ProcessRole


def child_jobs(drivers: Drivers, context: ProcessContext, intake: IntakePart) -> ProcessRole:
    """Create child jobs. A recorder of the same process wakes the loop; the other ones are noticed within a second."""
    loop = Loop("child-jobs", intake.child_jobs, drivers.clock, every(1.0), context.child_jobs_wake, stuck_after_sec=60)
    return ProcessRole("child jobs", loop)
