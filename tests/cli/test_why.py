"""The explanation of a due occurrence by `noonday why`."""

from datetime import timedelta
from typing import Any

import pytest

from noonday.cli.instants import now
from noonday.cli.why import OUTCOMES
from noonday.model.view import OccurrenceView

CAP = "tenant 'acme' has 2 of at most 2 executions dispatched"


def due(**fields: Any) -> str:
    at = now()
    view = OccurrenceView(outcome="DUE", scheduled_at=at, until=at, count=1, **{"reason": CAP, **fields})
    return OUTCOMES["DUE"](view).removeprefix("DUE: its time has come, and it waits: ")


def test_without_a_position_the_reason_is_all() -> None:
    assert due(reason="pool 'mail' has no workers") == "pool 'mail' has no workers."


@pytest.mark.parametrize(
    ("position", "is_least", "message"),
    [
        (0, False, "nothing is before it"),
        (1, False, "1 is before it"),
        (37, False, "37 are before it"),
        (10_000, True, "at least 10000 are before it"),
    ],
)
def test_position_in_the_queue_is_shown(position: int, is_least: bool, message: str) -> None:
    assert due(position=position, position_is_least=is_least) == f"{CAP}. {message}."


def test_expected_start_is_shown_as_a_duration_and_as_a_time() -> None:
    at = now() + timedelta(hours=5)
    assert due(position=3, expected_at=at) == (
        f"{CAP}. 3 are before it; expected to start in 5 h (at {at.astimezone():%H:%M:%S %Z})."
    )


def test_position_that_is_a_minimum_is_shown_with_the_earliest_start() -> None:
    message = due(position=10_000, position_is_least=True, expected_at=now() + timedelta(hours=5))
    assert "; it cannot start earlier than in 5 h (at " in message


def test_expected_start_in_the_past_is_shown_as_any_moment() -> None:
    assert "; expected to start at any moment (at " in due(position=0, expected_at=now())


def test_control_characters_of_reasons_are_not_printed() -> None:
    assert "\x1b" not in due(reason="concurrency key '\x1b[2J' has 1 of at most 1 executions dispatched")
