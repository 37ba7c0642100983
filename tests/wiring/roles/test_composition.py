"""The loops of a process follow from its roles alone."""

from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest

from noonday.crypto.keyring import Keyring
from noonday.drivers.memory.leases import LocalLeases
from noonday.drivers.sqlite.connection import MEMORY
from noonday.drivers.sqlite.store import open_store
from noonday.model.change import NewJob
from noonday.model.firing import Fire
from noonday.model.ids import InstanceId
from noonday.model.recording import SettleResult
from noonday.runtime.metrics import Metrics
from noonday.runtime.tracing import Tracing
from noonday.wiring.drivers import Drivers
from noonday.wiring.embedded import drivers_on, file_options
from noonday.wiring.engine import Engine
from noonday.wiring.intake import IntakePart
from noonday.wiring.roles.composition import compose
from noonday.wiring.roles.recorder import RecorderGroupRole, ignore
from noonday.wiring.roles.role import ProcessContext, ProcessRole
from noonday.wiring.roles.scheduler import SchedulerRole
from noonday.wiring.settings import Settings
from tests.support.clock import ManualClock
from tests.support.factories import job

OF_SCHEDULER = {"dispatcher", "hydrator", "sweeper", "replanner", "tenants", "bus", "ownership"}
WITH_SCHEDULER = {"housekeeper", "operations", "resumer", "dead-mans-switch"}
WITH_RECORDER = {"child-jobs", "incidents", "endpoint-disabler", "notifier"}
SETTINGS = Settings(data=MEMORY)


@dataclass
class Surface:
    """The drivers and the context of a process that has no role yet."""

    drivers: Drivers
    context: ProcessContext

    def scheduler(self, *, shares_partitions: bool = True) -> SchedulerRole:
        return SchedulerRole(self.drivers, self.context, shares_partitions=shares_partitions)

    def recorder(self) -> RecorderGroupRole:
        admit = IntakePart(self.drivers, self.context).services.child_job_admission.admit
        return RecorderGroupRole(self.drivers, self.context, self.drivers.leases, ignore, admit)

    def compose(
        self, scheduler: SchedulerRole | None = None, recorder: RecorderGroupRole | None = None
    ) -> list[ProcessRole]:
        intake = IntakePart(self.drivers, self.context)
        return compose(self.drivers, self.context, intake, scheduler=scheduler, recorder=recorder)


@pytest.fixture
async def surface() -> AsyncIterator[Surface]:
    store, clock = open_store(MEMORY, file_options(SETTINGS), lead_ms=0), ManualClock()
    drivers = drivers_on(store, LocalLeases(None, clock), Keyring.generate(), clock, SETTINGS)
    yield Surface(drivers, ProcessContext(InstanceId("i-1"), SETTINGS, Metrics(), Tracing(None)))
    await store.close()


def loops_of(roles: list[ProcessRole]) -> set[str]:
    names = [name for role in roles for name in role.loops]
    assert len(names) == len(set(names))
    return set(names)


async def test_process_without_a_role_runs_no_loop(surface: Surface) -> None:
    assert surface.compose() == []


async def test_scheduler_comes_with_housekeeping_the_resumer_and_the_dead_mans_switch(surface: Surface) -> None:
    assert loops_of(surface.compose(scheduler=surface.scheduler())) == OF_SCHEDULER | WITH_SCHEDULER


async def test_recorder_comes_with_the_consumers_of_its_incidents(surface: Surface) -> None:
    loops = loops_of(surface.compose(recorder=surface.recorder()))
    assert loops == {"recorders", "revocations"} | WITH_RECORDER


async def test_embedded_engine_has_the_loops_of_all_roles(surface: Surface) -> None:
    engine = Engine(surface.drivers, SETTINGS, {})
    shared = OF_SCHEDULER | WITH_SCHEDULER | WITH_RECORDER
    assert set(engine.loops) == shared | {"recorder", "revocations", "remote"}


async def test_added_entry_wakes_the_dispatcher_of_its_process(surface: Surface) -> None:
    scheduler, intake = surface.scheduler(), IntakePart(surface.drivers, surface.context)
    one, now_ms = job(), surface.drivers.clock.now_ms()
    await intake.services.sender.send_new([NewJob(one, Fire(now_ms, now_ms))], now_ms)
    assert scheduler.loops["dispatcher"].wake.is_set()


async def test_settlement_that_frees_nothing_does_not_wake_the_dispatcher(surface: Surface) -> None:
    scheduler = surface.scheduler()
    scheduler.on_settled(SettleResult((), (), {}))
    assert not scheduler.loops["dispatcher"].wake.is_set()
    scheduler.on_settled(SettleResult((), (), {}, freed=("tenant",)))
    assert scheduler.loops["dispatcher"].wake.is_set()


async def test_gained_partitions_wake_the_hydrator(surface: Surface) -> None:
    scheduler = surface.scheduler()
    # The store knows no former owner, so every partition is gained.
    await scheduler.ownership.join()
    assert scheduler.loops["hydrator"].wake.is_set()


async def test_scheduler_that_shares_no_partitions_is_not_ready_without_them(surface: Surface) -> None:
    reason = "owns no partition: another process has taken over"
    assert reason in surface.scheduler(shares_partitions=False).reasons_not_ready()
    assert reason not in surface.scheduler(shares_partitions=True).reasons_not_ready()
