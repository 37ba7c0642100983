"""The role behind bulk operations."""

from noonday.intake.operation_runner import OperationRunner
from noonday.runtime.supervise import Loop
from noonday.wiring.drivers import Drivers
from noonday.wiring.intake import IntakePart
from noonday.wiring.roles.role import ProcessRole


def operations(drivers: Drivers, intake: IntakePart) -> ProcessRole:
    """Work on the bulk operations of all tenants."""
    runner = OperationRunner(drivers.operations, intake.services.operation_items, drivers.clock)
    return ProcessRole("operations", Loop("operations", runner, drivers.clock, runner.wait(), stuck_after_sec=120))
