from bisect import bisect_left
from datetime import UTC, date, datetime, timedelta
from importlib.resources import files
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noonday.model import offset_changes
from noonday.model.cron_parsing import parse
from noonday.model.errors import InvalidInput
from noonday.model.offset_changes import Gap, Repeat
from noonday.model.schedule import CronRule, DstMark, IntervalRule, Occurrence, OnceRule, Rule, describe
from noonday.model.zones import local_text, tzdata_version, zone

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SECOND, MINUTE, HOUR, DAY = 1000, 60_000, 3_600_000, 86_400_000
NEW_YORK = "America/New_York"
ALL_ZONES = sorted(files("tzdata").joinpath("zones").read_text("ascii").split())


def ms(text: str) -> int:
    return (datetime.fromisoformat(text) - EPOCH) // timedelta(milliseconds=1)


def locals_between(rule: CronRule, start: str, end: str) -> list[str]:
    """Every occurrence in `start < t <= end`, as `03-08T03:30-04:00`."""
    times = between(rule, ms(start), ms(end))
    return [local_text(at, rule.timezone)[5:].replace(":00-", "-").replace(":00+", "+") for at in times]


def between(rule: Rule, after_ms: int, until_ms: int) -> list[int]:
    found = []
    at = rule.next_after(after_ms)
    while at is not None and at <= until_ms:
        found.append(at)
        at = rule.next_after(at)
    return found


