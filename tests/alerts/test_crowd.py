from typing import Any

from noonday.alerts.crowd import HOUR_MS, Crowd
from noonday.model.alert import AlertKind, Sighting
from tests.support.factories import NOW_MS, TENANT


def sighting(about: str, **said: Any) -> Sighting:
    given = {"kind": AlertKind.MISSED, "tenant": TENANT, "message": "late", "at_ms": NOW_MS, "job_id": about, **said}
    return Sighting(about=about, **given)


def test_a_few_things_have_an_alert_each_however_often_they_are_seen() -> None:
    crowd, seen = Crowd(2), [sighting("a"), sighting("b"), sighting("a")]
    assert crowd.thin_out(seen, NOW_MS) == seen
    assert crowd.thin_out(seen, NOW_MS + 1) == seen


def test_what_happened_beyond_that_is_about_the_tenant_one_by_one() -> None:
    seen = [sighting(name, incident=number) for number, name in enumerate("abc")]
    first, second, third = Crowd(2).thin_out(seen, NOW_MS)
    assert [first, second] == seen[:2]
    assert (third.about, third.job_id, third.incident) == ("", "c", 2)
    assert third.message == "and others, the last one c: late"


def test_what_lasts_beyond_that_is_one_alert_about_the_tenant_an_hour() -> None:
    crowd, seen = Crowd(1), [sighting(name, occasion="1") for name in "abc"]
    _, others = crowd.thin_out(seen, NOW_MS)
    assert (others.about, others.count, others.message) == ("", 2, "and 2 others, the first one b: late")
    (again,) = crowd.thin_out(seen[2:], NOW_MS + 1)
    assert again.occasion == others.occasion
    crowd.thin_out(seen[:1], NOW_MS + HOUR_MS)
    (later,) = crowd.thin_out(seen[2:], NOW_MS + HOUR_MS)
    assert (later.occasion or "") > (others.occasion or "")


def test_kinds_and_tenants_are_counted_apart() -> None:
    crowd = Crowd(1)
    seen = [sighting("a"), sighting("b", kind=AlertKind.SLOW), sighting("c", tenant="other")]
    assert crowd.thin_out(seen, NOW_MS) == seen
