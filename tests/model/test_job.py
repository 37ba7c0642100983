from datetime import UTC, datetime, timedelta, timezone

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from noonday.model.errors import Flaw, InvalidInput
from noonday.model.job import (
    RUN_AT_TOLERANCE_MS,
    CatchUp,
    CatchUpPolicy,
    Concurrency,
    Dst,
    JobSpec,
    JobType,
    Overlap,
    Target,
    anchor_of,
    check,
    instant_of,
    ms_of,
    rule_of,
    spread_ms,
    text_of,
)
from noonday.model.offset_changes import Gap, Repeat
from noonday.model.retry import RetryPolicy
from noonday.model.schedule import CronRule, IntervalRule, OnceRule
from tests.support.factories import DAY, HOUR, MINUTE, NOW_MS, every, instant, job_id, spec

CRON = {"type": JobType.CRON, "schedule": "0 9 * * *"}
NAIVE = datetime(2030, 1, 31, 9)  # noqa: DTZ001 - the very thing that is refused


def flaws_of(definition: JobSpec) -> list[Flaw]:
    try:
        check(definition, NOW_MS)
    except InvalidInput as bad:
        return list(bad.flaws)
    return []


# Valid definitions


@pytest.mark.parametrize(
    "definition",
    [
        spec(),
        spec(run_at=instant(NOW_MS + HOUR)),
        spec(run_at=instant(NOW_MS - RUN_AT_TOLERANCE_MS)),
        spec(run_at=datetime(2030, 1, 31, 9, tzinfo=timezone(timedelta(hours=-5)))),
        spec(type=JobType.DELAYED, delay_sec=0),
        spec(**CRON),
        spec(**CRON, timezone="Europe/Berlin", dst=Dst(Gap.SKIP, Repeat.BOTH)),
        spec(type=JobType.CRON, schedule="@hourly"),
        every(1),
        every(3600, phase_sec=59, start_at=instant(NOW_MS - DAY), end_at=instant(NOW_MS + DAY), max_runs=1),
        every(60, start_at=instant(NOW_MS), end_at=instant(NOW_MS)),
        every(60, catch_up=CatchUp(CatchUpPolicy.ALL, window_sec=10, while_paused=True)),
        spec(overlap=Overlap.BUFFER_ALL, concurrency=Concurrency("db", 1), tags=("a", "é", "漢字")),
        spec(concurrency=Concurrency("db", 1, ordered=True)),
        spec(name="n" * 200, unique_key="k" * 200, tags=tuple(f"t{n}" for n in range(50))),
        spec(target=Target("a", "Pool-1.x_y:z")),
        spec(start_deadline_sec=0, spread_sec=86_400, timeout_sec=0.001, heartbeat_timeout_sec=1),
        spec(retry_policy=RetryPolicy(max_attempts=1)),
    ],
)
def test_valid_definition_is_accepted(definition: JobSpec) -> None:
    assert flaws_of(definition) == []


