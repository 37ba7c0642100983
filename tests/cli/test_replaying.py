"""Limits, names and checks that replays of jobs and of calls share."""

from datetime import UTC, datetime

import pytest

from noonday.cli.replaying import LONGEST_ID, ReplayLimits, check_id, check_period, default_id
from noonday.cli.server.replaying_jobs import Made
from noonday.crypto.keyring import Keyring
from noonday.intake.presenters import Presenter
from noonday.model.errors import Conflict, InvalidInput
from noonday.model.execution import State
from noonday.model.view import ExecutionView
from tests.support.clock import ManualClock
from tests.support.factories import execution

PRESENTER = Presenter(Keyring.generate(), None)
MORNING, NOON = datetime(2030, 1, 31, 9, tzinfo=UTC), datetime(2030, 1, 31, 12, tzinfo=UTC)


async def dead(name: str) -> ExecutionView | None:
    return PRESENTER.execution(execution(state=State.DEAD))


def limits_of(made: Made, *, most_failures: int = 0, rate: float = 1000) -> ReplayLimits:
    return ReplayLimits(
        made, dead, rate=rate, most_failures=most_failures, remaining="Created jobs", clock=ManualClock()
    )


async def test_failed_executions_are_counted_in_the_result() -> None:
    made = Made()
    limits = limits_of(made)
    limits.watch("one")
    limits.watch("two")
    await limits.look()
    assert made.failed == 2


async def test_replay_stops_when_more_fail_than_allowed() -> None:
    made = Made(created=1)
    limits = limits_of(made)
    limits.watch("one")
    with pytest.raises(Conflict) as stopped:
        await limits.after_batch(lambda asked_for, failed: None)
    assert stopped.value.detail.startswith("stopped: replayed 1, of which 1 failed so far. Created jobs remain;")
    assert stopped.value.context["failed"] == 1


async def test_replay_continues_while_failures_are_within_the_limit() -> None:
    limits = limits_of(Made(), most_failures=1)
    limits.watch("one")
    await limits.after_batch(lambda asked_for, failed: None)
    limits.refuse_if_stopped()


async def test_progress_is_reported_before_a_replay_stops() -> None:
    reported, limits = [], limits_of(Made(created=3))
    limits.watch("one")
    with pytest.raises(Conflict):
        await limits.after_batch(lambda asked_for, failed: reported.append((asked_for, failed)))
    assert reported == [(3, 1)]


async def test_rate_ignores_calls_before_the_replay_began() -> None:
    made = Made(created=1_000_000)
    limits = limits_of(made, rate=1)
    limits.begin()
    await limits.after_batch(lambda asked_for, failed: None)


def test_equal_filters_have_the_same_default_name() -> None:
    assert default_id("mail", None, 7) == default_id("mail", None, 7)
    assert default_id("mail", None, 7) != default_id("mail", None, 8)


def test_period_that_ends_at_its_start_is_refused() -> None:
    check_period("--from", MORNING, "--to", NOON)
    with pytest.raises(InvalidInput, match="is not after --from"):
        check_period("--from", NOON, "--to", NOON)


def test_period_without_start_is_accepted() -> None:
    check_period("--since", None, "--until", NOON)


@pytest.mark.parametrize("name", ["", "x" * (LONGEST_ID + 1), "line\nbreak"])
def test_name_of_a_replay_is_short_and_printable(name: str) -> None:
    with pytest.raises(InvalidInput, match="printable characters"):
        check_id(name, str.isprintable, "printable characters")
