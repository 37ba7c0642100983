from typing import Any

from noonday.alerts.aggregator import HOUR_MS, AlertAggregator
from noonday.model.alert import AlertKind, Observation
from tests.support.factories import NOW_MS, TENANT


def observation(about: str, **fields: Any) -> Observation:
    defaults = {"kind": AlertKind.MISSED, "tenant": TENANT, "message": "late", "at_ms": NOW_MS, "job_id": about}
    return Observation(about=about, **{**defaults, **fields})


def test_subjects_within_the_limit_keep_their_own_alert() -> None:
    aggregator, observations = AlertAggregator(2), [observation("a"), observation("b"), observation("a")]
    assert aggregator.aggregate(observations, NOW_MS) == observations
    assert aggregator.aggregate(observations, NOW_MS + 1) == observations


def test_incidents_beyond_the_limit_are_about_the_tenant() -> None:
    observations = [observation(name, incident=number) for number, name in enumerate("abc")]
    first, second, third = AlertAggregator(2).aggregate(observations, NOW_MS)
    assert [first, second] == observations[:2]
    assert (third.about, third.job_id, third.incident) == ("", "c", 2)
    assert third.message == "and others, the last one c: late"


def test_lasting_observations_beyond_the_limit_merge_once_an_hour() -> None:
    aggregator, observations = AlertAggregator(1), [observation(name, dedup_key="1") for name in "abc"]
    _, others = aggregator.aggregate(observations, NOW_MS)
    assert (others.about, others.count, others.message) == ("", 2, "and 2 others, the first one b: late")
    (again,) = aggregator.aggregate(observations[2:], NOW_MS + 1)
    assert again.dedup_key == others.dedup_key
    aggregator.aggregate(observations[:1], NOW_MS + HOUR_MS)
    (later,) = aggregator.aggregate(observations[2:], NOW_MS + HOUR_MS)
    assert (later.dedup_key or "") > (others.dedup_key or "")


def test_limit_applies_to_each_kind_and_tenant() -> None:
    aggregator = AlertAggregator(1)
    observations = [observation("a"), observation("b", kind=AlertKind.SLOW), observation("c", tenant="other")]
    assert aggregator.aggregate(observations, NOW_MS) == observations
