from typing import Any

import pytest

from noonday.alerts.wording import event_of, subject_of, text_of_digest
from noonday.model.alert import AlertKind
from noonday.model.notice import Digest, DigestItem
from tests.support.factories import MINUTE, NOW_MS, TENANT

JOB = "01900000-0000-7000-8000-000000000001"


def line(kind: AlertKind = AlertKind.EXHAUSTED, **fields: Any) -> DigestItem:
    defaults = {
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
    return DigestItem(kind=kind, **{**defaults, **fields})


def digest(*lines: DigestItem, subjects: int = 1) -> Digest:
    counts: dict[AlertKind, int] = {}
    for each in lines:
        counts[each.kind] = counts.get(each.kind, 0) + each.count
    first, last = min(each.first_ms for each in lines), max(each.last_ms for each in lines)
    return Digest("n1", TENANT, "ops", counts, subjects, first, last, lines)


@pytest.mark.parametrize(
    ("attempts", "subject"),
    [
        (3, "[noonday] broken failed after 3 attempts"),
        (1, "[noonday] broken failed after 1 attempt"),
        (None, "[noonday] broken failed"),
    ],
)
def test_subject_of_one_dead_letter_counts_attempts(attempts: int | None, subject: str) -> None:
    assert subject_of(digest(line(job_name="broken")), attempts) == subject


def test_text_names_the_command_that_shows_the_traceback_of_a_handler() -> None:
    command = "noonday execution show x1 --traceback"
    assert command in text_of_digest(digest(line()))
    assert command in text_of_digest(digest(line(AlertKind.FAILED)))
    assert command not in text_of_digest(digest(line(AlertKind.SLOW)))
    assert command not in text_of_digest(digest(line(endpoint="hooks.example.com")))


@pytest.mark.parametrize("kind", AlertKind)
def test_subject_of_one_event_is_a_sentence(kind: AlertKind) -> None:
    assert subject_of(digest(line(kind))).startswith("[noonday] nightly ")


def test_subject_of_one_job_counts_each_kind() -> None:
    several = digest(line(count=3), line(AlertKind.RECOVERED, last_ms=NOW_MS + 1))
    assert subject_of(several) == "[noonday] nightly: 3 dead letters, 1 recovered"


def test_subject_of_many_jobs_counts_them() -> None:
    many = digest(line(count=1), line(AlertKind.FAILED, about="b", count=2), subjects=1_234)
    assert subject_of(many) == "[noonday] 1,234 jobs: 2 first attempts failed, 1 dead letter"


def test_subject_names_the_endpoint() -> None:
    disabled = digest(line(AlertKind.DISABLED, job_id="", job_name=None, endpoint="https://a.example:443"))
    assert subject_of(disabled) == "[noonday] https://a.example:443 disabled"


def test_failure_and_recovery_share_a_line() -> None:
    text = text_of_digest(digest(line(count=3), line(AlertKind.RECOVERED, last_ms=NOW_MS + MINUTE, message="")))
    assert "nightly: 3 dead letters, recovered\n" in text
    assert "2030-01-01T00:00:00.000Z to 2030-01-01T00:01:00.000Z" in text
    assert "HTTP_500: answered 500" in text


def test_failure_after_recovery_is_stated() -> None:
    text = text_of_digest(digest(line(last_ms=NOW_MS + MINUTE), line(AlertKind.RECOVERED)))
    assert "nightly: 1 dead letter, recovered and failed again\n" in text


def test_recovery_alone_is_stated() -> None:
    assert "nightly: recovered\n" in text_of_digest(digest(line(AlertKind.RECOVERED)))


def test_jobs_without_a_line_are_counted() -> None:
    text = text_of_digest(digest(line(), subjects=1_235))
    assert "... and 1,234 more." in text


def test_job_names_and_messages_cannot_add_lines() -> None:
    text = text_of_digest(digest(line(job_name="a\nb\x1b[31m", message="first\r\nsecond")))
    assert "\na b [31m: 1 dead letter\n" in text
    assert "  first second\n" in text


def test_test_notice_is_marked_as_a_test() -> None:
    test = Digest("n1", TENANT, "ops")
    assert subject_of(test) == "[noonday] test of alert preference ops"
    assert "This is a test of the alert preference 'ops'." in text_of_digest(test)
    assert event_of(test, NOW_MS)["data"]["test"] is True


def test_webhook_body_has_counts_and_alerts() -> None:
    event = event_of(digest(line(count=3), subjects=5), NOW_MS)
    assert (event["type"], event["timestamp"]) == ("noonday.alerts", "2030-01-01T00:00:00.000Z")
    data = event["data"]
    assert (data["tenant"], data["preference"], data["counts"], data["more"]) == (TENANT, "ops", {"EXHAUSTED": 3}, 4)
    (alert,) = data["alerts"]
    assert (alert["kind"], alert["count"], alert["job_id"], alert["name"]) == ("EXHAUSTED", 3, JOB, "nightly")
