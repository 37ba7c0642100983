from datetime import datetime, timedelta

import pytest
from cronsim import CronSim
from hypothesis import given, settings
from hypothesis import strategies as st

from noonday.model.cron_parsing import ALIASES, explain, parse
from noonday.model.errors import Flaw, InvalidInput

EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - wall time has no zone


def seconds(wall: str | datetime) -> int:
    wall = datetime.fromisoformat(wall) if isinstance(wall, str) else wall
    return (wall - EPOCH) // timedelta(seconds=1)


def wall(local_s: int | None) -> str | None:
    return None if local_s is None else (EPOCH + timedelta(seconds=local_s)).isoformat()


def flaws_of(expression: str) -> tuple[Flaw, ...]:
    with pytest.raises(InvalidInput) as caught:
        parse(expression)
    return caught.value.flaws


@pytest.mark.parametrize(
    ("expression", "start", "expected"),
    [
        ("*/5 * * * *", "2026-01-01T00:00:01", "2026-01-01T00:05:00"),
        ("*/5 * * * *", "2026-01-01T00:05:00", "2026-01-01T00:05:00"),
        ("59 23 31 12 *", "2026-12-31T23:59:01", "2027-12-31T23:59:00"),
        ("*/10 * * * * *", "2026-01-01T00:00:51", "2026-01-01T00:01:00"),
        ("15 30 9 * * *", "2026-01-01T09:30:16", "2026-01-02T09:30:15"),
        ("0 9 * * MON-FRI", "2026-01-02T09:00:01", "2026-01-05T09:00:00"),
        ("0 9 * jan,JUL *", "2026-02-01T00:00:00", "2026-07-01T09:00:00"),
        ("0 0 * * 7", "2026-01-01T00:00:00", "2026-01-04T00:00:00"),
        ("0 0 * * 5-7", "2026-01-04T00:00:01", "2026-01-09T00:00:00"),
        ("0 0 L * *", "2028-02-01T00:00:00", "2028-02-29T00:00:00"),
        ("0 0 L * *", "2100-02-01T00:00:00", "2100-02-28T00:00:00"),
        ("0 0 LW * *", "2026-01-01T00:00:00", "2026-01-30T00:00:00"),
        ("0 0 LW * *", "2026-05-01T00:00:00", "2026-05-29T00:00:00"),
        ("0 0 LW * *", "2026-03-01T00:00:00", "2026-03-31T00:00:00"),
        ("0 0 * * 5L", "2026-01-01T00:00:00", "2026-01-30T00:00:00"),
        ("0 0 * * FRIL", "2026-01-01T00:00:00", "2026-01-30T00:00:00"),
        ("0 0 * * 7L", "2026-01-01T00:00:00", "2026-01-25T00:00:00"),
        ("0 0 * * MON#1", "2026-01-06T00:00:00", "2026-02-02T00:00:00"),
        ("0 0 * * MON#5", "2026-01-01T00:00:00", "2026-03-30T00:00:00"),
        ("0 0 * 2 MON#5", "2017-01-01T00:00:00", "2044-02-29T00:00:00"),
        ("0 0 29 2 *", "2096-03-01T00:00:00", "2104-02-29T00:00:00"),
        ("0 0 5-5/2 * *", "2026-01-06T00:00:00", "2026-02-05T00:00:00"),
        ("10/20 * * * *", "2026-01-01T00:31:00", "2026-01-01T00:50:00"),
    ],
)
def test_the_next_match_is_the_earliest_at_or_after_the_start(expression: str, start: str, expected: str) -> None:
    assert wall(parse(expression).next_from(seconds(start))) == expected


@pytest.mark.parametrize(
    ("expression", "start", "expected"),
    [
        ("*/5 * * * *", "2026-01-01T00:04:59", "2026-01-01T00:00:00"),
        ("0 3 * * *", "2026-01-01T02:59:59", "2025-12-31T03:00:00"),
        ("0 3 1 1 *", "2026-01-01T03:00:00", "2026-01-01T03:00:00"),
        ("30 59 23 L 2 *", "2026-02-28T23:59:29", "2025-02-28T23:59:30"),
    ],
)
def test_the_last_match_is_the_latest_at_or_before_the_start(expression: str, start: str, expected: str) -> None:
    assert wall(parse(expression).last_until(seconds(start))) == expected


@pytest.mark.parametrize(
    ("expression", "days"),
    [
        ("0 0 1 * 1", [1, 5, 12, 19, 26]),
        ("0 0 10-12 * MON#2", [10, 11, 12]),
        ("0 0 */10 * 1,3", [21]),
        ("0 0 1-7 * *", [1, 2, 3, 4, 5, 6, 7]),
        ("0 0 15,L * 0/7", [4, 11, 15, 18, 25, 31]),
    ],
)
def test_two_named_day_fields_are_alternatives_and_a_star_makes_both_necessary(
    expression: str, days: list[int]
) -> None:
    january = range(seconds("2026-01-01"), seconds("2026-02-01"), 86_400)
    assert [day for day, at in enumerate(january, 1) if parse(expression).matches(at)] == days