class TestMovingClocks:
    @pytest.mark.parametrize(
        ("expression", "expected"),
        [
            ("30 2 * * *", ["03-08T03:30-04:00"]),
            ("0 2 * * *", ["03-08T03:00-04:00"]),
            ("0 */2 * * *", ["03-08T00:00-05:00", "03-08T04:00-04:00"]),
            ("*/30 1-3 * * *", ["03-08T01:00-05:00", "03-08T01:30-05:00", "03-08T03:00-04:00", "03-08T03:30-04:00"]),
            ("30 2,3 * * *", ["03-08T03:30-04:00"]),
            ("0,30 2-3 * * *", ["03-08T03:00-04:00", "03-08T03:30-04:00"]),
            ("30 1 * * *", ["03-08T01:30-05:00"]),
        ],
    )
    def test_in_the_gap_fixed_times_shift_and_others_follow_real_time(
        self, expression: str, expected: list[str]
    ) -> None:
        rule = CronRule(expression, NEW_YORK)
        assert locals_between(rule, "2026-03-07T23:59:00-05:00", "2026-03-08T05:59:00-04:00") == expected

    @pytest.mark.parametrize(
        ("expression", "expected"),
        [
            ("30 1 * * *", ["11-01T01:30-04:00"]),
            ("0,30 1 * * *", ["11-01T01:00-04:00", "11-01T01:30-04:00"]),
            ("*/30 1 * * *", ["11-01T01:00-04:00", "11-01T01:30-04:00", "11-01T01:00-05:00", "11-01T01:30-05:00"]),
            ("0 * * * *", ["11-01T00:00-04:00", "11-01T01:00-04:00", "11-01T01:00-05:00", "11-01T02:00-05:00"]),
            ("0 0-2 * * *", ["11-01T00:00-04:00", "11-01T01:00-04:00", "11-01T02:00-05:00"]),
        ],
    )
    def test_in_the_repeat_fixed_times_fire_first_and_others_follow_real_time(
        self, expression: str, expected: list[str]
    ) -> None:
        rule = CronRule(expression, NEW_YORK)
        assert locals_between(rule, "2026-10-31T23:59:00-04:00", "2026-11-01T02:59:00-05:00") == expected

    def test_day_of_month_and_weekday_are_alternatives(self) -> None:
        found = locals_between(
            CronRule("0 0 1 * 1", NEW_YORK), "2026-06-30T00:00:01-04:00", "2026-07-08T00:00:00-04:00"
        )
        assert found == ["07-01T00:00-04:00", "07-06T00:00-04:00"]

    @pytest.mark.parametrize(
        ("gap", "expected"),
        [
            (Gap.SHIFT, ["03-07T02:30-05:00", "03-08T03:30-04:00", "03-09T02:30-04:00"]),
            (Gap.FIRST, ["03-07T02:30-05:00", "03-08T03:00-04:00", "03-09T02:30-04:00"]),
            (Gap.SKIP, ["03-07T02:30-05:00", "03-09T02:30-04:00"]),
        ],
    )
    def test_a_job_chooses_what_a_gap_does(self, gap: Gap, expected: list[str]) -> None:
        rule = CronRule("30 2 * * *", NEW_YORK, gap=gap)
        assert locals_between(rule, "2026-03-07T00:00:00-05:00", "2026-03-10T00:00:00-04:00") == expected

    @pytest.mark.parametrize(
        ("repeat", "expected"),
        [
            (Repeat.FIRST, ["11-01T01:00-04:00", "11-01T01:30-04:00"]),
            (Repeat.SECOND, ["11-01T01:00-05:00", "11-01T01:30-05:00"]),
            (
                Repeat.BOTH,
                ["11-01T01:00-04:00", "11-01T01:30-04:00", "11-01T01:00-05:00", "11-01T01:30-05:00"],
            ),
        ],
    )
    def test_a_job_chooses_what_a_repeat_does(self, repeat: Repeat, expected: list[str]) -> None:
        rule = CronRule("0,30 1 * * *", NEW_YORK, repeat=repeat)
        assert locals_between(rule, "2026-11-01T00:00:00-04:00", "2026-11-02T00:00:00-05:00") == expected

    def test_several_times_of_one_gap_fire_once_at_its_end_if_so_chosen(self) -> None:
        rule = CronRule("0,10,50 2,3 * * *", NEW_YORK, gap=Gap.FIRST)
        found = locals_between(rule, "2026-03-08T00:00:00-05:00", "2026-03-09T00:00:00-04:00")
        assert found == ["03-08T03:00-04:00", "03-08T03:10-04:00", "03-08T03:50-04:00"]

    @pytest.mark.parametrize("choice", [{"gap": Gap.SKIP}, {"gap": Gap.FIRST}, {"repeat": Repeat.SECOND}])
    def test_the_choices_do_not_touch_jobs_that_follow_real_time(self, choice: dict[str, Gap | Repeat]) -> None:
        plain, chosen = CronRule("*/20 * * * *", NEW_YORK), CronRule("*/20 * * * *", NEW_YORK, **choice)  # type: ignore[arg-type]
        for day in ("2026-03-08T00:00:00-05:00", "2026-11-01T00:00:00-04:00"):
            assert chosen.take(ms(day), 20) == plain.take(ms(day), 20)

    @pytest.mark.parametrize(
        ("rule", "start", "end", "expected"),
        [
            pytest.param(
                CronRule("15,30 2 * * *", "Australia/Lord_Howe"),
                "2026-10-04T00:00:00+10:30",
                "2026-10-05T00:00:00+11:00",
                ["10-04T02:30+11:00", "10-04T02:45+11:00"],
                id="a gap of half an hour, after which a shifted time is overtaken",
            ),
            pytest.param(
                CronRule("45 1 * * *", "Australia/Lord_Howe", repeat=Repeat.BOTH),
                "2026-04-05T00:00:00+11:00",
                "2026-04-06T00:00:00+10:30",
                ["04-05T01:45+11:00", "04-05T01:45+10:30"],
                id="a repeat of half an hour",
            ),
            pytest.param(
                CronRule("30 10 * * *", "Pacific/Apia"),
                "2011-12-29T00:00:00-10:00",
                "2012-01-01T00:00:00+14:00",
                ["12-29T10:30-10:00", "12-31T10:30+14:00"],
                id="a whole day was skipped: the shifted time is that of the next day",
            ),
            pytest.param(
                CronRule("30 10 * * *", "Pacific/Apia", gap=Gap.FIRST),
                "2011-12-29T00:00:00-10:00",
                "2012-01-01T00:00:00+14:00",
                ["12-29T10:30-10:00", "12-31T00:00+14:00", "12-31T10:30+14:00"],
                id="a whole day was skipped: its time fires when the day after begins",
            ),
            pytest.param(
                CronRule("0 12 30 12 *", "Pacific/Apia"),
                "2011-01-01T00:00:00-10:00",
                "2012-12-31T00:00:00+14:00",
                ["12-31T12:00+14:00", "12-30T12:00+14:00"],
                id="a date that did not exist",
            ),
            pytest.param(
                CronRule("0 0 * * *", "America/Sao_Paulo"),
                "2018-11-03T12:00:00-03:00",
                "2018-11-05T12:00:00-02:00",
                ["11-04T01:00-02:00", "11-05T00:00-02:00"],
                id="a day without midnight",
            ),
            pytest.param(
                CronRule("30 23 * * *", "America/Sao_Paulo"),
                "2018-02-17T12:00:00-02:00",
                "2018-02-18T23:59:00-03:00",
                ["02-17T23:30-02:00", "02-18T23:30-03:00"],
                id="an evening shown twice",
            ),
            pytest.param(
                CronRule("30 0 * * *", "Africa/Cairo"),
                "2026-04-23T12:00:00+02:00",
                "2026-04-25T12:00:00+03:00",
                ["04-24T01:30+03:00", "04-25T00:30+03:00"],
                id="a gap at midnight",
            ),
            pytest.param(
                CronRule("30 23 * * *", "America/Nuuk"),
                "2026-03-28T12:00:00-02:00",
                "2026-03-29T23:59:00-01:00",
                ["03-29T00:30-01:00", "03-29T23:30-01:00"],
                id="a gap that ends at midnight",
            ),
            pytest.param(
                CronRule("0,5 23 * * *", "America/Santiago", repeat=Repeat.SECOND),
                "1973-03-10T12:00:00-03:00",
                "1973-03-11T12:00:00-04:00",
                ["03-10T23:00-04:00", "03-10T23:05-04:00"],
                id="a repeat that reaches over the edge of a computed year",
            ),
            pytest.param(
                CronRule("30 0 * * *", "America/Recife"),
                "2000-10-07T12:00:00-03:00",
                "2000-10-09T12:00:00-02:00",
                ["10-08T01:30-02:00", "10-09T00:30-02:00"],
                id="a summer of one week",
            ),
            pytest.param(
                CronRule("45 5 * * *", "Asia/Kathmandu"),
                "2026-01-01T00:00:00+05:45",
                "2026-01-02T00:00:00+05:45",
                ["01-01T05:45+05:45"],
                id="an odd offset",
            ),
            pytest.param(
                CronRule("*/15 * * * *", "Asia/Kathmandu"),
                "1985-12-31T23:40:00+05:30",
                "1986-01-01T00:35:00+05:45",
                ["12-31T23:45+05:30", "01-01T00:15+05:45", "01-01T00:30+05:45"],
                id="a gap of a quarter of an hour",
            ),
        ],
    )
    def test_zones_with_odd_habits(self, rule: CronRule, start: str, end: str, expected: list[str]) -> None:
        assert locals_between(rule, start, end) == expected

    @pytest.mark.parametrize(
        ("expression", "after", "expected"),
        [
            ("30 2 * * *", "2026-03-08T03:00:00-04:00", "2026-03-08T03:30:00-04:00"),
            ("30 2 * * *", "2026-03-08T03:29:59.999-04:00", "2026-03-08T03:30:00-04:00"),
            ("30 2 * * *", "2026-03-08T03:30:00-04:00", "2026-03-09T02:30:00-04:00"),
            ("30 1 * * *", "2026-11-01T01:29:59-04:00", "2026-11-01T01:30:00-04:00"),
            ("30 1 * * *", "2026-11-01T01:30:00-04:00", "2026-11-02T01:30:00-05:00"),
            ("30 1 * * *", "2026-11-01T01:00:00-05:00", "2026-11-02T01:30:00-05:00"),
            ("*/30 * * * *", "2026-11-01T01:30:00-04:00", "2026-11-01T01:00:00-05:00"),
        ],
    )
    def test_the_next_time_is_right_when_asked_amid_a_change(self, expression: str, after: str, expected: str) -> None:
        found = CronRule(expression, NEW_YORK).next_after(ms(after))
        assert found is not None
        assert local_text(found, NEW_YORK) == expected


