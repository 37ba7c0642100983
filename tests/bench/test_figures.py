"""Comparison of the observed runs with the requested ones."""

from bench.figures import (
    Figures,
    Lateness,
    change_percent,
    lateness,
    middle,
    tally,
    total,
    us_per_job,
    used_between,
)
from bench.report import is_flawless, of_rounds

DUE_MS = 1_000
DUE_NS = DUE_MS * 1_000_000
ASKED = {"a": DUE_MS, "b": DUE_MS}
SEEN = [("a", DUE_NS + 2_000_000), ("b", DUE_NS + 4_000_000)]


def test_execution_that_the_handler_saw_and_the_store_recorded_is_fired() -> None:
    seen = tally(ASKED, SEEN, ["a", "b"])
    assert (seen.fired, seen.lost, seen.duplicated, seen.early) == (2, 0, 0, 0)
    assert seen.lateness_ms == Lateness(p50=2, p95=4, p99=4, max=4)


def test_execution_that_the_store_has_not_recorded_is_lost() -> None:
    assert tally(ASKED, SEEN, ["a"]).lost == 1


def test_execution_that_the_handler_has_not_seen_is_lost_even_if_the_store_recorded_it() -> None:
    assert tally(ASKED, SEEN[:1], ["a", "b"]).lost == 1


def test_a_second_start_of_an_execution_is_a_duplicate() -> None:
    assert tally(ASKED, [*SEEN, SEEN[0]], ["a", "b"]).duplicated == 1


def test_start_without_a_request_is_a_duplicate() -> None:
    assert tally(ASKED, [*SEEN, ("c", DUE_NS)], ["a", "b"]).duplicated == 1


def test_record_without_a_request_is_a_duplicate() -> None:
    assert tally(ASKED, SEEN, ["a", "b", "c"]).duplicated == 1


def test_a_start_a_moment_before_its_time_is_early() -> None:
    seen = tally(ASKED, [("a", DUE_NS - 2_000_000), SEEN[1]], ["a", "b"])
    assert (seen.early, seen.earliest_ms) == (1, -2)
    assert tally(ASKED, [("a", DUE_NS - 1), SEEN[1]], ["a", "b"]).early == 1


def test_a_start_at_its_time_is_not_early() -> None:
    assert tally(ASKED, [("a", DUE_NS), SEEN[1]], ["a", "b"]).early == 0


def test_a_percentile_is_a_value_that_was_seen() -> None:
    assert lateness([float(value) for value in range(1, 201)]) == Lateness(p50=100, p95=190, p99=198, max=200)
    assert lateness([7.0]) == Lateness(p50=7, p95=7, p99=7, max=7)


def test_without_starts_there_is_no_lateness() -> None:
    assert lateness([]) == Lateness()


def test_figure_of_several_bursts_is_their_median_rate() -> None:
    rounds = [figures(recorded_per_s=rate) for rate in (3.0, 1.0, 2.0)]
    assert middle(rounds).recorded_per_s == 2


def test_figure_of_two_bursts_is_the_slower_one() -> None:
    assert middle([figures(recorded_per_s=1.0), figures(recorded_per_s=2.0)]).recorded_per_s == 1


def test_figure_of_several_streams_is_their_median_lateness() -> None:
    rounds = [figures(work="stream", lateness_ms=Lateness(p99=late)) for late in (9.0, 1.0, 5.0)]
    assert middle(rounds).lateness_ms.p99 == 5


def test_a_loss_in_any_round_shows_in_the_document() -> None:
    document = of_rounds(
        [figures(recorded_per_s=1.0, lost=1), figures(recorded_per_s=2.0), figures(recorded_per_s=3.0)]
    )
    assert document["recorded_per_s"] == 2
    assert document["lost"] == 1
    assert not is_flawless(document)


def test_change_is_reported_in_percent_of_the_former_value() -> None:
    assert change_percent(200.0, 190.0) == -5
    assert change_percent(None, 1.0) is None
    assert change_percent(0.0, 1.0) is None


def test_cpu_time_is_reported_by_process_and_per_job() -> None:
    used = used_between({"worker": 1.0, "gone": 5.0}, {"worker": 1.5, "new": 3.0})
    assert used == {"worker": 0.5}
    assert us_per_job(used, 1_000) == {"worker": 500}
    assert us_per_job(used, 0) == {"worker": 500_000}


def test_a_sum_of_which_a_part_is_unknown_is_unknown() -> None:
    assert total({"worker": 1.25, "api": 2.0}) == 3.2
    assert total({"worker": 1.25, "api": None}) is None
    assert total({}) is None


def figures(
    *, work: str = "burst", recorded_per_s: float = 1.0, lateness_ms: Lateness | None = None, lost: int = 0
) -> Figures:
    return Figures(
        work=work,
        mode="embedded",
        jobs=2,
        expected=2,
        fired=2 - lost,
        recorded_per_s=recorded_per_s,
        drain_sec=1.0,
        lateness_ms=lateness_ms or Lateness(),
        lost=lost,
        duplicated=0,
        early=0,
        earliest_ms=None,
        cpu_us_per_job=1.0,
        cpu_us_per_job_by={},
        create_cpu_us_per_job_by={},
        rss_mb=None,
        rss_peak_mb=None,
        rss_mb_by={},
        rss_peak_mb_by={},
        created_per_s=1.0,
        at_once=None,
        settings={},
    )
