from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from noonday.model import cron_parsing
from noonday.model.errors import InvalidInput
from noonday.model.job import JobSpec, JobType, Target, check, rule_of
from noonday.tasks.phrases import ALLOWED, Timing, read_interval

YEAR_2030_MS = 1_893_456_000_000
YEAR_MS = 365 * 86_400_000
WEEKDAYS = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]
ZONES = ["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata", "America/Santiago"]
WORDS = [
    *("every", "daily", "weekly", "monthly", "hourly", "week", "weekday", "month", "minutes", "second"),
    *("on", "at", "the", "day", "last", "and", ",", "mon", "fridays", "noon", "8am", "13pm", "12:00", "99:99"),
    *("0", "00", "1", "9", "15", "31st"),
]

zones = st.sampled_from(ZONES)
clock_times = st.tuples(st.integers(0, 23), st.integers(0, 59))
spaces = st.sampled_from([" ", "  ", "\t", "\n ", " "])


def job_of(timing: Timing, now_ms: int = YEAR_2030_MS) -> JobSpec:
    spec = JobSpec(
        type=timing.type,
        target=Target("webhooks", "webhook.call"),
        every_sec=timing.every_sec,
        phase_sec=timing.phase_sec(now_ms),
        schedule=timing.schedule,
        timezone=timing.timezone,
    )
    check(spec, now_ms, "webhooks")
    return spec


def fires(timing: Timing) -> list[int]:
    """Every fire of the year 2030 UTC."""
    rule = rule_of(job_of(timing), YEAR_2030_MS)
    return list(_until(rule.next_after, YEAR_2030_MS + YEAR_MS))


def _until(next_after: Callable[[int], int | None], end_ms: int) -> Iterator[int]:
    at = next_after(YEAR_2030_MS - 1)
    while at is not None and at < end_ms:
        yield at
        at = next_after(at)


def expected(on: Callable[[date], bool], hour: int, minute: int, zone: str) -> list[int]:
    """The expected instants of that time of every day: the first of a repeated time; a skipped time later by the size of
    the gap."""
    local = datetime(2029, 12, 30, hour, minute, tzinfo=ZoneInfo(zone))
    found = []
    for _ in range(370):
        if on(local.date()):
            found.append(int(local.astimezone(UTC).timestamp() * 1000))
        local += timedelta(days=1)
    return [at for at in found if YEAR_2030_MS <= at < YEAR_2030_MS + YEAR_MS]


def said_time(hour: int, minute: int, data: st.DataObject) -> str:
    half = "pm" if hour >= 12 else "am"
    forms = [f"{hour:02}:{minute:02}", f"{hour}:{minute:02}", f"{(hour - 1) % 12 + 1}:{minute:02}{half}"]
    if minute == 0:
        forms += [f"{(hour - 1) % 12 + 1}{half}", f"{(hour - 1) % 12 + 1} {half}"]
    if (hour, minute) in ((0, 0), (12, 0)):
        forms.append("noon" if hour else "midnight")
    return data.draw(st.sampled_from(["", "at "])) + data.draw(st.sampled_from(forms))


def disguised(phrase: str, data: st.DataObject) -> str:
    """The same words in another case and spacing."""
    text = "".join(data.draw(spaces) if letter == " " else letter for letter in phrase)
    return data.draw(st.sampled_from([str.upper, str.title, str.lower]))(data.draw(spaces) + text)


