"""A stop ends in time, and gives runs as much of the time as the settings allow."""

import pytest

from noonday.runtime.supervise import StopDeadline
from noonday.wiring.settings import Settings
from noonday.wiring.settings.engine import WorkerSettings
from noonday.wiring.stopping import ORDERLY_SEC, STOP_SLACK_SEC, drain_left_sec, stop_deadline, stop_within_sec
from tests.support.clock import ManualClock

SETTINGS = Settings(worker=WorkerSettings(drain_sec=20, cancel_grace_sec=5))


def test_orderly_stop_ends_before_the_process_is_made_to_exit() -> None:
    assert stop_within_sec(SETTINGS) == 25 + STOP_SLACK_SEC
    assert stop_deadline(SETTINGS, ManualClock()).left_sec() == 25 + ORDERLY_SEC < stop_within_sec(SETTINGS)


@pytest.mark.parametrize(("passed_sec", "left_sec"), [(0, 20), (5, 15), (20, 0), (60, 0)])
def test_runs_have_the_drain_time_that_earlier_steps_left(passed_sec: float, left_sec: float) -> None:
    clock = ManualClock()
    deadline = stop_deadline(SETTINGS, clock)
    clock.advance(passed_sec)
    assert drain_left_sec(SETTINGS, deadline) == left_sec


def test_generous_deadline_does_not_lengthen_the_drain_time() -> None:
    assert drain_left_sec(SETTINGS, StopDeadline(ManualClock(), 600)) == 20
