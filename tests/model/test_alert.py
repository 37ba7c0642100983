from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noonday.model.alert import (
    MESSAGE_LIMIT,
    Alert,
    AlertKind,
    AlertState,
    Observation,
    TargetAlert,
    events_of,
    merge_observations,
    recoveries,
)
from tests.support.factories import NOW_MS, TENANT


def observation(about: str = "job", kind: AlertKind = AlertKind.FAILED, **fields: Any) -> Observation:
    given = {"tenant": TENANT, "message": "no such file", "at_ms": NOW_MS, "job_id": about, **fields}
    return Observation(kind=kind, about=about, **given)


def alert(**fields: Any) -> Alert:
    given: dict[str, Any] = {
        "id": "1",
        "tenant": TENANT,
        "kind": AlertKind.FAILED,
        "about": "job",
        "job_id": "job",
        "job_name": None,
        "pool": "etl",
        "execution_id": "",
        "endpoint": None,
        "message": "no such file",
        "count": 1,
        "first_ms": NOW_MS,
        "last_ms": NOW_MS,
        **fields,
    }
    return Alert(**given)


@pytest.mark.slow
@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(list(AlertKind)), st.integers(1, 5)), max_size=20))
def test_nothing_is_lost_or_counted_twice_by_folding(seen: list[tuple[str, AlertKind, int]]) -> None:
    raised = merge_observations(observation(about, kind, count=count) for about, kind, count in seen)
    subjects = [(each.about, each.kind) for each in raised]
    assert len(set(subjects)) == len(subjects)
    assert sum(each.count for each in raised) == sum(count for _, _, count in seen)


def test_alert_has_the_message_of_the_last_and_the_time_of_the_first_observation() -> None:
    (raised,) = merge_observations(
        [observation(at_ms=NOW_MS + 1), observation(message="x" * 5_000, at_ms=NOW_MS + 9, execution_id="e")]
    )
    assert (raised.first_ms, raised.last_ms, raised.execution_id) == (NOW_MS + 1, NOW_MS + 9, "e")
    assert raised.message == "x" * MESSAGE_LIMIT


def test_different_incidents_open_different_alerts_even_in_the_same_instant() -> None:
    names = {merge_observations([observation(incident=number)])[0].id for number in range(10)}
    assert len(names) == 10


def test_ids_of_alerts_sort_by_time() -> None:
    names = [merge_observations([observation(at_ms=NOW_MS + later)])[0].id for later in (0, 1, 1_000_000)]
    assert names == sorted(names)


def test_alert_about_a_tenant_has_no_job() -> None:
    (raised,) = merge_observations([observation("", job_id="job")])
    assert raised.job_id == ""


def test_observation_that_was_dropped_is_no_event() -> None:
    seen = [observation(kind=AlertKind.EXHAUSTED), observation()]
    assert events_of(seen, merge_observations(seen), []) == []


def test_open_alert_is_an_event_only_if_each_observation_counts() -> None:
    seen = [
        observation(kind=AlertKind.EXHAUSTED, at_ms=NOW_MS + 1),
        observation(kind=AlertKind.EXHAUSTED),
        observation(),
    ]
    kept = [TargetAlert(TENANT, "job", kind, "older", "import", "etl", None) for kind in ("EXHAUSTED", "FAILED")]
    events = events_of(seen, merge_observations(seen), kept)
    assert [(each.kind, each.alert_id, each.at_ms) for each in events] == [
        (AlertKind.EXHAUSTED, "older", NOW_MS),
        (AlertKind.EXHAUSTED, "older", NOW_MS + 1),
    ]


def test_a_job_recovers_once_whatever_it_recovers_from() -> None:
    ended = [alert(id="1"), alert(id="2", kind=AlertKind.SLOW, message="runs for 91 s"), alert(id="3", job_id="other")]
    events = recoveries(ended, NOW_MS)
    assert [(each.job_id, each.alert_id, each.kind) for each in events] == [
        ("job", "2", AlertKind.RECOVERED),
        ("other", "3", AlertKind.RECOVERED),
    ]
    assert events[0].message == "recovered from SLOW: runs for 91 s"


def test_an_alert_is_open_until_it_is_seen_or_over() -> None:
    assert alert().status is AlertState.OPEN
    assert alert(acknowledged_ms=NOW_MS).status is AlertState.ACKNOWLEDGED
    assert alert(acknowledged_ms=NOW_MS, recovered_ms=NOW_MS).status is AlertState.RECOVERED
