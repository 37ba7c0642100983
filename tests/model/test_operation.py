"""Rules of bulk operations: batches, samples, rates, and when one stops by itself."""

from typing import Any

import msgspec
import pytest

from noonday.model.errors import InvalidInput
from noonday.model.ids import ExecutionId, TenantId
from noonday.model.job import instant_of
from noonday.model.operation import (
    CONDITIONS,
    MOST_BATCH,
    MOST_WATCHED,
    RECENT_RUNS,
    BulkOperation,
    Counts,
    OperationFilter,
    OperationKind,
    OperationRequest,
    OperationState,
    Results,
    batch_size,
    check,
    planned,
    with_ends,
    with_results,
)

NOW = 1_000_000
RETRY = OperationKind.RETRY_DEAD_LETTERS


def operation(kind: OperationKind = RETRY, **fields: Any) -> BulkOperation:
    request = OperationRequest(kind=kind, filter=OperationFilter())
    made = planned(request, "id", TenantId("acme"), "ann", NOW, 1_000, is_least=False)
    return msgspec.structs.replace(made, **fields)


def runs(count: int, first: int = 0) -> tuple[ExecutionId, ...]:
    return tuple(ExecutionId(f"run-{number}") for number in range(first, first + count))


def test_a_retry_has_a_sample_and_a_brake_and_a_pause_has_no_sample() -> None:
    retry, pause = operation(), operation(OperationKind.PAUSE_JOBS)
    assert (retry.sample_size, retry.rate_per_sec, retry.stop_above_percent) == (5, 50, 20)
    assert (pause.sample_size, batch_size(pause)) == (0, 50)
    assert batch_size(retry) == 5


def test_after_the_sample_nothing_follows_until_its_runs_have_ended() -> None:
    sampled = with_results(operation(batch=runs(5)), Results(done=5, started=runs(5)), NOW)
    assert (sampled.watched, batch_size(sampled)) == (runs(5), 0)
    four = with_ends(sampled, dict.fromkeys(runs(4), False), NOW)
    assert batch_size(four) == 0
    assert batch_size(with_ends(four, {runs(5)[4]: True}, NOW)) == 50


def test_a_sample_that_fails_too_often_stops_the_operation() -> None:
    sampled = with_results(operation(batch=runs(5)), Results(done=5, started=runs(5)), NOW)
    ended = dict(zip(runs(5), [True, True, False, False, False], strict=True))
    stopped = with_ends(sampled, ended, NOW + 7)
    assert (stopped.state, stopped.ended_ms) == (OperationState.STOPPED, NOW + 7)
    assert stopped.stopped_because == "2 of the latest 5 results are failures, more than 20 %"
    assert (stopped.counts.runs_ended, stopped.counts.runs_failed) == (5, 2)


def test_a_share_of_failures_at_the_limit_does_not_stop_it() -> None:
    ended = dict(zip(runs(5), [True, False, False, False, False], strict=True))
    assert with_ends(operation(watched=runs(5)), ended, NOW).state is OperationState.RUNNING


def test_failures_after_many_successes_stop_it_before_all_are_spent() -> None:
    after = operation(sample_size=0)
    for number in range(100):
        after = with_ends(after, dict.fromkeys(runs(100, number * 100), False), NOW)
    failures = 0
    while after.state is OperationState.RUNNING:
        after = with_ends(after, {ExecutionId(f"bad-{failures}"): True}, NOW)
        failures += 1
    assert failures <= RECENT_RUNS


def test_items_that_could_not_be_changed_count_as_failures() -> None:
    pausing = operation(OperationKind.PAUSE_JOBS, batch=runs(6))
    after = with_results(pausing, Results(done=2, failed=4, errors=("a: no", "b: no")), NOW)
    assert (after.state, after.errors) == (OperationState.STOPPED, ("a: no", "b: no"))
    skipping = with_results(pausing, Results(skipped=6), NOW)
    assert (skipping.state, skipping.counts) == (OperationState.RUNNING, Counts(skipped=6))


def test_no_operation_without_a_sample_stops_after_a_single_failure() -> None:
    pausing = operation(OperationKind.PAUSE_JOBS, batch=("a",))
    assert with_results(pausing, Results(failed=1), NOW).state is OperationState.RUNNING


@pytest.mark.parametrize("state", [OperationState.STOPPED, OperationState.DONE])
def test_an_operation_that_has_ended_keeps_its_state_and_gets_the_counts(state: OperationState) -> None:
    ended = operation(OperationKind.PAUSE_JOBS, batch=runs(6), state=state, stopped_because="stopped by ann")
    after = with_results(ended, Results(failed=6), NOW)
    assert (after.state, after.stopped_because, after.counts.failed) == (state, "stopped by ann", 6)


def test_the_next_batch_is_due_when_the_rate_allows_it() -> None:
    after = with_results(operation(batch=runs(5), rate_per_sec=2), Results(done=5), NOW)
    assert after.next_ms == NOW + 2_500


def test_batches_are_bounded_by_the_rate_and_by_the_runs_that_are_awaited() -> None:
    retrying = operation(sample_size=0, rate_per_sec=1_000)
    assert batch_size(retrying) == MOST_BATCH
    assert batch_size(msgspec.structs.replace(retrying, rate_per_sec=0.1)) == 1
    assert batch_size(msgspec.structs.replace(retrying, watched=runs(MOST_WATCHED - 7))) == 7
    assert batch_size(msgspec.structs.replace(retrying, watched=runs(MOST_WATCHED))) == 0


@pytest.mark.parametrize("kind", OperationKind)
def test_conditions_that_a_kind_does_not_have_are_named(kind: OperationKind) -> None:
    values = {"type": "CRON", "late_over": 1.0, "took_over": 1.0, "since": None, "until": None}
    for name in OperationFilter.__struct_fields__:
        if name in CONDITIONS[kind] or name in ("since", "until"):
            continue
        request = OperationRequest(kind=kind, filter=OperationFilter(**{name: values.get(name, "x")}))
        with pytest.raises(InvalidInput) as refused:
            check(request)
        wire = msgspec.json.decode(msgspec.json.encode(request.filter))
        assert [flaw.pointer for flaw in refused.value.flaws] == [f"/filter/{next(iter(wire))}"]
        assert f"{kind} has no condition" in refused.value.detail


def test_a_state_that_the_kind_does_not_change_is_refused() -> None:
    request = OperationRequest(kind=OperationKind.CANCEL_JOBS, filter=OperationFilter(state="DEAD"))
    with pytest.raises(InvalidInput, match="CANCEL_JOBS changes items in state ACTIVE or PAUSED, not DEAD"):
        check(request)


def test_an_instant_in_the_future_does_not_reach_items_to_come() -> None:
    later = OperationRequest(kind=RETRY, filter=OperationFilter(), until=instant_of(NOW + 9_000))
    earlier = msgspec.structs.replace(later, until=instant_of(NOW - 9_000))
    both = [planned(each, "id", TenantId("acme"), "ann", NOW, 0, is_least=False).until_ms for each in (later, earlier)]
    assert both == [NOW + 1, NOW - 9_000]
