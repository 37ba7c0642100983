"""The roles behind alerts: consume incidents, disable endpoints, notice what did not run, and notify people."""

from noonday.alerts.dead_mans_switch import DeadMansSwitch
from noonday.alerts.incident_consumer import IncidentConsumer
from noonday.alerts.lateness import Lateness
from noonday.runtime.supervise import Loop, every
from noonday.tasks.endpoint_disabler import ROUND_SEC
from noonday.wiring.drivers import Drivers
from noonday.wiring.intake import IntakePart, blocker_finder
from noonday.wiring.roles.role import ProcessRole
from noonday.wiring.settings import Settings


def incidents(drivers: Drivers, intake: IntakePart) -> ProcessRole:
    """Turn incidents into alerts."""
    consumer = IncidentConsumer(drivers.executions, drivers.alerts, intake.services.jobs)
    return ProcessRole("incidents", Loop("incidents", consumer, drivers.clock, every(1.0), stuck_after_sec=60))


def endpoint_disabling(drivers: Drivers, intake: IntakePart) -> ProcessRole:
    """Disable endpoints that fail for long, and pause their tasks."""
    disabler = intake.endpoint_disabler
    loop = Loop("endpoint-disabler", disabler, drivers.clock, every(ROUND_SEC), stuck_after_sec=300)
    return ProcessRole("endpoint disabling", loop)


def dead_mans_switch(drivers: Drivers, settings: Settings) -> ProcessRole:
    """Raise alerts for runs that did not start in time or do not end."""
    lateness = Lateness(drivers.query_store, drivers.settings_store, blocker_finder(drivers))
    late_ms, slow_ms = settings.alerts.late_after_sec * 1000, settings.alerts.slow_after_sec * 1000
    switch = DeadMansSwitch(drivers.alerts, lateness, late_ms, slow_ms)
    loop = Loop("dead-mans-switch", switch, drivers.clock, every(5.0), stuck_after_sec=120)
    return ProcessRole("dead man's switch", loop)


def notices(drivers: Drivers, intake: IntakePart) -> ProcessRole:
    """Send the notices of alerts."""
    return ProcessRole("notices", Loop("notifier", intake.notifier, drivers.clock, every(1.0), stuck_after_sec=60))