class TestTheCalendar:
    @pytest.mark.slow
    @given(st.sampled_from(["daily", "every day"]), clock_times, zones, st.data())
    @settings(max_examples=60)
    def test_daily_fires_once_a_day_at_its_time(
        self, word: str, at: tuple[int, int], zone: str, data: st.DataObject
    ) -> None:
        phrase = disguised(f"{word} {said_time(*at, data)}", data)
        assert fires(read_interval(phrase, zone)) == expected(lambda day: True, *at, zone)

    @pytest.mark.slow
    @given(
        st.sampled_from(["weekly on", "every", "every week on"]),
        st.lists(st.sampled_from(range(7)), min_size=1, max_size=7, unique=True),
        st.sampled_from([" and ", ", ", ",", ", and "]),
        st.sampled_from([None, 3]),
        clock_times,
        zones,
        st.data(),
    )
    @settings(max_examples=60)
    def test_weekly_fires_on_its_days(
        self,
        word: str,
        days: list[int],
        between: str,
        letters: int | None,
        at: tuple[int, int],
        zone: str,
        data: st.DataObject,
    ) -> None:
        listed = between.join(WEEKDAYS[day][:letters] for day in days)
        phrase = disguised(f"{word} {listed} {said_time(*at, data)}", data)
        assert fires(read_interval(phrase, zone)) == expected(lambda day: day.weekday() in days, *at, zone)

    @pytest.mark.slow
    @given(
        st.sampled_from(["monthly on", "every month on"]),
        st.lists(st.integers(1, 28), min_size=1, max_size=4, unique=True),
        st.booleans(),
        clock_times,
        zones,
        st.data(),
    )
    @settings(max_examples=60)
    def test_monthly_fires_on_its_dates(
        self, word: str, dates: list[int], last: bool, at: tuple[int, int], zone: str, data: st.DataObject
    ) -> None:
        listed = " and ".join([*map(str, dates), *(["last day"] if last else [])])
        phrase = disguised(f"{word} {listed} {said_time(*at, data)}", data)

        def meant(day: date) -> bool:
            return day.day in dates or (last and (day + timedelta(days=1)).day == 1)

        assert fires(read_interval(phrase, zone)) == expected(meant, *at, zone)

    def test_skipped_local_time_fires_an_hour_later(self) -> None:
        at = fires(read_interval("daily at 02:30", "Europe/Berlin"))
        assert int(datetime(2030, 3, 31, 1, 30, tzinfo=UTC).timestamp() * 1000) in at
        assert len(at) == 365

    @pytest.mark.parametrize(
        ("phrase", "schedule"),
        [
            ("hourly", "0 * * * *"),
            ("daily", "0 0 * * *"),
            ("weekly", "0 0 * * 0"),
            ("monthly", "0 0 1 * *"),
            ("daily at 08:00", "0 8 * * *"),
            ("every day at 8:30", "30 8 * * *"),
            ("daily 12am", "0 0 * * *"),
            ("daily at 12 PM", "0 12 * * *"),
            ("daily at 11:59pm", "59 23 * * *"),
            ("weekly on mon 09:00", "0 9 * * 1"),
            ("weekly on monday and friday at 09:00", "0 9 * * 1,5"),
            ("Weekly on Sat, Sun, and Wed at noon", "0 12 * * 0,3,6"),
            ("weekly on thurs", "0 0 * * 4"),
            ("every weekday at 09:00", "0 9 * * 1-5"),
            ("every weekend at 10am", "0 10 * * 0,6"),
            ("weekly on mondays at 9am", "0 9 * * 1"),
            ("monthly on 1 at 00:00", "0 0 1 * *"),
            ("monthly on the 1st and the 15th at 06:15", "15 6 1,15 * *"),
            ("monthly on day 3", "0 0 3 * *"),
            ("monthly on last day at 23:00", "0 23 L * *"),
            ("monthly on 2 and last day", "0 0 2,L * *"),
        ],
    )
    def test_calendar_words_are_cron_in_the_zone(self, phrase: str, schedule: str) -> None:
        timing = read_interval(phrase, "Europe/Berlin")
        assert timing == Timing(JobType.CRON, schedule=schedule, timezone="Europe/Berlin")

    def test_without_a_zone_it_is_utc(self) -> None:
        assert read_interval("daily at 08:00", None).timezone == "UTC"

    @pytest.mark.parametrize("word", ["hourly", "daily", "weekly", "monthly"])
    def test_calendar_word_alone_is_the_cron_alias(self, word: str) -> None:
        assert read_interval(word).schedule == cron_parsing.ALIASES[f"@{word}"]


