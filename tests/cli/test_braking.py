"""The brake of a replay, and its rate."""

from typing import Any

import pytest

from noonday.cli.braking import LOOKED_AT, Brake, Pace, has_failed
from noonday.crypto.keyring import Keyring
from noonday.intake.presenters import Presenter
from noonday.model.execution import State
from noonday.model.view import ExecutionView
from tests.support.clock import ManualClock
from tests.support.factories import execution

PRESENTER = Presenter(Keyring.generate(), None)
ERROR = '{"type":"HTTP_503","message":"answered 503"}'
WAITS = '[0,1],[0,2,null,"SNOOZED: the endpoint is left alone"]'
FAILED = f"[0,1],[1,2],[2,3,null,{ERROR}],[0,3]"


def seen(state: State, transitions: str = "[0,1]", **fields: Any) -> ExecutionView:
    return PRESENTER.execution(execution(state=state, transitions=transitions, **fields))


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


@pytest.mark.parametrize(("rate", "size"), [(0.5, 1), (40, 10), (10_000, 500)])
def test_batches_are_as_large_as_the_rate_allows(rate: float, size: int) -> None:
    assert Pace(rate, ManualClock()).batch_size == size
