"""The clock of a process in a cluster is measured against the store's."""

import pytest

from noonday.model.errors import BadSettings
from noonday.model.ids import InstanceId
from noonday.runtime.clock import ReferenceClock
from noonday.runtime.metrics import Metrics
from noonday.runtime.tracing import Tracing
from noonday.wiring.cluster.clock import ClockRole, time_publishing
from noonday.wiring.roles.role import ProcessContext
from noonday.wiring.settings import Settings
from noonday.wiring.settings.cluster import ClusterSettings
from tests.support.clock import ManualClock

DAY_MS = 86_400_000


def role_of(clock: ReferenceClock, ahead_ms: int) -> ClockRole:
    """The role of a process whose store has a clock that is ahead by so much."""

    async def read_ms() -> int:
        return round(clock.system_ms()) + ahead_ms

    settings = Settings(cluster=ClusterSettings(max_clock_offset_sec=3_600))
    return ClockRole(clock, read_ms, ProcessContext(InstanceId("i-1"), settings, Metrics(), Tracing(None)))


async def test_measured_offset_corrects_the_clock() -> None:
    clock = ReferenceClock()
    await role_of(clock, DAY_MS).measure()
    assert abs(clock.offset_ms - DAY_MS) < DAY_MS / 2


async def test_clock_within_the_limit_is_accepted() -> None:
    role = role_of(ReferenceClock(), 0)
    await role.measure()
    role.refuse_wrong()
    assert role.reasons_not_ready() == []


async def test_clock_beyond_the_limit_is_refused_and_never_ready() -> None:
    role = role_of(ReferenceClock(), DAY_MS)
    await role.measure()
    (reason,) = role.reasons_not_ready()
    assert reason.endswith("the limit is 3600 s")
    with pytest.raises(BadSettings, match="synchronize it"):
        role.refuse_wrong()


async def test_each_round_publishes_the_time() -> None:
    published = []

    async def publish() -> int:
        published.append(True)
        return 0

    role = time_publishing(ManualClock(), publish)
    assert await role.loops["time"].service.run_once(0) == 0
    assert published == [True]
