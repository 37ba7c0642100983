"""Schedules that were planned with old time-zone data are planned again with new data."""

import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from noonday.model.job import JobType
from noonday.model.zones import tzdata_version
from tests.scenarios.inside import Inside
from tests.scenarios.process import until

RIGHT = datetime(2030, 1, 16, 8, 0, tzinfo=UTC)
"""Nine o'clock in Oslo on the next day."""
HOUR = timedelta(hours=1)


@pytest.mark.slow
async def test_schedules_planned_with_other_zone_data_are_planned_again_at_the_start(tmp_path: Path) -> None:
    inside = Inside(tmp_path)
    async with inside.open():
        oslo = await inside.create(type=JobType.CRON, schedule="0 9 * * *", timezone="Europe/Oslo")
        once = await inside.create(run_at=RIGHT)
        await until(lambda: _version(inside) == tzdata_version())
    assert oslo.next_fire_at == RIGHT

    _plan_as_if_with(inside, "1999a", HOUR)
    async with inside.open():
        await until(lambda: _version(inside) == tzdata_version())

        assert (await inside.job(oslo)).next_fire_at == RIGHT
        assert (await inside.job(once)).next_fire_at == RIGHT
        inside.clock.set(RIGHT)
        await until(lambda: inside.runs(oslo))
        assert [ran.scheduled_at for ran in inside.runs(oslo)] == [RIGHT]


@pytest.mark.slow
async def test_schedules_planned_with_the_same_zone_data_are_left_alone(tmp_path: Path) -> None:
    inside = Inside(tmp_path)
    async with inside.open():
        oslo = await inside.create(type=JobType.CRON, schedule="0 9 * * *", timezone="Europe/Oslo")
        await until(lambda: _version(inside) == tzdata_version())

    _plan_as_if_with(inside, tzdata_version(), HOUR)
    async with inside.open():
        before = inside.engine.loops["replanner"].last_round_at
        await until(lambda: inside.engine.loops["replanner"].last_round_at > before)

        assert (await inside.job(oslo)).next_fire_at == RIGHT + HOUR


def _version(inside: Inside) -> str | None:
    rows = inside.query("SELECT value FROM meta WHERE key = 'zone_data'")
    return rows[0][0] if rows else None


def _plan_as_if_with(inside: Inside, version: str, late: timedelta) -> None:
    """Plan cron jobs for another instant, as an engine with other zone data would have."""
    late_ms = late // timedelta(milliseconds=1)
    with closing(sqlite3.connect(inside.data)) as conn:
        conn.execute("UPDATE meta SET value = ? WHERE key = 'zone_data'", (version,))
        conn.execute(
            "UPDATE timeline SET nominal_ms = nominal_ms + ?1, due_ms = due_ms + ?1 WHERE kind = 0 AND recurring = 1",
            (late_ms,),
        )
        conn.commit()