@pytest.mark.parametrize("alias", ALIASES)
def test_an_alias_is_its_expression_in_any_case(alias: str) -> None:
    assert parse(alias) == parse(alias.upper()) == parse(ALIASES[alias])


def test_yearly_is_the_first_instant_of_the_year() -> None:
    assert wall(parse("@yearly").next_from(seconds("2026-01-01T00:00:01"))) == "2027-01-01T00:00:00"


@pytest.mark.parametrize(
    ("expression", "fixed"),
    [
        ("30 2 * * *", True),
        ("0,30 1-4 * * *", True),
        ("0-59 0-23 * * *", True),
        ("0/15 3 * * *", True),
        ("10 0 3 * * MON", True),
        ("@daily", True),
        ("*/30 2 * * *", False),
        ("0 */2 * * *", False),
        ("* 0 3 * * *", False),
        ("5,*/20 3 * * *", False),
        ("@hourly", False),
    ],
)
def test_times_are_fixed_unless_second_minute_or_hour_has_a_star(expression: str, fixed: bool) -> None:
    assert parse(expression).is_fixed is fixed


@pytest.mark.parametrize(
    ("expression", "value", "detail"),
    [
        ("61 * * * *", "61", 'minute "61": 61 is not from 0 to 59'),
        ("0,75 0 0 * * *", "75", 'second "75": 75 is not from 0 to 59'),
        ("0 24 * * *", "24", 'hour "24": 24 is not from 0 to 23'),
        ("0 0 0 * *", "0", 'day of month "0": 0 is not from 1 to 31'),
        ("0 0 15W * *", "15W", 'day of month "15W": not a number'),
        ("0 0 * 13 *", "13", 'month "13": 13 is not from 1 to 12'),
        ("0 0 * * 8", "8", 'day of week "8": 8 is not from 0 to 7'),
        ("0 0 * * MON#6", "MON#6", 'day of week "MON#6": "6" after # is not a number from 1 to 5'),
        ("0 0 * * FRI-MON", "FRI-MON", 'day of week "FRI-MON": the range runs backwards; write FRI-7,0-MON'),
        ("30-10 * * * *", "30-10", 'minute "30-10": the range runs backwards; write 30-59,0-10'),
        ("*/90 * * * *", "*/90", 'minute "*/90": the step "90" is not a number from 1 to 60'),
        ("*/0 * * * *", "*/0", 'minute "*/0": the step "0" is not a number from 1 to 60'),
        ("*/ * * * *", "*/", 'minute "*/": the step "" is not a number from 1 to 60'),
        ("1,,2 * * * *", "", 'minute "": not a number'),
        ("1- * * * *", "1-", 'minute "1-": a part is missing; it is not a number'),
        ("١ * * * *", "١", 'minute "١": not a number'),
        ("0 0 31 2 *", "31", 'day of month "31": never occurs with month "2"'),
        ("0 0 31 4,6,9,11 *", "31", 'day of month "31": never occurs with month "4,6,9,11"'),
        ("0 0 */31 * MON#2", "*/31", 'day of month "*/31": never occurs with month "*" and day of week "MON#2"'),
    ],
)
def test_a_bad_field_is_named_with_its_value_and_the_reason(expression: str, value: str, detail: str) -> None:
    (flaw,) = flaws_of(expression)
    assert (flaw.pointer, flaw.value, flaw.detail) == ("/schedule", value, detail)
    assert "ranges (a-b)" in flaw.allowed


def test_every_bad_field_is_reported() -> None:
    flaws = flaws_of("61 3 * FOO 9")
    assert [flaw.detail.split(' "')[0] for flaw in flaws] == ["minute", "month", "day of week"]


@pytest.mark.parametrize(
    ("expression", "meant"),
    [("0 0 * JANUARY *", "JAN"), ("0 0 * * friday", "FRI"), ("@dayly", "@daily"), ("@HOURLI", "@hourly")],
)
def test_a_misspelt_name_comes_with_the_nearest_one(expression: str, meant: str) -> None:
    assert flaws_of(expression)[0].nearest == meant


@pytest.mark.parametrize(("expression", "number"), [("", "0 fields"), ("*", "1 field"), ("* * * * * * *", "7 fields")])
def test_a_wrong_number_of_fields_says_how_many_are_allowed(expression: str, number: str) -> None:
    (flaw,) = flaws_of(expression)
    assert flaw.detail == f'"{expression}" has {number}'
    assert "5 fields" in flaw.allowed
    assert "6 with the second first" in flaw.allowed


def test_every_points_to_intervals() -> None:
    assert "INTERVAL" in flaws_of("@every 5m")[0].detail


