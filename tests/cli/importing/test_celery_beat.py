"""The schedule of Celery beat."""

import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from noonday.cli.importing.celery_beat import load_beat, read_beat
from noonday.cli.importing.imported import Imported
from noonday.model.errors import InvalidInput, NotFound

MODULE = """
from datetime import timedelta


class Crontab:
    \"\"\"Has the attributes of celery.schedules.crontab.\"\"\"
    _orig_minute, _orig_hour, _orig_day_of_week = 30, "7,8", {1, 5}
    _orig_day_of_month = _orig_month_of_year = "*"


class Conf:
    timezone = "Europe/Oslo"
    beat_schedule = {
        "poll": {"task": "shop.poll", "schedule": timedelta(seconds=30)},
        "report": {"task": "shop.report", "schedule": Crontab()},
    }


class App:
    conf = Conf()


app = App()
"""


def read(schedule: Any, **entry: Any) -> Imported:
    return read_beat({"nightly": {"task": "shop.report", "schedule": schedule, **entry}}, "UTC", "celery")


@pytest.mark.parametrize("schedule", [90, 90.0, timedelta(seconds=90)])
def test_an_interval_becomes_an_interval(schedule: Any) -> None:
    (job,) = read(schedule).jobs
    assert (job.name, job.every_sec, job.target.pool, job.target.handler) == ("nightly", 90, "celery", "shop.report")


@pytest.mark.parametrize(
    ("schedule", "expression"),
    [("0 3 * * *", "0 3 * * *"), ({"minute": "*/15"}, "*/15 * * * *"), ({"hour": 3, "minute": 0}, "0 3 * * *")],
)
def test_a_crontab_becomes_a_cron_job(schedule: Any, expression: str) -> None:
    (job,) = read(schedule).jobs
    assert (job.schedule, job.timezone) == (expression, "UTC")


def test_a_queue_becomes_a_pool_and_expires_a_start_deadline() -> None:
    found = read(60, kwargs={"day": 1}, options={"queue": "reports", "expires": 30, "priority": 5})
    (job,) = found.jobs
    assert (job.target.pool, job.start_deadline_sec, job.payload) == ("reports", 30, {"day": 1})
    assert found.notes == ["nightly: options.priority: not carried over"]


def test_positional_arguments_are_noted() -> None:
    found = read(60, args=[1, 2])
    assert found.jobs[0].payload == {"args": [1, 2], "kwargs": {}}
    assert "args: a handler has one payload" in found.notes[0]


@pytest.mark.parametrize(
    ("schedule", "note"),
    [
        (0.5, "neither an interval of at least 1 s nor a crontab"),
        ("sunset", "neither an interval"),
        (None, "neither an interval"),
        ("0 0 1 * 1", "Celery runs if both day fields match"),
        ("61 * * * *", "minute"),
    ],
)
def test_a_schedule_without_an_equal_is_named(schedule: Any, note: str) -> None:
    found = read(schedule)
    assert found.jobs == []
    assert "not carried over" in found.notes[0]
    assert note in found.notes[0]


def test_an_unusable_task_name_is_named() -> None:
    found = read_beat({"a": {"schedule": 60, "task": "no spaces allowed"}, "b": 7}, "UTC", "celery")
    assert (found.jobs, len(found.notes)) == ([], 2)


def test_a_module_is_read_with_its_time_zone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "celery_of_a_shop.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    for source in ("celery_of_a_shop", "celery_of_a_shop:app"):
        entries, timezone = load_beat(source)
        poll, report = read_beat(entries, timezone or "UTC", "celery").jobs
        assert (poll.every_sec, report.timezone) == (30, "Europe/Oslo")
        assert report.schedule in ("30 7,8 * * 1,5", "30 7,8 * * 5,1")


def test_a_json_file_is_read(tmp_path: Path) -> None:
    file = tmp_path / "beat.json"
    file.write_text('{"beat_schedule": {"a": {"task": "t", "schedule": 60}}}')
    assert load_beat(str(file)) == ({"a": {"task": "t", "schedule": 60}}, None)
    for text in ("[]", "{"):
        file.write_text(text)
        with pytest.raises(InvalidInput):
            load_beat(str(file))
    with pytest.raises(NotFound, match="cannot import"):
        load_beat("no_such_module_of_celery")