@pytest.mark.parametrize(
    ("definition", "pointer", "value", "words"),
    [
        # Texts
        (spec(target=Target("", "load")), "/target/pool", "", "1 to 100 letters"),
        (spec(target=Target("etl", "a b")), "/target/handler", "a b", "beginning with a letter or digit"),
        (spec(target=Target("-etl", "load")), "/target/pool", "-etl", "beginning with a letter or digit"),
        (spec(target=Target("e" * 101, "load")), "/target/pool", "e" * 101, "1 to 100"),
        (spec(name=""), "/name", "", "1 to 200 characters"),
        (spec(name="a\nb"), "/name", "a\nb", "control characters"),
        (spec(name="nul\x00"), "/name", "nul\x00", "control characters"),
        (spec(unique_key="k" * 201), "/uniqueKey", "k" * 201, "1 to 200 characters"),
        (spec(tags=("fine", "")), "/tags/1", "", "1 to 200 characters"),
        (spec(tags=tuple(f"t{n}" for n in range(51))), "/tags", 51, "at most 50 tags"),
        (spec(concurrency=Concurrency("", 1)), "/concurrency/key", "", "1 to 200 characters"),
        (spec(concurrency=Concurrency("db", 0)), "/concurrency/limit", 0, "1 to 1000000"),
        (spec(concurrency=Concurrency("db", 1_000_001)), "/concurrency/limit", 1_000_001, "1 to 1000000"),
        (spec(concurrency=Concurrency("db", 2, ordered=True)), "/concurrency/limit", 2, "must be 1 with ordered"),
        # Fields of types
        (spec(type=JobType.DELAYED), "/delaySec", None, "DELAYED needs delaySec"),
        (spec(type=JobType.CRON), "/schedule", None, "CRON needs schedule"),
        (spec(type=JobType.INTERVAL), "/everySec", None, "INTERVAL needs everySec"),
        (spec(delay_sec=5), "/delaySec", 5, "does not go with type ONE_TIME, which takes runAt"),
        (spec(max_runs=5), "/maxRuns", 5, "does not go with type ONE_TIME"),
        (spec(catch_up=CatchUp(CatchUpPolicy.ALL)), "/catchUp", {"policy": "ALL"}, "does not go with type ONE_TIME"),
        (
            spec(type=JobType.DELAYED, delay_sec=1, end_at=instant(NOW_MS)),
            "/endAt",
            "2030-01-01T00:00:00Z",
            "takes delay",
        ),
        (every(60, timezone="UTC"), "/timezone", "UTC", "takes catchUp, endAt, everySec, maxRuns, phaseSec, startAt"),
        (every(60, run_at=instant(NOW_MS)), "/runAt", "2030-01-01T00:00:00Z", "does not go with type INTERVAL"),
        (spec(**CRON, phase_sec=5), "/phaseSec", 5, "does not go with type CRON"),
        (every(60, dst=Dst(Gap.SKIP)), "/dst", {"gap": "SKIP"}, "does not go with type INTERVAL"),
        # Times
        (spec(run_at=NAIVE), "/runAt", "2030-01-31T09:00:00", "needs an offset, such as 2030-01-31T09:00:00Z"),
        (spec(**CRON, start_at=NAIVE), "/startAt", "2030-01-31T09:00:00", "needs an offset"),
        (
            spec(run_at=instant(NOW_MS - RUN_AT_TOLERANCE_MS - 1000)),
            "/runAt",
            "2029-12-31T23:58:59+00:00",
            "more than 60 s in the past; the server's time is 2030-01-01T00:00:00.000Z",
        ),
        (spec(run_at=datetime(1970, 6, 1, tzinfo=UTC)), "/runAt", "1970-06-01T00:00:00+00:00", "1971 and 9000"),
        (spec(run_at=datetime(9500, 1, 1, tzinfo=UTC)), "/runAt", "9500-01-01T00:00:00+00:00", "1971 and 9000"),
        (
            every(60, start_at=instant(NOW_MS), end_at=instant(NOW_MS - 1000)),
            "/endAt",
            "2029-12-31T23:59:59+00:00",
            "before startAt",
        ),
        # Numbers
        (spec(type=JobType.DELAYED, delay_sec=-1), "/delaySec", -1, "must be at least 0 s and at most 100 years"),
        (every(0), "/everySec", 0, "must be at least 1 s and at most 100 years"),
        (every(0.5), "/everySec", 0.5, "at least 1 s"),
        (every(60, phase_sec=-1), "/phaseSec", -1, "must be at least 0 s and at most 100 years"),
        (every(60, max_runs=0), "/maxRuns", 0, "must be at least 1 and at most 1,000,000,000,000"),
        (every(60, catch_up=CatchUp(window_sec=9)), "/catchUp/windowSec", 9, "from 10 s to ten years"),
        (spec(start_deadline_sec=-1), "/startDeadlineSec", -1, "must be at least 0 s and at most 100 years"),
        (spec(spread_sec=86_401), "/spreadSec", 86_401, "at most 1 day"),
        (spec(timeout_sec=0), "/timeoutSec", 0, "must be at least 0.001 s and at most 30 days"),
        (spec(heartbeat_timeout_sec=0.5), "/heartbeatTimeoutSec", 0.5, "at least 1 s and at most 30 days"),
        (spec(retry_policy=RetryPolicy(max_attempts=0)), "/retryPolicy/maxAttempts", 0, "from 1 to 100"),
    ],
)
def test_flaw_names_the_pointer_the_value_and_the_remedy(
    definition: JobSpec, pointer: str, value: object, words: str
) -> None:
    (flaw,) = flaws_of(definition)
    assert flaw.pointer == pointer
    assert flaw.value == value
    assert words in flaw.detail


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
@pytest.mark.parametrize("field", ["timeout_sec", "start_deadline_sec", "spread_sec", "heartbeat_timeout_sec"])
def test_infinite_number_is_refused(field: str, number: float) -> None:
    assert len(flaws_of(spec(**{field: number}))) == 1


def test_flaw_of_a_schedule_names_the_field_and_its_range() -> None:
    (flaw,) = flaws_of(spec(type=JobType.CRON, schedule="61 * * * *"))
    assert flaw.pointer == "/schedule"
    assert "minute" in flaw.detail
    assert flaw.value
    assert flaw.allowed


