"""Works request exactly the times that their jobs have."""

import pytest
from bench.works import AtRest, Burst, Crons, Stream, Waiting, Webhooks, Work

from noonday.model.job import anchor_of, check, rule_of

NOW_MS = 1_800_000_000_000
BEGIN_MS = NOW_MS + 4_321
WEEK_MS = 7 * 86_400_000

WORKS = [
    Burst(20),
    Waiting(20, seconds=3),
    Webhooks(20, seconds=3, url="http://127.0.0.1:9000/"),
    Stream(rate=3, seconds=7),
    Stream(rate=2000, seconds=0.1),
    Crons(7, every_sec=2, seconds=5),
    Crons(7, every_sec=2, seconds=5, bunched=True),
    Crons(7, every_sec=5, seconds=30, by_cron=True),
    Crons(3, every_sec=60, seconds=60, by_cron=True),
]


@pytest.mark.parametrize("work", WORKS, ids=repr)
def test_the_jobs_of_a_work_are_valid(work: Work) -> None:
    for place in range(work.jobs):
        check(work.spec(place, BEGIN_MS), NOW_MS, maker_of="webhooks")


@pytest.mark.parametrize("work", WORKS, ids=repr)
def test_a_job_fires_at_the_times_the_work_expects_and_at_no_other(work: Work) -> None:
    for place in range(work.jobs):
        assert planned(work, place) == list(work.times(place, BEGIN_MS))


def test_a_burst_is_due_at_one_instant() -> None:
    assert times_of(Burst(20)) == {BEGIN_MS}


def test_a_stream_is_spread_evenly() -> None:
    assert sorted(times_of(Stream(rate=4, seconds=1))) == [BEGIN_MS + after for after in (0, 250, 500, 750)]


def test_crons_are_spread_over_their_period() -> None:
    within = {time % 10_000 for time in times_of(Crons(5, every_sec=10, seconds=20))}
    assert within == {0, 2_000, 4_000, 6_000, 8_000}


def test_bunched_crons_share_their_instants() -> None:
    assert len(times_of(Crons(5, every_sec=10, seconds=20, bunched=True))) == 2


@pytest.mark.slow
@pytest.mark.parametrize("day", range(40))
def test_nothing_at_rest_is_due_within_a_week(day: int) -> None:
    now_ms, rest = NOW_MS + day * 86_400_000, AtRest(one_shots=3, crons=100)
    for place in range(rest.jobs):
        spec = rest.spec(place, now_ms)
        check(spec, now_ms)
        due_ms = rule_of(spec, anchor_of(spec, now_ms)).next_after(now_ms)
        assert due_ms is not None
        assert due_ms - now_ms > WEEK_MS


def planned(work: Work, place: int) -> list[int]:
    spec = work.spec(place, BEGIN_MS)
    rule, times = rule_of(spec, anchor_of(spec, NOW_MS)), []
    time = rule.next_after(NOW_MS)
    while time is not None:
        times.append(time)
        time = rule.next_after(time)
    return times


def times_of(work: Work) -> set[int]:
    return {time for place in range(work.jobs) for time in work.times(place, BEGIN_MS)}