class TestCron:
    def test_the_start_and_the_end_are_included(self) -> None:
        rule = CronRule("0 * * * *", start_ms=ms("2026-01-01T03:00:00Z"), end_ms=ms("2026-01-01T05:00:00Z"))
        times = [ms(f"2026-01-01T0{hour}:00:00Z") for hour in (3, 4, 5)]
        assert rule.take(ms("2020-01-01T00:00:00Z"), 9) == times
        assert rule.count(0, ms("2030-01-01T00:00:00Z")) == 3
        assert rule.last_until(ms("2030-01-01T00:00:00Z"), 0) == times[-1]
        assert rule.last_until(times[0] - 1, 0) is None

    def test_milliseconds_of_the_bounds_count(self) -> None:
        rule = CronRule("* * * * * *", start_ms=1, end_ms=1999)
        assert rule.take(-HOUR, 5) == [1000]
        assert rule.count(-HOUR, HOUR) == 1

    def test_an_instant_is_after_itself_only_by_a_millisecond(self) -> None:
        rule, noon = CronRule("0 12 * * *"), ms("2026-01-01T12:00:00Z")
        assert rule.next_after(noon - 1) == noon
        assert rule.next_after(noon) == noon + DAY
        assert rule.last_until(noon, noon - 1) == noon
        assert rule.last_until(noon, noon) is None
        assert (rule.count(noon - 1, noon), rule.count(noon, noon + DAY - 1)) == (1, 0)

    def test_each_second_of_ten_years_is_counted_at_once(self) -> None:
        after, until = ms("2020-01-01T00:00:00Z"), ms("2030-01-01T00:00:00Z")
        assert CronRule("* * * * * *", NEW_YORK).count(after, until) == (until - after) // SECOND

    def test_working_minutes_of_ten_years_are_counted_at_once(self) -> None:
        rule = CronRule("* 9-16 * * MON-FRI", "Europe/Berlin")
        after, until = ms("2020-01-01T00:00:00Z"), ms("2030-01-01T00:00:00Z")
        days = [(EPOCH + timedelta(milliseconds=at)).weekday() for at in range(after, until, DAY)]
        assert rule.count(after, until) == sum(day < 5 for day in days) * 8 * 60

    def test_times_before_1970_are_fine(self) -> None:
        assert CronRule("0 0 1 1 *").next_after(ms("1950-06-01T00:00:00Z")) == ms("1951-01-01T00:00:00Z")

    @pytest.mark.parametrize("after", [ms("9995-01-01T00:00:00Z"), 10**18])
    def test_nothing_comes_after_the_end_of_the_calendar(self, after: int) -> None:
        assert CronRule("* * * * *", NEW_YORK).next_after(after) is None
        assert CronRule("0 0 29 2 *", NEW_YORK).next_after(after) is None

    def test_a_count_from_the_beginning_of_time_ends(self) -> None:
        assert CronRule("0 0 1 1 *").count(-(10**18), ms("1970-01-01T00:00:00Z")) >= 70

    @pytest.mark.slow
    @pytest.mark.parametrize(
        "expression", ["30 2 29 2 */7", "0 0 29 2 *", "15 12 31 */7 *", "0 0 * 2 MON#5", "0 3 1 1 */7"]
    )
    @pytest.mark.parametrize("timezone", [NEW_YORK, "Pacific/Apia", "UTC"])
    def test_rare_times_are_those_that_a_calendar_has(self, expression: str, timezone: str) -> None:
        rule, cron = CronRule(expression, timezone), parse(expression)
        time_of_day = cron.next_from(0) or 0
        first, last = date(1990, 1, 1).toordinal(), date(2300, 1, 1).toordinal()
        walls = [datetime.fromordinal(day) + timedelta(seconds=time_of_day % 86_400) for day in range(first, last)]
        naive = [wall for wall in walls if cron.matches((wall.replace(tzinfo=UTC) - EPOCH) // timedelta(seconds=1))]
        expected = [(wall.replace(tzinfo=zone(timezone)) - EPOCH) // timedelta(milliseconds=1) for wall in naive]
        start, end = expected[0] - 1, expected[-1]
        assert rule.take(start, 10_000, end) == expected
        assert rule.count(start, end) == len(expected)
        assert rule.last_until(end, start) == expected[-1]

    @pytest.mark.slow
    def test_a_rare_time_is_found_without_looking_at_the_years_between(self) -> None:
        offset_changes.real_stretches.cache_clear()
        offset_changes.fixed_block.cache_clear()
        found = CronRule("30 2 29 2 */7", "Europe/Berlin").take(ms("2026-01-01T00:00:00Z"), 100)
        assert len(found) == 100
        assert offset_changes.real_stretches.cache_info().misses <= 2 * len(found)

    def test_a_time_that_clock_changes_always_skip_is_given_up_soon(self) -> None:
        offset_changes.real_stretches.cache_clear()
        offset_changes.fixed_block.cache_clear()
        rule = CronRule("30 2 * 3 0L", "Europe/Berlin", gap=Gap.SKIP)
        assert rule.next_after(ms("2026-01-01T00:00:00Z")) is None
        assert offset_changes.real_stretches.cache_info().misses <= 15

    def test_a_look_ahead_stops_when_it_may_not_go_on(self) -> None:
        steps = iter([True, True, True, False])
        found = CronRule("* * * * *").take_while(0, 10, None, lambda: next(steps))
        assert found == ([60_000, 120_000, 180_000], True)

    def test_look_ahead_that_found_all_times_is_complete(self) -> None:
        assert CronRule("* * * * *").take_while(0, 10, 120_000, lambda: True) == ([60_000, 120_000], False)
        assert CronRule("* * * * *").take_while(0, 1, None, lambda: True) == ([60_000], False)

    def test_a_rare_date_is_found_decades_ahead(self) -> None:
        rule = CronRule("0 0 * 2 MON#5", NEW_YORK)
        assert rule.next_after(ms("2017-01-01T00:00:00Z")) == ms("2044-02-29T00:00:00-05:00")
        assert rule.last_until(ms("2044-01-01T00:00:00Z"), 0) == ms("2016-02-29T00:00:00-05:00")

    @pytest.mark.parametrize(
        ("rule", "pointer"), [(CronRule("0 25 * * *"), "/schedule"), (CronRule("* * * * *", "Mars"), "/timezone")]
    )
    def test_a_bad_rule_is_refused_when_asked(self, rule: CronRule, pointer: str) -> None:
        with pytest.raises(InvalidInput) as caught:
            rule.next_after(0)
        assert caught.value.flaws[0].pointer == pointer


class TestInterval:
    def test_times_are_multiples_from_the_epoch_plus_the_phase(self) -> None:
        assert IntervalRule(HOUR, 5 * MINUTE).take(ms("2026-01-01T00:05:00Z") - 1, 2) == [
            ms("2026-01-01T00:05:00Z"),
            ms("2026-01-01T01:05:00Z"),
        ]

    def test_a_phase_longer_than_the_interval_wraps(self) -> None:
        assert IntervalRule(10, 25).take(0, 2) == [5, 15]

    def test_the_start_and_the_end_are_included(self) -> None:
        assert IntervalRule(10, start_ms=20, end_ms=40).take(-100, 9) == [20, 30, 40]
        assert IntervalRule(10, start_ms=21, end_ms=39).take(-100, 9) == [30]
        assert IntervalRule(10, start_ms=21, end_ms=29).last_until(100, -100) is None

    def test_an_interval_of_nothing_is_refused(self) -> None:
        with pytest.raises(InvalidInput) as caught:
            IntervalRule(0)
        assert caught.value.flaws[0].pointer == "/everySec"

    @pytest.mark.slow
    @given(
        st.builds(
            IntervalRule,
            st.integers(1, 50),
            st.integers(-100, 100),
            st.none() | st.integers(-200, 200),
            st.none() | st.integers(-200, 200),
        ),
        st.integers(-300, 300),
        st.integers(-300, 300),
    )
    def test_every_answer_agrees_with_looking_at_each_millisecond(
        self, rule: IntervalRule, after: int, until: int
    ) -> None:
        low, high = (bound if bound is not None else at for bound, at in ((rule.start_ms, -301), (rule.end_ms, 301)))
        expected = [
            at for at in range(after + 1, until + 1) if low <= at <= high and (at - rule.phase_ms) % rule.every_ms == 0
        ]
        assert between(rule, after, until) == expected
        assert rule.count(after, until) == len(expected)
        assert rule.last_until(until, after) == (expected[-1] if expected else None)


class TestOnce:
    def test_a_single_instant_is_next_until_it_is_reached(self) -> None:
        rule = OnceRule(5)
        assert (rule.next_after(4), rule.next_after(5)) == (5, None)
        assert (rule.last_until(5, 4), rule.last_until(4, 0), rule.last_until(9, 5)) == (5, None, None)
        assert (rule.count(4, 5), rule.count(5, 9), rule.count(0, 4)) == (1, 0, 0)
        assert rule.take(0, 3) == [5]


class TestZones:
    def test_a_zone_is_found_by_its_name_and_kept(self) -> None:
        assert zone("Europe/Berlin").key == "Europe/Berlin"
        assert zone("Europe/Berlin") is zone("Europe/Berlin")

    @pytest.mark.parametrize(
        ("name", "meant"),
        [
            ("America/New York", "America/New_York"),
            ("europe/berlin", "Europe/Berlin"),
            ("EUROPE/BERLIN", "Europe/Berlin"),
            ("utc", "UTC"),
            ("New York", "America/New_York"),
            ("tokyo", "Asia/Tokyo"),
            ("Europe/Belrin", "Europe/Berlin"),
            ("Asia/Calcuta", "Asia/Calcutta"),
            ("Louisville", "America/Louisville"),
            ("PST", None),
            ("", None),
        ],
    )
    def test_an_unknown_name_comes_with_the_nearest_one(self, name: str, meant: str | None) -> None:
        with pytest.raises(InvalidInput) as caught:
            zone(name)
        (flaw,) = caught.value.flaws
        assert (flaw.pointer, flaw.value, flaw.nearest) == ("/timezone", name, meant)

    @pytest.mark.parametrize(
        "name",
        ["/etc/localtime", "../zoneinfo/UTC", "America", "America/", "Europe//Berlin", "localtime", "zone.tab", "a\0b"],
    )
    def test_path_that_is_no_zone_is_refused(self, name: str) -> None:
        with pytest.raises(InvalidInput):
            zone(name)

    def test_a_name_without_end_is_not_repeated(self) -> None:
        with pytest.raises(InvalidInput) as caught:
            zone("Europe/" * 10_000)
        assert len(caught.value.detail) < 200

    @pytest.mark.slow
    def test_every_listed_zone_can_be_read(self) -> None:
        assert [name for name in ALL_ZONES if zone(name).utcoffset(datetime(2026, 1, 1, tzinfo=UTC)) is None] == []

    def test_the_version_of_the_zone_data_is_that_of_its_own_header(self) -> None:
        header = files("tzdata").joinpath("zoneinfo", "tzdata.zi").read_text("utf-8").splitlines()[0]
        assert header == f"# version {tzdata_version()}"


class TestDescription:
    @pytest.mark.parametrize(
        ("expression", "at", "mark"),
        [
            ("30 2 * * *", "2026-03-08T03:30:00-04:00", DstMark.GAP_SHIFTED),
            ("30 2,3 * * *", "2026-03-08T03:30:00-04:00", None),
            ("*/30 * * * *", "2026-03-08T03:30:00-04:00", None),
            ("30 1 * * *", "2026-11-01T01:30:00-04:00", DstMark.REPEATED_FIRST),
            ("*/30 * * * *", "2026-11-01T01:30:00-05:00", DstMark.REPEATED_SECOND),
            ("*/30 * * * *", "2026-11-01T02:00:00-05:00", None),
            ("*/30 * * * *", "2026-11-01T00:30:00-04:00", None),
            ("30 1 * * *", "2026-06-01T01:30:00-04:00", None),
        ],
    )
    def test_occurrence_is_marked_with_the_clock_change_that_moved_it(
        self, expression: str, at: str, mark: DstMark | None
    ) -> None:
        rule = CronRule(expression, NEW_YORK)
        assert rule.next_after(ms(at) - 1) == ms(at)
        assert describe(ms(at), rule).dst == mark

    def test_a_time_moved_to_the_end_of_the_gap_is_marked_too(self) -> None:
        rule = CronRule("30 2 * * *", NEW_YORK, gap=Gap.FIRST)
        assert describe(ms("2026-03-08T03:00:00-04:00"), rule).dst == DstMark.GAP_SHIFTED

    def test_an_occurrence_is_given_in_utc_and_in_the_zone(self) -> None:
        at = ms("2026-03-08T07:30:00Z")
        assert describe(at, CronRule("30 2 * * *", NEW_YORK)) == Occurrence(
            at, "2026-03-08T07:30:00Z", "2026-03-08T03:30:00-04:00", DstMark.GAP_SHIFTED
        )

    @pytest.mark.parametrize("rule", [IntervalRule(500), OnceRule(1500)])
    def test_rules_without_a_zone_are_described_in_utc(self, rule: Rule) -> None:
        assert describe(1500, rule) == Occurrence(1500, "1970-01-01T00:00:01.500Z", "1970-01-01T00:00:01.500Z", None)


RESTLESS = [
    NEW_YORK,
    "Europe/London",
    "Europe/Dublin",
    "Europe/Chisinau",
    "Australia/Lord_Howe",
    "Pacific/Apia",
    "Pacific/Kwajalein",
    "Pacific/Chatham",
    "America/Sao_Paulo",
    "America/St_Johns",
    "America/Nuuk",
    "America/Caracas",
    "Africa/Cairo",
    "Africa/Casablanca",
    "Antarctica/Casey",
    "Antarctica/Troll",
    "Asia/Gaza",
    "Asia/Pyongyang",
    "Asia/Tehran",
]
MINUTES = ["0", "30", "15,45", "10-50/20", "*/20", "0-59/5", "*", "0/15", "59"]
HOURS = ["0", "1", "2", "2,3", "1-3", "23", "22-23", "*/2", "*", "0-23", "1/2", "10", "0,12"]
DAYS = ["* * *", "* * *", "* * MON-SAT", "1,15,L * *", "* 3,10-11 *", "25-31 * SUN", "*/2 * *", "* * SUN#1,7L"]


@st.composite
def rules(draw: st.DrawFn) -> CronRule:
    seconds = draw(st.sampled_from(["", "", "0 ", "30 ", "0,45 "]))
    times = f"{seconds}{draw(st.sampled_from(MINUTES))} {draw(st.sampled_from(HOURS))}"
    return CronRule(
        f"{times} {draw(st.sampled_from(DAYS))}",
        draw(st.sampled_from(RESTLESS) | st.sampled_from(ALL_ZONES)),
        draw(st.sampled_from(Gap)),
        draw(st.sampled_from(Repeat)),
    )


@st.composite
def spans(draw: st.DrawFn, timezone: str) -> tuple[int, int]:
    """A day or two, around a clock change of the zone if that year has one."""
    year = draw(st.integers(1968, 2060))
    start, end = ms(f"{year}-01-01T00:00:00Z"), ms(f"{year + 1}-01-01T00:00:00Z")
    moments = changes(zone(timezone), start // SECOND, end // SECOND)
    middle = draw(st.sampled_from(moments)) * SECOND if moments else draw(st.integers(start, end))
    before = draw(st.sampled_from([0, 1, HOUR, 30 * MINUTE + 1, 90 * MINUTE]) | st.integers(0, DAY))
    return middle - before, middle + draw(st.sampled_from([0, HOUR, 26 * HOUR]) | st.integers(0, 2 * DAY))


def changes(where: ZoneInfo, start_s: int, end_s: int) -> list[int]:
    found = []
    for low, high in pairwise(range(start_s, end_s, 86_400)):
        old = offset(where, low)
        if offset(where, high) != old:
            found.append(low + bisect_left(range(low, high), True, key=lambda at: offset(where, at) != old))
    return found


def offset(where: ZoneInfo, at_s: int) -> timedelta | None:
    return (EPOCH + timedelta(seconds=at_s)).astimezone(where).utcoffset()


def by_the_book(rule: CronRule, after_ms: int, until_ms: int) -> list[int]:
    """Each wall time that matches, one by one, converted to instants as the rule defines."""
    cron, where = parse(rule.expression), zone(rule.timezone)
    # The widest gap in history is a day, and wall time is at most 14 hours ahead of UTC, or 12 behind it.
    reach_s = 38 * 3600 if rule.timezone.startswith("Pacific/") or "Kwajalein" in rule.timezone else 16 * 3600
    found: set[int] = set()
    local_s = cron.next_from(after_ms // SECOND - reach_s)
    while local_s is not None and local_s <= until_ms // SECOND + reach_s:
        found.update(instants_of(local_s, where, rule if cron.is_fixed else None))
        local_s = cron.next_from(local_s + 1)
    return sorted(at * SECOND for at in found if after_ms < at * SECOND <= until_ms)


def instants_of(local_s: int, where: ZoneInfo, fixed: CronRule | None) -> list[int]:
    wall = (EPOCH + timedelta(seconds=local_s)).replace(tzinfo=where)
    early, late = (wall.replace(fold=fold).astimezone(UTC) for fold in (0, 1))
    passes = [
        (at - EPOCH) // timedelta(seconds=1) for at in (early, late) if at.astimezone(where).replace(fold=0) == wall
    ]
    if fixed is None or (passes and passes[0] == passes[-1]):
        return passes
    if passes:
        return {Repeat.FIRST: passes[:1], Repeat.SECOND: passes[1:], Repeat.BOTH: passes}[fixed.repeat]
    shifted_s, old_s = ((at - EPOCH) // timedelta(seconds=1) for at in (early, late))
    instead = {Gap.SHIFT: [shifted_s], Gap.FIRST: changes_between(where, old_s, shifted_s), Gap.SKIP: []}
    return instead[fixed.gap]


def changes_between(where: ZoneInfo, low: int, high: int) -> list[int]:
    old = offset(where, low)
    return [low + bisect_left(range(low, high + 1), True, key=lambda at: offset(where, at) != old)]


@st.composite
def cases(draw: st.DrawFn) -> tuple[CronRule, int, int]:
    rule = draw(rules())
    return rule, *draw(spans(rule.timezone))


@pytest.mark.slow
@settings(max_examples=400, deadline=None)
@given(cases())
def test_timeline_follows_the_rule_for_each_wall_time(case: tuple[CronRule, int, int]) -> None:
    rule, after, until = case
    assert between(rule, after, until) == by_the_book(rule, after, until)


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(cases())
def test_counting_and_looking_back_agree_with_visiting_each(case: tuple[CronRule, int, int]) -> None:
    rule, after, until = case
    visited = between(rule, after, until)
    assert visited == sorted(set(visited))
    assert rule.count(after, until) == len(visited)
    assert rule.last_until(until, after) == (visited[-1] if visited else None)
    backwards: list[int] = []
    while (found := rule.last_until(until, after)) is not None and len(backwards) < 50:
        backwards.append(found)
        until = found - 1
    assert backwards == visited[::-1][:50]


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(rules(), st.integers(1968, 2060), st.integers(1, 4000))
def test_counting_years_agrees_with_counting_their_parts(rule: CronRule, year: int, days: int) -> None:
    after = ms(f"{year}-01-01T00:00:00Z")
    cuts = range(after, after + days * DAY + 1, DAY * max(1, days // 7))
    assert rule.count(cuts[0], cuts[-1]) == sum(rule.count(low, high) for low, high in pairwise(cuts))


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(rules().filter(lambda rule: not parse(rule.expression).is_fixed), st.data())
def test_a_job_that_follows_real_time_fires_only_at_matching_wall_times(rule: CronRule, data: st.DataObject) -> None:
    after, until = data.draw(spans(rule.timezone))
    cron, where = parse(rule.expression), zone(rule.timezone)
    for at in between(rule, after, until):
        wall = (EPOCH + timedelta(milliseconds=at)).astimezone(where).replace(tzinfo=UTC)
        assert cron.matches((wall - EPOCH) // timedelta(seconds=1))


# Elsewhere a day was skipped or repeated, or a gap ends at midnight, so that its times move to the next day.
ORDINARY = [name for name in RESTLESS if name not in ("Pacific/Apia", "Pacific/Kwajalein", "America/Nuuk")]


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(ORDINARY),
    st.integers(1990, 2060),
    st.integers(0, 23),
    st.integers(0, 59),
    st.sampled_from([Gap.SHIFT, Gap.FIRST]),
    st.sampled_from([Repeat.FIRST, Repeat.SECOND]),
)
def test_a_daily_job_fires_exactly_once_each_local_day(
    timezone: str, year: int, hour: int, minute: int, gap: Gap, repeat: Repeat
) -> None:
    rule = CronRule(f"{minute} {hour} * * *", timezone, gap, repeat)
    times = between(rule, ms(f"{year}-01-01T00:00:00Z"), ms(f"{year + 1}-01-01T00:00:00Z"))
    fired = [datetime.fromisoformat(local_text(at, timezone)).date() for at in times]
    first, last = date(year, 1, 2), date(year, 12, 30)
    each = [first + timedelta(days=n) for n in range((last - first).days + 1)]
    assert [day for day in fired if first <= day <= last] == each