def test_flaw_of_an_unknown_zone_names_the_nearest_one() -> None:
    (flaw,) = flaws_of(spec(**CRON, timezone="Europe/Berlim"))
    assert (flaw.pointer, flaw.value, flaw.nearest) == ("/timezone", "Europe/Berlim", "Europe/Berlin")
    assert "IANA" in flaw.allowed


def test_every_flaw_is_named_at_once() -> None:
    definition = spec(type=JobType.CRON, schedule="nonsense", timezone="Nowhere", name="", timeout_sec=-1, run_at=NAIVE)
    with pytest.raises(InvalidInput, match="values are not valid") as caught:
        check(definition, NOW_MS)
    pointers = {flaw.pointer for flaw in caught.value.flaws}
    assert pointers == {"/schedule", "/timezone", "/name", "/timeoutSec", "/runAt"}


def test_a_single_flaw_is_the_message() -> None:
    with pytest.raises(InvalidInput, match="a job of type CRON needs schedule"):
        check(spec(type=JobType.CRON), NOW_MS)


# On the wire


def test_spec_on_the_wire_has_only_the_given_fields() -> None:
    text = msgspec.json.encode(every(30, max_runs=2, catch_up=CatchUp(CatchUpPolicy.ALL)))
    assert msgspec.json.decode(text) == {
        "type": "INTERVAL",
        "target": {"pool": "etl", "handler": "load"},
        "everySec": 30,
        "maxRuns": 2,
        "catchUp": {"policy": "ALL"},
    }


def test_a_spec_survives_the_wire() -> None:
    definition = every(
        1.5,
        name="é",
        start_at=instant(NOW_MS),
        concurrency=Concurrency("db", 2),
        retry_policy=RetryPolicy(),
        tags=("a",),
    )
    assert msgspec.json.decode(msgspec.json.encode(definition), type=JobSpec) == definition


def test_an_unknown_field_is_refused() -> None:
    with pytest.raises(msgspec.ValidationError, match="runIt"):
        msgspec.json.decode(b'{"type": "CRON", "target": {"pool": "a", "handler": "b"}, "runIt": 1}', type=JobSpec)


# Instants


@pytest.mark.parametrize(
    ("definition", "expected"),
    [
        (spec(), NOW_MS),
        (spec(run_at=instant(NOW_MS + 5)), NOW_MS + 5),
        (spec(type=JobType.DELAYED, delay_sec=2.5), NOW_MS + 2500),
        (every(60), NOW_MS),
        (spec(**CRON), NOW_MS),
    ],
)
def test_the_instant_a_job_counts_from(definition: JobSpec, expected: int) -> None:
    assert anchor_of(definition, NOW_MS) == expected


def test_each_type_has_its_rule() -> None:
    start, end = instant(NOW_MS), instant(NOW_MS + HOUR)
    assert rule_of(spec(), 5) == OnceRule(5)
    assert rule_of(spec(type=JobType.DELAYED, delay_sec=1), 5) == OnceRule(5)
    assert rule_of(every(1.5, phase_sec=0.25, start_at=start, end_at=end), 0) == IntervalRule(
        1500, 250, NOW_MS, NOW_MS + HOUR
    )
    assert rule_of(spec(**CRON, timezone="Asia/Tokyo", dst=Dst(Gap.SKIP, Repeat.BOTH), start_at=start), 0) == CronRule(
        "0 9 * * *", "Asia/Tokyo", Gap.SKIP, Repeat.BOTH, NOW_MS, None
    )
    assert rule_of(spec(**CRON), 0) == CronRule("0 9 * * *", "UTC")


def test_without_spread_a_job_is_due_at_its_time() -> None:
    assert spread_ms(spec(), job_id()) == 0


def test_spread_is_the_same_for_every_occurrence_of_a_job_and_differs_between_jobs() -> None:
    definition = every(60, spread_sec=30)
    spreads = {spread_ms(definition, one) for one in [job_id() for _ in range(200)]}
    assert all(0 <= spread < 30_000 for spread in spreads)
    assert len(spreads) > 150
    assert min(spreads) < 3_000
    assert max(spreads) > 27_000


@pytest.mark.slow
@given(st.integers(0, 250_000_000_000_000))
def test_instants_survive_the_way_to_people_and_back(at_ms: int) -> None:
    assert ms_of(instant_of(at_ms)) == at_ms
    assert ms_of(datetime.fromisoformat(text_of(at_ms))) == at_ms


def test_absent_instant_stays_absent() -> None:
    assert ms_of(None) is None
    assert instant_of(None) is None


def test_an_instant_for_people() -> None:
    assert text_of(NOW_MS + 250) == "2030-01-01T00:00:00.250Z"
    assert instant_of(NOW_MS + MINUTE) == datetime(2030, 1, 1, 0, 1, tzinfo=UTC)
