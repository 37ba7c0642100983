from typing import Any

from noonday.alerts.wording import event_of, subject_of, text_of_digest
from noonday.model.alert import AlertKind
from noonday.model.notice import Digest, Line
from tests.support.factories import MINUTE, NOW_MS, TENANT

JOB = "01900000-0000-7000-8000-000000000001"


def line(kind: AlertKind = AlertKind.EXHAUSTED, **said: Any) -> Line:
    usual = {
        "about": JOB,
        "count": 1,
        "first_ms": NOW_MS,
        "last_ms": NOW_MS,
        "alert_id": "a1",
        "job_id": JOB,
        "job_name": "nightly",
        "pool": "webhooks",
        "execution_id": "x1",
        "endpoint": None,
        "message": "HTTP_500: answered 500",
    }
    return Line(kind=kind, **{**usual, **said})


def digest(*lines: Line, subjects: int = 1) -> Digest:
    counts: dict[AlertKind, int] = {}
    for each in lines:
        counts[each.kind] = counts.get(each.kind, 0) + each.count
    first, last = min(each.first_ms for each in lines), max(each.last_ms for each in lines)
    return Digest("n1", TENANT, "ops", counts, subjects, first, last, lines)


def test_the_subject_says_what_happened_to_what() -> None:
    told = digest(line(count=3), line(AlertKind.RECOVERED, last_ms=NOW_MS + 1))
    assert subject_of(told) == "[noonday] nightly: 3 dead letters, 1 recovered"


def test_the_subject_of_many_says_how_many() -> None:
    told = digest(line(count=1), line(AlertKind.FAILED, about="b", count=2), subjects=1_234)
    assert subject_of(told) == "[noonday] 1,234 jobs: 2 failed and are tried again, 1 dead letter"


def test_an_endpoint_is_called_by_its_name() -> None:
    told = digest(line(AlertKind.DISABLED, job_id="", job_name=None, endpoint="https://a.example:443"))
    assert subject_of(told) == "[noonday] https://a.example:443: 1 disabled"


def test_a_failure_and_its_recovery_are_told_in_one_line() -> None:
    text = text_of_digest(digest(line(count=3), line(AlertKind.RECOVERED, last_ms=NOW_MS + MINUTE, message="")))
    assert "nightly: 3 dead letters, it works again\n" in text
    assert "2030-01-01T00:00:00.000Z to 2030-01-01T00:01:00.000Z" in text
    assert "HTTP_500: answered 500" in text


def test_what_failed_again_after_it_had_recovered_does_not_work() -> None:
    text = text_of_digest(digest(line(last_ms=NOW_MS + MINUTE), line(AlertKind.RECOVERED)))
    assert "nightly: 1 dead letter, it had recovered in between\n" in text


def test_a_recovery_alone_says_that_it_works_again() -> None:
    assert "nightly: it works again\n" in text_of_digest(digest(line(AlertKind.RECOVERED)))


def test_what_has_no_line_is_counted() -> None:
    text = text_of_digest(digest(line(), subjects=1_235))
    assert "... and 1,234 more." in text


def test_names_and_messages_stay_on_their_line() -> None:
    text = text_of_digest(digest(line(job_name="a\nb\x1b[31m", message="first\r\nsecond")))
    assert "\na b [31m: 1 dead letter\n" in text
    assert "  first second\n" in text


def test_a_test_says_so() -> None:
    told = Digest("n1", TENANT, "ops")
    assert subject_of(told) == "[noonday] ops: this is a test"
    assert "This is a test of the alert preference 'ops'." in text_of_digest(told)
    assert event_of(told, NOW_MS)["data"]["test"] is True


def test_an_event_has_what_a_program_needs() -> None:
    event = event_of(digest(line(count=3), subjects=5), NOW_MS)
    assert (event["type"], event["timestamp"]) == ("noonday.alerts", "2030-01-01T00:00:00.000Z")
    data = event["data"]
    assert (data["tenant"], data["preference"], data["counts"], data["more"]) == (TENANT, "ops", {"EXHAUSTED": 3}, 4)
    (alert,) = data["alerts"]
    assert (alert["kind"], alert["count"], alert["job_id"], alert["name"]) == ("EXHAUSTED", 3, JOB, "nightly")
