from datetime import UTC, datetime, timedelta, timezone

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from noonday.cli.instants import duration, instant, length, printable, read_duration, read_instant

NOON = datetime(2026, 6, 1, 12, 0, 0, 500_000, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("1.5", 1.5), ("90s", 90), ("5m", 300), ("1h30m", 5400), ("2d", 172_800), ("1w", 604_800), ("250ms", 0.25),
     ("1H 5M", 3900)],
)  # fmt: skip
def test_a_duration_is_written_in_units(text: str, seconds: float) -> None:
    assert read_duration(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize("text", ["", "x", "5x", "m", "-5", "5 apples", "1h30", "9" * 30 + "d"])
def test_invalid_duration_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter):
        duration(text)


@pytest.mark.slow
@given(st.integers(0, 10**9))
def test_any_number_of_seconds_is_read_as_it_is_written(seconds: int) -> None:
    assert read_duration(f"{seconds}s") == read_duration(str(seconds)) == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-01-31T09:00:00Z", datetime(2026, 1, 31, 9, tzinfo=UTC)),
        ("2026-01-31T09:00:00+02:00", datetime(2026, 1, 31, 7, tzinfo=UTC)),
        ("now", NOON.replace(microsecond=0)),
        ("+10m", NOON.replace(microsecond=0) + timedelta(minutes=10)),
        ("-2h", NOON.replace(microsecond=0) - timedelta(hours=2)),
    ],
)
def test_an_instant_is_absolute_or_relative_to_now(text: str, expected: datetime) -> None:
    assert read_instant(text, NOON) == expected


@pytest.mark.parametrize("text", ["2026-01-31 09:00", "2026-01-31T09:00:00"])
def test_a_time_without_an_offset_is_local(text: str) -> None:
    assert read_instant(text, NOON) == datetime(2026, 1, 31, 9).astimezone()


@pytest.mark.parametrize(
    ("text", "days", "hours"), [("yesterday", -1, 0), ("Tomorrow 9:00", 1, 9), ("today 22:00:00", 0, 22)]
)
def test_a_day_may_be_named(text: str, days: int, hours: int) -> None:
    here = NOON.astimezone()
    day = datetime.combine(here.date() + timedelta(days=days), datetime.min.time())
    assert read_instant(text, here) == (day + timedelta(hours=hours)).astimezone()


@pytest.mark.parametrize("text", ["9:05", "09:05", "09:05:00"])
def test_a_time_of_day_is_today_in_local_time(text: str) -> None:
    here = NOON.astimezone()
    assert read_instant(text, here) == datetime.combine(here.date(), datetime.min.time()).astimezone() + timedelta(
        hours=9, minutes=5
    )


@pytest.mark.parametrize("text", ["", "foo", "25:00", "2026-13-01", "+5x", "+", "9:5"])
def test_invalid_time_is_refused_with_the_format(text: str) -> None:
    with pytest.raises(click.BadParameter, match="is not a time; write"):
        instant(text)


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0, "0 ms"), (0.34, "340 ms"), (1.5, "1.5 s"), (12.3, "12 s"), (90, "1.5 min"), (3599, "60 min"), (7200, "2 h"),
     (86_400, "24 h"), (9 * 86_400, "9 days"), (90 * 86_400, "3 months"), (3650 * 86_400, "10 years")],
)  # fmt: skip
def test_a_length_is_shown_in_its_largest_unit(seconds: float, shown: str) -> None:
    assert length(seconds) == shown


@pytest.mark.slow
@given(st.text())
def test_printable_text_has_no_control_characters(text: str) -> None:
    assert all(character.isprintable() or character == "\n" for character in printable(text))


def test_offsets_are_kept() -> None:
    assert instant("2026-01-31T09:00:00+05:30").tzinfo == timezone(timedelta(hours=5, minutes=30))