def test_a_text_without_end_is_refused_without_repeating_it() -> None:
    (flaw,) = flaws_of("1," * 10_000 + "1 * * * *")
    assert len(flaw.value) < 100


def test_a_number_of_thousands_of_digits_is_just_too_large() -> None:
    assert "is not from 0 to 59" in flaws_of("9" * 200 + " * * * *")[0].detail


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("*/5 * * * *", "Every fifth minute of every hour"),
        ("0 3 * * *", "At 03:00 every day"),
        ("30 0 9 * * MON-FRI", "At 09:00:30 on Monday through Friday"),
        ("0 9 1-7 * 1", "At 09:00 on days 1 to 7 of the month, or on Mondays"),
        ("0 9 1-7 * *", "At 09:00 on days 1 to 7 of the month"),
        ("0 9 1,15 * 1,3", "At 09:00 on the first and the 15th day of month, or on Mondays and Wednesdays"),
        ("0 9 1 * MON#1", "At 09:00 on the first day of month, or on the first Monday of the month"),
        ("0 9 */2 * 1", "At 09:00 on every second day of month if it's on Monday"),
        ("*/10 * * * * *", "Every 10th second of every minute"),
        ("0 0 31 * *", "At 00:00 on the 31st day of every month"),
        ("0 0 12,22,23 * *", "At 00:00 on the 12th, the 22nd, and the 23rd day of month"),
        ("0 0 LW * *", "At 00:00 on the last weekday of every month"),
        ("0 0 * * fril", "At 00:00 on the last Friday of the month"),
        ("0 0 * * MON#1", "At 00:00 on the first Monday of the month"),
        ("@hourly", "At the start of every hour"),
        ("@secondly", "Every second"),
    ],
)
def test_an_expression_is_explained_in_a_sentence(expression: str, words: str) -> None:
    assert explain(expression) == words


def test_a_bad_expression_is_refused_instead_of_explained() -> None:
    with pytest.raises(InvalidInput):
        explain("61 * * * *")


def numbers(low: int, high: int, names: str = "") -> st.SearchStrategy[str]:
    """Fields of plain numbers, ranges, steps and lists."""
    one = st.integers(low, high).map(str)
    span = st.tuples(st.integers(low, high), st.integers(low, high)).filter(lambda ends: ends[0] < ends[1])
    range_ = span.map(lambda ends: f"{ends[0]}-{ends[1]}")
    step = st.builds("{}/{}".format, st.one_of(st.just("*"), one, range_), st.integers(1, high - low + 1))
    terms = st.one_of(one, range_, step, *([st.sampled_from(names.split())] if names else []))
    return st.one_of(st.just("*"), terms, st.lists(terms, min_size=2, max_size=3).map(",".join))


days = numbers(1, 31, "L LW")
months = numbers(1, 12, "JAN FEB DEC")
weekdays = numbers(0, 7, "SUN FRI 5L 7L 0L MON#1 SAT#5 7#3 0#4")
times = st.one_of(
    st.tuples(numbers(0, 59), numbers(0, 23)).map(" ".join),
    st.tuples(numbers(0, 59), numbers(0, 59), numbers(0, 23)).map(" ".join),
)
expressions = st.tuples(times, days, months, weekdays).map(" ".join)
walls = st.datetimes(datetime(1971, 1, 1), datetime(2110, 1, 1)).map(  # noqa: DTZ001 - wall time has no zone
    lambda moment: moment.replace(microsecond=0)
)


def is_possible(expression: str) -> bool:
    try:
        parse(expression)
    except InvalidInput as refusal:
        if "never occurs" in refusal.detail:
            return False
        raise
    return True


possible = expressions.filter(is_possible)


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(possible, walls)
def test_matches_follow_each_other_as_in_cronsim(expression: str, start: datetime) -> None:
    ours, theirs, at = parse(expression), CronSim(expression, start), seconds(start)
    for _ in range(5):
        expected = next(theirs, None)
        found = ours.next_from(at + 1)
        assert wall(found) == (expected and expected.isoformat())
        if found is None:
            return
        at = found


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(possible, walls)
def test_matches_precede_each_other_as_in_cronsim(expression: str, start: datetime) -> None:
    ours, theirs, at = parse(expression), CronSim(expression, start, reverse=True), seconds(start)
    for _ in range(5):
        expected = next(theirs, None)
        found = ours.last_until(at - 1)
        assert wall(found) == (expected and expected.isoformat())
        if found is None:
            return
        at = found


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(possible, walls, st.integers(0, 400))
def test_counting_agrees_with_visiting_each(expression: str, start: datetime, matches: int) -> None:
    cron, first = parse(expression), seconds(start)
    at, visited = first, 0
    while visited < matches and (found := cron.next_from(at)) is not None:
        assert cron.matches(found)
        at, visited = found + 1, visited + 1
    assert cron.count(first, at) == visited
    assert cron.count(at, first) == 0 or visited == 0
