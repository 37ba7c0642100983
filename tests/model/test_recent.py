from noonday.model.recent import WINDOW_SEC, Figures, Recent, overview_of

NOW_MS = 1_893_456_000_500


def test_runs_of_the_last_seconds_are_counted_and_older_ones_forgotten() -> None:
    recent = Recent().with_ended([0, 0, None], NOW_MS).with_ended([0], NOW_MS + 4_000)
    assert recent.figures(NOW_MS + 4_000).ended == 4
    assert recent.figures(NOW_MS + WINDOW_SEC * 1000).ended == 1


def test_figures_of_several_recorders_add_up() -> None:
    busy = Recent().with_ended([3] * 900 + [200] * 100, NOW_MS)
    idle = Recent().with_ended([3] * 10, NOW_MS)
    silent = Recent().with_ended([9_000] * 500, NOW_MS - 60_000)
    figures = [busy.figures(NOW_MS), idle.figures(NOW_MS), silent.figures(NOW_MS - 60_000)]
    seen = overview_of(figures, NOW_MS)
    assert seen["ratePerSec"] == 202.0
    assert seen["latenessMs"] == {"p50": 3, "p95": 196, "p99": 196}


def test_execution_that_did_not_begin_was_not_late() -> None:
    recent = Recent().with_ended([None, None], NOW_MS)
    assert recent.figures(NOW_MS) == Figures(NOW_MS, 2)
    assert overview_of([recent.figures(NOW_MS)], NOW_MS)["latenessMs"] == {"p50": None, "p95": None, "p99": None}


def test_overview_without_figures_is_empty() -> None:
    assert overview_of([], NOW_MS)["ratePerSec"] == 0


def test_discarded_value_is_not_counted() -> None:
    recent = Recent().with_ended([1], NOW_MS)
    for _ in range(6):
        recent.with_ended([1, 1], NOW_MS)
    assert recent.figures(NOW_MS).ended == 1
