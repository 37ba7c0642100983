"""The transitions of an execution as its view shows them."""

from noonday.intake.presenters import _transitions
from noonday.model.execution import KEPT_DISPATCHES, State
from noonday.transitions.write_set import transition
from tests.support.factories import NOW_MS, execution


def transitions(*states: State) -> str:
    return ",".join(transition(state, NOW_MS, None, "SNOOZED" if state is State.PENDING else None) for state in states)


def test_each_return_is_the_next_dispatch() -> None:
    row = execution(transitions=transitions(State.PENDING, State.RUNNING, State.PENDING, State.RUNNING), dispatch=2)
    assert [(view.state, view.dispatch) for view in _transitions(row)] == [
        ("PENDING", 1),
        ("RUNNING", 1),
        ("PENDING", 2),
        ("RUNNING", 2),
    ]


def test_gap_has_the_number_of_missing_dispatches() -> None:
    kept = (State.PENDING, *(State.RUNNING, State.PENDING) * KEPT_DISPATCHES)
    waits = _transitions(execution(transitions=transitions(*kept), dispatch=1_051))
    assert waits[-1].reason == "SNOOZED; 1000 dispatches after this one are not stored"
    ended = _transitions(
        execution(transitions=transitions(*kept, State.RUNNING, State.SUCCEEDED), dispatch=1_051, attempt=3)
    )
    assert [(view.state, view.dispatch, view.attempt) for view in ended[-3:]] == [
        ("PENDING", 51, 1),
        ("RUNNING", 1_051, 3),
        ("SUCCEEDED", 1_051, 3),
    ]
    assert [view for view in waits if view.reason and "not stored" in view.reason] == [waits[-1]]


def test_execution_that_was_read_without_its_transitions_shows_none() -> None:
    assert _transitions(execution(transitions="", dispatch=2)) == ()