class TestDistances:
    @pytest.mark.slow
    @given(
        st.integers(1, 500),
        st.sampled_from([("second", 1), ("minute", 60), ("hour", 3600), ("day", 86_400), ("week", 604_800)]),
        st.integers(YEAR_2030_MS, YEAR_2030_MS + YEAR_MS),
        st.data(),
    )
    def test_interval_counts_from_creation(
        self, number: int, unit: tuple[str, int], now_ms: int, data: st.DataObject
    ) -> None:
        name, seconds = unit
        words = f"every {number} {name}{'s' * (number > 1)}"
        timing = read_interval(disguised(words, data), "America/New_York")
        every_ms = number * seconds * 1000
        found = rule_of(job_of(timing, now_ms), now_ms).take(now_ms, 4)
        assert found == [now_ms + every_ms * times for times in range(1, 5)]

    @pytest.mark.parametrize(
        ("phrase", "every_sec"),
        [
            ("every 15 minutes", 900),
            ("every hour", 3600),
            ("every minute", 60),
            ("every second", 1),
            ("every day", 86_400),
            ("every week", 604_800),
            ("every 2 weeks", 1_209_600),
            ("every 15 min", 900),
            ("every 15mins", 900),
            ("every 2 hrs", 7200),
            ("every 1 hours", 3600),
        ],
    )
    def test_distances_have_no_zone(self, phrase: str, every_sec: int) -> None:
        assert read_interval(phrase, "Europe/Berlin") == Timing(JobType.INTERVAL, every_sec=every_sec)

    def test_the_calendar_has_no_phase(self) -> None:
        assert read_interval("daily").phase_sec(YEAR_2030_MS + 1) == 0


class TestRefusals:
    @pytest.mark.parametrize(
        ("phrase", "hint", "nearest"),
        [
            ("evry 5 minuts", "not understood", "every 5 minutes"),
            ("every 5m", "not understood", "every 5 minutes"),
            ("every 0 minutes", "from 1 second", None),
            ("every 999999999999 weeks", "to 100 years", None),
            ("every 1.5 hours", "not understood", None),
            ("every minutes", "the number of minutes is missing", "every minute"),
            ("daily at 8", "needs minutes, am or pm", "daily at 08:00"),
            ("daily at 24:00", "not a time of day", "daily at 08:00"),
            ("daily at 13pm", "not a time of day", None),
            ("daily at 0am", "not a time of day", None),
            ("daily at 08:60", "not a time of day", "daily at 08:00"),
            ("dayly at 08:00", "not understood", "daily at 08:00"),
            ("weekly at 09:00", "the day is missing", "weekly on mon 09:00"),
            ("weekly on mnday 09:00", "not understood", "weekly on mon 09:00"),
            ("every month", "the day is missing", "monthly on 1 at 00:00"),
            ("monthly at 09:00", "the day is missing", None),
            ("monthly on 31 at 09:00", "not every month has a day 31", "monthly on last day at 09:00"),
            ("monthly on the 30th", "not every month has a day 30", "monthly on last day"),
            ("monthly on 0", "no month has a day 0", None),
            ("monthly on 32", "no month has a day 32", None),
            ("0 8 * * *", "not understood", None),
            ("", "not understood", None),
        ],
    )
    def test_ambiguous_phrase_is_refused_with_a_hint(self, phrase: str, hint: str, nearest: str | None) -> None:
        with pytest.raises(InvalidInput) as refused:
            read_interval(phrase)
        (flaw,) = refused.value.flaws
        assert (flaw.pointer, flaw.value, flaw.allowed) == ("/interval", phrase, list(ALLOWED))
        assert hint in flaw.detail
        assert nearest is None or flaw.nearest == nearest

    def test_long_phrase_is_refused_and_not_repeated(self) -> None:
        with pytest.raises(InvalidInput) as refused:
            read_interval("every 15 minutes" + " and then some" * 1000)
        assert len(refused.value.flaws[0].value) <= 60

    @pytest.mark.slow
    @pytest.mark.parametrize("phrase", ALLOWED)
    def test_every_allowed_phrase_is_parsed(self, phrase: str) -> None:
        assert fires(read_interval(phrase)) if "second" not in phrase else read_interval(phrase).every_sec == 30

    @pytest.mark.slow
    @given(st.text())
    @example("every ５ minutes")
    @example("monthly on ١")
    def test_any_text_is_parsed_or_refused(self, text: str) -> None:
        refused_or_valid(text)

    @pytest.mark.slow
    @given(st.lists(st.sampled_from(WORDS), max_size=9))
    def test_any_order_of_known_words_is_refused_or_makes_a_valid_job(self, words: list[str]) -> None:
        refused_or_valid(" ".join(words))


def refused_or_valid(text: str) -> None:
    try:
        timing = read_interval(text)
    except InvalidInput as refused:
        assert [flaw.pointer for flaw in refused.flaws] == ["/interval"]
    else:
        assert rule_of(job_of(timing), YEAR_2030_MS).next_after(YEAR_2030_MS) is not None
