"""Limits, names and checks that replays of jobs and of calls share."""

from datetime import UTC, datetime
from typing import Any

import pytest

from noonday.cli.replaying import (
    LONGEST_ID,
    LOOKED_AT,
    Brake,
    ReplayLimits,
    check_id,
    check_period,
    default_id,
    has_failed,
)
from noonday.cli.server.replaying_jobs import ReplayProgress
from noonday.crypto.keyring import Keyring
from noonday.intake.presenters import Presenter
from noonday.model.errors import Conflict, InvalidInput
from noonday.model.execution import State
from noonday.model.view import ExecutionView
from tests.support.clock import ManualClock
from tests.support.factories import execution

PRESENTER = Presenter(Keyring.generate(), None)
ERROR = '{"type":"HTTP_503","message":"answered 503"}'
WAITS = '[0,1],[0,2,null,"SNOOZED: the endpoint is left alone"]'
FAILED = f"[0,1],[1,2],[2,3,null,{ERROR}],[0,3]"
MORNING, NOON = datetime(2030, 1, 31, 9, tzinfo=UTC), datetime(2030, 1, 31, 12, tzinfo=UTC)


async def dead(name: str) -> ExecutionView | None:
    return PRESENTER.execution(execution(state=State.DEAD))


def limits_of(made: ReplayProgress, *, most_failures: int = 0, rate: float = 1000) -> ReplayLimits:
    return ReplayLimits(
        made, dead, rate=rate, most_failures=most_failures, remaining="Created jobs", clock=ManualClock()
    )


async def test_failed_executions_are_counted_in_the_result() -> None:
    made = ReplayProgress()
    limits = limits_of(made)
    limits.watch("one")
    limits.watch("two")
    await limits.look()
    assert made.failed == 2


async def test_replay_stops_when_more_fail_than_allowed() -> None:
    made = ReplayProgress(created=1)
    limits = limits_of(made)
    limits.watch("one")
    with pytest.raises(Conflict) as stopped:
        await limits.after_batch(lambda asked_for, failed: None)
    assert stopped.value.detail.startswith("stopped: replayed 1, of which 1 failed so far. Created jobs remain;")
    assert stopped.value.context["failed"] == 1


async def test_replay_continues_while_failures_are_within_the_limit() -> None:
    limits = limits_of(ReplayProgress(), most_failures=1)
    limits.watch("one")
    await limits.after_batch(lambda asked_for, failed: None)
    limits.refuse_if_stopped()


async def test_progress_is_reported_before_a_replay_stops() -> None:
    reported, limits = [], limits_of(ReplayProgress(created=3))
    limits.watch("one")
    with pytest.raises(Conflict):
        await limits.after_batch(lambda asked_for, failed: reported.append((asked_for, failed)))
    assert reported == [(3, 1)]


async def test_rate_ignores_calls_before_the_replay_began() -> None:
    made = ReplayProgress(created=1_000_000)
    limits = limits_of(made, rate=1)
    limits.begin()
    await limits.after_batch(lambda asked_for, failed: None)


@pytest.mark.parametrize(("rate", "size"), [(0.5, 1), (40, 10), (10_000, 500)])
def test_batches_are_as_large_as_the_rate_allows(rate: float, size: int) -> None:
    assert limits_of(ReplayProgress(), rate=rate).batch_size == size


def seen(state: State, moves: str = "[0,1]", **said: Any) -> ExecutionView:
    return PRESENTER.execution(execution(state=state, transitions=moves, **said))


@pytest.mark.parametrize(
    ("one", "failed"),
    [
        (seen(State.PENDING), False),
        (seen(State.PENDING, WAITS, failure=ERROR), False),
        (seen(State.PENDING, FAILED, failure=ERROR), True),
        (seen(State.RUNNING, f"{FAILED},[1,4]", failure=ERROR), True),
        (seen(State.SUCCEEDED, f"{FAILED},[1,4],[5,5]"), False),
        (seen(State.DEAD, failure=ERROR), True),
        (seen(State.EXPIRED), True),
        (seen(State.CANCELLED), False),
    ],
)
def test_execution_counts_as_failed_after_one_failed_attempt(one: ExecutionView, failed: bool) -> None:
    assert has_failed(one) is failed


async def test_a_brake_goes_on_when_more_have_failed_than_may() -> None:
    found = {"good": seen(State.SUCCEEDED), "bad": seen(State.DEAD), "worse": seen(State.DEAD), "open": None}

    async def find(name: str) -> ExecutionView | None:
        return found[name]

    brake = Brake(find, 1)
    for name in ("good", "bad", "open"):
        brake.watch(name)
    await brake.look()
    assert (brake.failed, brake.is_on, brake.open) == (1, False, 1)
    brake.watch("worse")
    await brake.look()
    assert (brake.failed, brake.is_on, brake.open) == (2, True, 1)


async def test_a_brake_looks_at_so_many_at_a_time_and_not_too_often() -> None:
    asked: list[str] = []

    async def find(name: str) -> ExecutionView | None:
        asked.append(name)
        return None

    brake = Brake(find, 0)
    for number in range(LOOKED_AT + 1):
        brake.watch(str(number))
    await brake.look()
    await brake.look()
    assert asked[LOOKED_AT] == str(LOOKED_AT)
    assert [brake.is_due(now) for now in (5.0, 5.9, 6.0)] == [True, False, True]


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
