"""What the notes of handlers say."""

from pathlib import Path

import pytest
from bench.peers.calls import Call, judge_calls, judge_outage, read_calls

from bench import BenchFailed


def test_notes_of_several_processes_are_read_in_the_order_of_time(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1 300\n2 100\n")
    (tmp_path / "b").write_text("1 400 end\n3 2")  # its process was killed in the middle of a line
    paths = [tmp_path / name for name in ("a", "b", "missing")]
    assert read_calls(paths) == [Call(2, 100), Call(1, 300), Call(1, 400, is_end=True)]


def test_a_line_that_is_no_note_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1 300\nhello\n")
    with pytest.raises(BenchFailed, match=r"has the line 'hello': expected `NUMBER MICROSECONDS`"):
        read_calls([tmp_path / "a"])


def test_lost_duplicated_and_early_calls_are_counted() -> None:
    calls = [Call(10, 999_000), Call(11, 1_002_000), Call(11, 1_004_000), Call(5, 1)]
    verdict = judge_calls(calls, lambda _: 1_000, range(10, 14), recorded=3)
    assert (verdict.lost, verdict.duplicated, verdict.early) == (2, 1, 1)
    assert verdict.lateness_ms.max == 4
    assert verdict.lateness_ms.p50 == 2


def test_a_job_that_is_not_recorded_is_lost_although_its_handler_was_called() -> None:
    calls = [Call(number, 2_000_000) for number in range(3)]
    assert judge_calls(calls, lambda _: 1_000, range(3), recorded=1).lost == 2


def test_a_kill_is_judged_by_what_ended_and_what_was_started_again() -> None:
    calls = [
        Call(0, 1_000_000),
        Call(0, 1_500_000, is_end=True),
        Call(1, 2_000_000),  # interrupted by the kill, and run again
        Call(1, 9_000_000),
        Call(1, 9_500_000, is_end=True),
        Call(2, 7_000_000),  # due after the kill, and late
        Call(2, 7_500_000, is_end=True),
        Call(3, 4_000_000),
        Call(3, 4_500_000, is_end=True),
        Call(3, 4_600_000, is_end=True),
        Call(4, 2_100_000),  # interrupted, and lost
    ]
    due_ms = [1_000, 2_000, 3_000, 4_000, 2_100]
    found = judge_outage(calls, due_ms.__getitem__, range(5), killed_us=2_500_000)
    assert (found.lost, found.duplicated, found.early) == (1, 1, 0)
    assert (found.again, found.again_sec) == (1, 6.5)
    assert found.flows_sec == 4


def test_nothing_flows_if_a_job_that_was_due_after_the_kill_never_starts() -> None:
    assert judge_outage([Call(0, 5_000_000)], lambda _: 3_000, range(2), killed_us=2_500_000).flows_sec is None
