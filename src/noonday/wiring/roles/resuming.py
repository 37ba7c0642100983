"""The role that resumes paused jobs at the ends of their pauses."""

from noonday.runtime.supervise import Loop
from noonday.wiring.drivers import Drivers
from noonday.wiring.intake import IntakePart
from noonday.wiring.roles.role import ProcessRole


def resuming(drivers: Drivers, intake: IntakePart) -> ProcessRole:
    """Resume paused jobs when their time has come."""
    resumer = intake.resumer
    return ProcessRole("resuming", Loop("resumer", resumer, drivers.clock, resumer.wait, stuck_after_sec=120))
