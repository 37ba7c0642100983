import json

import pytest

from noonday.cli import exits
from tests.cli.conftest import Run


def test_an_expression_is_explained_with_its_next_times(run: Run) -> None:
    result = run("cron", "0 3 * * MON-FRI", "--from", "2026-06-05T00:00:00Z", "--count", "2")
    assert result.exit_code == 0
    assert "03:00" in result.stdout
    assert "Fri 2026-06-05 03:00:00+00:00" in result.stdout
    assert "Mon 2026-06-08 03:00:00+00:00" in result.stdout


def test_ten_times_are_shown_by_default(run: Run) -> None:
    times = json.loads(run("cron", "@hourly", "--json").stdout)["times"]
    assert len(times) == 10


def test_a_time_that_the_clocks_skip_is_marked(run: Run) -> None:
    result = run("cron", "30 2 * * *", "--tz", "Europe/Berlin", "--from", "2026-03-28T12:00:00Z", "--count", "2")
    marked, plain = result.stdout.splitlines()[-2:]
    assert "Sun 2026-03-29 03:30:00+02:00" in marked
    assert "2026-03-29 01:30:00Z" in marked
    assert "the clocks skip this time" in marked
    assert "clocks" not in plain


def test_a_time_shown_twice_is_marked_and_can_fire_twice(run: Run) -> None:
    words = ["cron", "30 2 * * *", "--tz", "Europe/Berlin", "--from", "2026-10-24T12:00:00Z", "--count", "2", "--json"]
    once = json.loads(run(*words).stdout)["times"]
    twice = json.loads(run(*words, "--repeat", "both").stdout)["times"]
    assert [time["dst"] for time in once] == ["REPEATED_FIRST", None]
    assert [time["dst"] for time in twice] == ["REPEATED_FIRST", "REPEATED_SECOND"]


def test_fields_need_not_be_quoted_together(run: Run) -> None:
    together = run("cron", "0 3 * * 1-5", "--from", "2026-01-01", "--json")
    apart = run("cron", "0", "3", "*", "*", "1-5", "--from", "2026-01-01", "--json")
    assert together.stdout == apart.stdout


def test_wrong_fields_are_pointed_at(run: Run) -> None:
    result = run("cron", "61 3 * * 8")
    assert result.exit_code == exits.FAILED
    assert result.stdout == ""
    assert result.stderr.splitlines()[:3] == ["error: 2 invalid fields", "  61 3 * * 8", "  ^^       ^"]
    assert "61 is not from 0 to 59" in result.stderr


@pytest.mark.parametrize(
    ("expression", "marks"),
    [
        ("x 61 3 * * *", "  ^"),
        ("0 61 3 * * *", "    ^^"),
        ("0  3 * * 8", "           ^"),
        ("0 3 * FOO *", "        ^^^"),
    ],
)
def test_marks_stand_under_the_field(run: Run, expression: str, marks: str) -> None:
    assert marks in [line[: len(marks)] for line in run("cron", expression).stderr.splitlines()]


def test_too_many_words_are_likely_names_of_files(run: Run) -> None:
    result = run("cron", "0", "3", "README.md", "docs", "src", "tests", "uv.lock")
    assert "put the expression in quotes" in result.stderr


def test_an_unknown_zone_names_the_nearest(run: Run) -> None:
    result = run("cron", "0 3 * * *", "--tz", "Europe/Berln")
    assert result.exit_code == exits.FAILED
    assert "did you mean Europe/Berlin?" in result.stderr
