"""Faults that explain a second run, and faults that do not."""

from tests.scenarios.cluster.history import BROKER, EVERYONE, FROZEN, KILLED, Duplicate, Fault, duplicates_in
from tests.scenarios.server_run import effects_of
from tests.simulation.history import Effect


def run(dispatch: int = 1, start_ms: int = 10_000, end_ms: int | None = 11_000, process: str = "1") -> Effect:
    return Effect("x", dispatch, dispatch, process, start_ms, start_ms, {}, end_ms)


def found(*effects: Effect, faults: list[Fault] | None = None, settled_by: str = "") -> list[Duplicate]:
    """`settled_by`: the process whose report of the first dispatch was settled."""
    return list(duplicates_in(effects, faults or [], {("x", 1): settled_by}))


def test_runs_of_two_dispatches_one_after_the_other_are_no_duplicates() -> None:
    assert not found(run(), run(dispatch=2, start_ms=11_000))


def test_a_dispatch_that_runs_twice_is_a_duplicate_that_nothing_explains() -> None:
    first, second = run(), run(start_ms=50_000, process="2")

    assert found(second, first) == [Duplicate(first, second, None)]


def test_a_run_that_begins_beside_another_is_a_duplicate() -> None:
    assert len(found(run(end_ms=20_000), run(dispatch=2, start_ms=15_000, end_ms=16_000))) == 1


def test_killed_process_has_ended_its_runs() -> None:
    killed = Fault(KILLED, "1", 10_500)

    assert not found(run(end_ms=None), run(dispatch=2, start_ms=40_000), faults=[killed])


def test_a_run_is_explained_by_the_death_of_the_first_process_but_not_of_another() -> None:
    mine, other = Fault(KILLED, "1", 10_500), Fault(KILLED, "2", 10_500)
    runs = run(end_ms=None), run(start_ms=40_000, process="3")

    assert found(*runs, faults=[other, mine])[0].fault is mine
    assert found(*runs, faults=[other])[0].fault is None


def test_a_fault_explains_nothing_once_the_report_was_long_acknowledged() -> None:
    late = Fault(KILLED, "1", 20_000)

    assert found(run(), run(start_ms=50_000), faults=[late])[0].fault is None


def test_a_cut_that_began_before_the_run_and_outlasted_its_start_explains_it() -> None:
    cut, healed = Fault("cut off from redis", "1", 2_000, 10_200), Fault("cut off from redis", "1", 2_000, 8_000)
    runs = run(), run(start_ms=50_000)

    assert found(*runs, faults=[cut])[0].fault is cut
    assert found(*runs, faults=[healed])[0].fault is None


def test_fault_of_the_process_is_named_before_one_of_all_processes() -> None:
    flush, frozen = Fault("redis: flush", EVERYONE, 10_100), Fault(FROZEN, "1", 10_200, 10_900)

    assert found(run(), run(start_ms=50_000), faults=[flush, frozen])[0].fault is frozen


def test_a_report_waits_for_a_broker_that_is_away_which_alone_explains_nothing() -> None:
    away, cut = Fault("kafka: kill", BROKER, 10_500, 25_000), Fault("cut off from redis", "1", 26_000, 30_000)
    runs = run(), run(start_ms=50_000)

    assert found(*runs, faults=[away])[0].fault is None
    assert found(*runs, faults=[cut])[0].fault is None
    assert found(*runs, faults=[away, cut])[0].fault is cut


def test_a_redis_that_forgets_long_after_the_acknowledgement_explains_nothing() -> None:
    empty = Fault("redis: empty", EVERYONE, 30_000, 31_000)

    assert found(run(), run(start_ms=50_000), faults=[empty])[0].fault is None


def test_stale_run_beside_its_successor_is_explained() -> None:
    flush = Fault("redis: flush", EVERYONE, 12_000)
    first, next_, stale = run(), run(dispatch=2, start_ms=20_000, end_ms=20_100, process="2"), run(start_ms=20_050)

    assert [each.fault for each in found(first, next_, stale, faults=[flush])] == [flush, flush]
    assert [each.fault for each in found(first, next_, run(dispatch=3, start_ms=20_050), faults=[flush])] == [None]


def test_a_handler_whose_process_was_killed_ended_when_it_was_last_alive() -> None:
    def line(what: str, dispatch: int = 1, **times: int) -> dict[str, object]:
        begun = {"token": dispatch, "due_ms": 0, "payload": {}} if what == "start" else {}
        return {"what": what, "execution": "x", "dispatch": dispatch, "pid": 1, **begun, **times}

    first = [line("start", start_ms=10_000), line("alive", at_ms=10_100), line("alive", at_ms=12_900)]

    assert not found(*effects_of([*first, line("start", 2, start_ms=13_000)]))
    assert len(found(*effects_of([*first, line("start", 2, start_ms=12_800)]))) == 1
    assert [run.end_ms for run in effects_of([*first, line("end", end_ms=13_000)])] == [13_000]


def test_a_death_long_after_the_run_explains_it_only_if_the_report_of_the_second_run_was_settled() -> None:
    late, other = Fault(KILLED, "1", 20_000), Fault(KILLED, "3", 20_000)
    runs = run(), run(start_ms=50_000, process="2")

    assert found(*runs, faults=[late], settled_by="2")[0].fault is late
    assert found(*runs, faults=[late], settled_by="1")[0].fault is None
    assert found(*runs, faults=[other], settled_by="2")[0].fault is None
    assert found(*runs, faults=[Fault(KILLED, "1", 60_000)], settled_by="2")[0].fault is None
