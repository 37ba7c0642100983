"""Schedules that are described before a job is created."""

from typing import Any

import pytest

from noonday.intake.schedule_previewer import SchedulePreviewer
from noonday.model.errors import InvalidInput
from noonday.model.filters import PreviewRequest
from noonday.model.job import JobType
from noonday.model.view import Preview
from noonday.ports.offload import InlineOffload, Offload
from tests.support.clock import ManualClock
from tests.support.factories import DAY, HOUR, MINUTE, NOW_MS, instant

BEFORE_CLOCKS_CHANGE_MS = 1_899_331_200_000
"""2030-03-10T04:00:00Z: three hours later, clocks in New York are set forward."""


class OutOfTime(Offload):
    """A computation that may not continue after its first step."""

    async def run(self, work: Any) -> Any:
        steps = iter([True])
        return work(lambda: next(steps, False))


async def preview(aside: Offload | None = None, **asked: Any) -> Preview:
    return await SchedulePreviewer(ManualClock(), aside or InlineOffload()).preview(PreviewRequest(**asked))


async def test_cron_schedule_is_described_with_its_next_times() -> None:
    view = await preview(schedule="0 3 * * *", count=2)
    assert [time.utc for time in view.times] == [instant(NOW_MS + 3 * HOUR), instant(NOW_MS + DAY + 3 * HOUR)]
    assert (view.timezone, view.is_least) == ("UTC", False)
    assert "03:00" in view.description


async def test_interval_is_described_with_its_next_times() -> None:
    view = await preview(type=JobType.INTERVAL, every_sec=90, count=2)
    assert [time.utc for time in view.times] == [instant(NOW_MS + 90_000), instant(NOW_MS + 180_000)]
    assert (view.description, view.timezone) == ("Every 90 seconds", None)


async def test_preview_begins_after_a_chosen_instant() -> None:
    view = await preview(schedule="* * * * *", from_=instant(NOW_MS + HOUR), count=1)
    assert [time.utc for time in view.times] == [instant(NOW_MS + HOUR + MINUTE)]


async def test_time_that_the_clock_change_moves_is_marked() -> None:
    view = await preview(
        schedule="30 2 * * *", timezone="America/New_York", from_=instant(BEFORE_CLOCKS_CHANGE_MS), count=2
    )
    moved, usual = view.times
    assert moved.local.startswith("2030-03-10T03:30")
    assert moved.dst is not None
    assert usual.dst is None


async def test_preview_that_takes_too_long_says_that_times_are_missing() -> None:
    view = await preview(OutOfTime(), schedule="* * * * *", count=10)
    assert view.is_least
    assert len(view.times) < 10


@pytest.mark.parametrize(
    ("asked", "pointer"),
    [
        ({"type": JobType.CRON}, "/schedule"),
        ({"type": JobType.INTERVAL}, "/everySec"),
        ({"type": JobType.INTERVAL, "every_sec": 0.5}, "/everySec"),
        ({"type": JobType.INTERVAL, "every_sec": 60, "phase_sec": -1}, "/phaseSec"),
        ({"type": JobType.ONE_TIME}, "/type"),
        ({"schedule": "not a schedule"}, "/schedule"),
        ({"schedule": "0 3 * * *", "timezone": "Mars/Olympus"}, "/timezone"),
        ({"schedule": "0 3 * * *", "timezone": ""}, "/timezone"),
    ],
)
async def test_incomplete_or_malformed_schedule_is_refused_with_its_field(asked: dict[str, Any], pointer: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        await preview(**asked)
    assert [flaw.pointer for flaw in refused.value.flaws] == [pointer]
