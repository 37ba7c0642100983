import pytest
from hypothesis import given
from hypothesis import strategies as st

from noonday.model.execution import Outcome
from noonday.model.message import Report
from noonday.model.usage import UsageTotals, together, usage_of, usage_rows
from tests.support.factories import DAY, NOW_MS, SECOND, TENANT, dispatch, report

TODAY = NOW_MS // DAY


def ended(outcome: Outcome = Outcome.SUCCEEDED, **fields: object) -> Report:
    return report(dispatch(), outcome, **{"tenant": TENANT, "payload_bytes": 10, **fields})


def test_a_run_counts_with_its_time_and_its_payload() -> None:
    assert usage_of([ended(), ended()]) == {(TENANT, TODAY): UsageTotals(2, 2, 0, 2 * SECOND, 20)}


def test_a_failure_is_also_one_by_timeout_and_the_rest_is_neither() -> None:
    outcomes = (Outcome.FAILED, Outcome.TIMED_OUT, Outcome.CANCELLED, Outcome.SNOOZED, Outcome.INTERRUPTED)
    assert usage_of(map(ended, outcomes)) == {(TENANT, TODAY): UsageTotals(5, 0, 2, 5 * SECOND, 50)}


def test_start_is_no_end_and_a_return_without_a_start_is_no_run() -> None:
    unbegun = [ended(outcome, started_ms=0) for outcome in (Outcome.INTERRUPTED, Outcome.CANCELLED, Outcome.EXPIRED)]
    assert usage_of([ended(Outcome.STARTED), ended(Outcome.HANDED_BACK), *unbegun]) == {}


def test_the_day_is_that_of_the_end_in_utc() -> None:
    late = ended(started_ms=NOW_MS - 1, ended_ms=NOW_MS)
    early = ended(started_ms=NOW_MS - 2, ended_ms=NOW_MS - 1)
    assert usage_of([late, early]) == {
        (TENANT, TODAY): UsageTotals(1, 1, 0, 1, 10),
        (TENANT, TODAY - 1): UsageTotals(1, 1, 0, 1, 10),
    }


def test_a_clock_that_was_set_back_takes_nothing_away() -> None:
    assert usage_of([ended(ended_ms=NOW_MS - 500)])[TENANT, TODAY - 1].run_ms == 0


@pytest.mark.slow
@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 3), st.integers(0, 5)), max_size=20), st.integers(0, 20)
)
def test_a_batch_in_two_parts_uses_as_much_as_in_one(runs: list[tuple[str, int, int]], middle: int) -> None:
    reports = [ended(tenant=tenant, ended_ms=NOW_MS + day * DAY, payload_bytes=n) for tenant, day, n in runs]
    assert together(usage_of(reports[:middle]), usage_of(reports[middle:])) == usage_of(reports)


def test_rows_come_in_the_order_of_their_keys() -> None:
    reports = [ended(tenant="b"), ended(tenant="a", ended_ms=NOW_MS + DAY), ended(tenant="a")]
    rows = [(row["tenant"], row["day"]) for row in usage_rows(usage_of(reports))]
    assert rows == [("a", TODAY), ("a", TODAY + 1), ("b", TODAY)]
