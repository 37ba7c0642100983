"""Programs that speak the contract, and programs that do not."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from bench.engine import environment
from bench.machine import has_ended
from bench.peers.catalog import Peer
from bench.peers.program import Program, field, kill_trees
from bench.peers.repetition import Limits, Measured, Sizes, TooSlowToLoad, measure
from bench.peers.works import WORKS

from bench import ROOT, BenchFailed

FAKE = str(Path(__file__).with_name("fake_peer.py"))
LIMITS = Limits(jobs=20, at_rest=1_000, kill_wait_sec=30, idle_sec=0.2)

Start = Callable[[str], Program]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    programs: list[Program] = []

    def start_fake(fault: str) -> Program:
        command = [sys.executable, FAKE, fault]
        programs.append(Program("fake", command, ROOT, environment(), tmp_path / "stderr"))
        return programs[-1]

    yield start_fake
    for program in programs:
        program.kill()


@pytest.mark.slow
def test_a_program_answers_its_orders(start: Start, tmp_path: Path) -> None:
    program = start("")
    assert program.ask("prepare") == {"done": "prepare"}
    pids = program.ask("work", notes=str(tmp_path / "notes"), each=False)["pids"]
    assert pids["worker"] == [program.pid]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("dies", "fake ended with code 3 before it answered `work`: out of luck"),
        ("garbage", r"fake answered `work` with b'hello\\n', which is not a line of JSON"),
        ("shouts", "fake answered `work` with b'xxx.*', which is not a line of JSON"),
        ("wrong", "`done` must be 'work'"),
    ],
)
def test_a_program_that_breaks_the_contract_is_named_with_what_it_said(
    start: Start, tmp_path: Path, fault: str, message: str
) -> None:
    with pytest.raises(BenchFailed, match=message):
        start(fault).ask("work", notes=str(tmp_path / "notes"), each=False)


@pytest.mark.slow
def test_a_program_that_hangs_is_not_waited_for_longer_than_allowed(start: Start, tmp_path: Path) -> None:
    program = start("hangs")
    program.ask("prepare")
    with pytest.raises(BenchFailed, match=r"fake did not answer `work` within 0.2 s"):
        program.ask("work", 0.2, notes=str(tmp_path / "notes"), each=False)
    program.stop(0.2)
    assert has_ended(program.pid)


@pytest.mark.slow
def test_an_order_that_fails_says_why(start: Start) -> None:
    with pytest.raises(BenchFailed, match="fake failed `crons`: NotImplementedError"):
        start("").ask("crons", jobs=1)


@pytest.mark.slow
def test_a_killed_program_cannot_be_asked(start: Start) -> None:
    program = start("")
    program.ask("prepare")
    kill_trees([program.pid])
    with pytest.raises(BenchFailed, match="ended with code -9 before it answered `started`"):
        program.ask("started")


def test_a_field_of_an_answer_has_its_type() -> None:
    assert field({"left": 3}, "left", int) == 3
    with pytest.raises(BenchFailed, match=r"lacks `left` \(int or null\)"):
        field({"left": "3"}, "left", int, type(None))


@pytest.mark.slow
def test_a_burst_is_timed_and_compared(tmp_path: Path) -> None:
    found = repetition(tmp_path, "burst")
    assert (found.jobs, found.lost, found.duplicated, found.early) == (20, 0, 0, 0)
    assert found.figures["per_s"]
    assert found.figures["p99_ms"] is not None
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "wrong"),
    [("loses", (2, 0, 0)), ("repeats", (0, 20, 0)), ("early", (0, 0, 20))],
    ids=lambda value: str(value),
)
def test_lost_duplicated_and_early_jobs_are_found_in_the_data(
    tmp_path: Path, fault: str, wrong: tuple[int, int, int]
) -> None:
    found = repetition(tmp_path, "burst", fault)
    assert (found.lost, found.duplicated, found.early) == wrong
    assert (found.figures["per_s"] is None) == (fault == "early")


@pytest.mark.slow
def test_jobs_at_rest_are_loaded_before_the_burst(tmp_path: Path) -> None:
    found = repetition(tmp_path, "at-rest")
    assert found.figures["at_rest"] == 1_000
    assert found.lost == 0
    with pytest.raises(TooSlowToLoad, match="takes longer than 0 minutes to load 1,000 jobs"):
        repetition(tmp_path, "at-rest", limits=Limits(jobs=20, at_rest=1_000, load_sec=0))


@pytest.mark.slow
def test_creating_is_measured_in_each_way_and_counted_in_the_store(tmp_path: Path) -> None:
    found = repetition(tmp_path, "schedule-bulk")
    assert (found.jobs, found.lost, found.duplicated) == (20, 0, 0)
    assert found.figures["per_s"]


@pytest.mark.slow
def test_a_peer_that_forgets_everything_when_it_is_killed_loses_jobs(tmp_path: Path) -> None:
    found = repetition(tmp_path, "kill-worker", limits=Limits(jobs=20, kill_wait_sec=0.5))
    assert found.lost > 0
    assert found.figures["flows_sec"] is None


@pytest.mark.slow
def test_the_rate_is_doubled_up_to_the_highest_that_is_tried(tmp_path: Path) -> None:
    found = repetition(tmp_path, "stream-max", limits=Limits(jobs=20, most_rate=2_000))
    assert found.figures["rate"] == 2_000
    assert found.lost == 0


@pytest.mark.slow
def test_an_idle_peer_is_observed(tmp_path: Path) -> None:
    found = repetition(tmp_path, "idle")
    assert found.figures["rss_mb"]
    assert found.figures["cpu_percent"] is not None


@pytest.mark.slow
def test_an_answer_without_its_fields_fails_the_repetition(tmp_path: Path) -> None:
    with pytest.raises(BenchFailed, match="lacks `pids`"):
        repetition(tmp_path, "burst", "forgets")
    assert list(tmp_path.iterdir()) == []


def repetition(directory: Path, work: str, fault: str = "", limits: Limits = LIMITS) -> Measured:
    peer = Peer(
        name="fake",
        title="Fake",
        version="1",
        language="noonday",
        store="directory",
        settings="none",
        command=(FAKE, fault),
        one_process=True,
    )
    return measure(peer, WORKS[work], ROOT, directory, {}, limits, Sizes())
