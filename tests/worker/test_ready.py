from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noonday.model.message import Token
from noonday.worker.ready import ReadyRuns
from noonday.worker.run import Run
from tests.support.factories import NOW_MS, dispatch


def run(tenant: str = "a", name: str | None = None, weight: int = 1, **fields: int) -> Run:
    return Run(dispatch(name, tenant=tenant, weight=weight, **fields), Token(1, NOW_MS), None)


def names(runs: list[Run]) -> list[str]:
    return [each.dispatch.execution_id for each in runs]


def filled(*order: str) -> ReadyRuns:
    """`a1` is the run 1 of tenant a."""
    ready = ReadyRuns()
    ready.extend(run(name[0], name) for name in order)
    return ready


def test_one_tenant_starts_in_the_order_it_came() -> None:
    assert names(filled("a1", "a2", "a3").take(10)) == ["a1", "a2", "a3"]


def test_one_tenant_starts_by_priority_and_then_by_due_time() -> None:
    ready = ReadyRuns()
    for name, lane, due_ms in (("late", 1, 30), ("low", 2, 10), ("early", 1, 20), ("high", 0, 40)):
        ready.append(run(name=name, lane=lane, due_ms=due_ms))
    assert names(ready.take(10)) == ["high", "early", "late", "low"]


def test_tenants_take_turns() -> None:
    ready = filled("a1", "a2", "a3", "a4", "b1", "b2", "c1")
    assert names(ready.take(5)) == ["a1", "b1", "c1", "a2", "b2"]
    assert names(ready.take(5)) == ["a3", "a4"]


def test_late_run_of_a_tenant_does_not_wait_for_many_of_another() -> None:
    ready = filled(*(f"a{n}" for n in range(100)))
    ready.take(10)
    ready.append(run("b", "b1"))
    assert "b1" in names(ready.take(2))


def test_turns_are_proportional_to_weights_of_any_size() -> None:
    for scale in (1, 100):
        ready = ReadyRuns()
        for n in range(70):
            for tenant, weight in (("a", 1), ("b", 2), ("c", 4)):
                ready.append(run(tenant, f"{tenant}{n}", weight * scale))
        for rounds in range(1, 11):
            ready.take(7)
            taken = Counter(each.dispatch.tenant for each in ready)
            assert [70 - taken[tenant] for tenant in "abc"] == [rounds, 2 * rounds, 4 * rounds]


def test_a_heavy_tenant_does_not_keep_a_light_one_waiting_for_more_than_its_share() -> None:
    ready = ReadyRuns()
    ready.extend(run("a", f"a{n}", 50) for n in range(200))
    ready.take(100)
    ready.append(run("b", "b1"))
    assert "b1" in names(ready.take(52))


def test_tenant_that_comes_and_goes_gets_no_more_than_its_share() -> None:
    ready = ReadyRuns()
    ready.extend(run("a", f"a{n}", 4) for n in range(100))
    taken = Counter[str]()
    for n in range(50):
        if not any(each.dispatch.tenant == "b" for each in ready):
            ready.append(run("b", f"b{n}"))
        taken.update(each.dispatch.tenant for each in ready.take(1))
    assert 9 <= taken["b"] <= 11


def test_runs_that_are_put_back_come_first_again() -> None:
    ready = filled("a1", "a2", "b1")
    taken = ready.take(2)
    assert names(taken) == ["a1", "b1"]
    ready.put_back(taken)
    assert len(ready) == 3
    assert sorted(names(ready.take(2))) == ["a1", "b1"]
    assert names(ready.take(1)) == ["a2"]


def test_ready_runs_can_be_cleared() -> None:
    ready = filled("a1", "b1")
    assert sorted(names(list(ready))) == ["a1", "b1"]
    ready.clear()
    assert (len(ready), list(ready), ready.take(3)) == (0, [], [])


@pytest.mark.slow
@given(st.lists(st.one_of(st.sampled_from("abc"), st.integers(0, 5), st.just("back"))))
def test_nothing_is_lost_or_doubled_and_each_tenant_keeps_its_order(steps: list[object]) -> None:
    ready, waiting, taken = ReadyRuns(), dict[str, list[str]](), list[Run]()
    serial = 0
    for step in steps:
        if isinstance(step, int):
            taken = ready.take(step)
            for each in taken:
                assert waiting[each.dispatch.tenant].pop(0) == each.dispatch.execution_id
        elif step == "back":
            ready.put_back(taken)
            for each in reversed(taken):
                waiting[each.dispatch.tenant].insert(0, each.dispatch.execution_id)
            taken = []
        else:
            serial += 1
            ready.append(run(str(step), f"{step}{serial}"))
            waiting.setdefault(str(step), []).append(f"{step}{serial}")
            taken = []
    left = Counter(each.dispatch.execution_id for each in ready)
    assert left == Counter(name for queue in waiting.values() for name in queue)
    assert len(ready) == left.total()
