"""Moves of occurrences: who may move which to when, how they are shown, and what else may happen to the job."""

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from noonday.intake import edits
from noonday.intake.move_service import MoveService
from noonday.intake.occurrence_queries import OccurrenceQueries
from noonday.intake.skip_service import SkipService
from noonday.model.errors import Conflict, InvalidInput, NotFound
from noonday.model.filters import MoveRequest, SkipRequest
from noonday.model.job import CatchUp, CatchUpPolicy, Job, JobSpec, Overlap
from noonday.model.move import MOST_MOVES
from noonday.model.view import JobView
from noonday.runtime.offload import ThreadOffload
from tests.intake.parts import ANN, STRANGER, Parts, key, parts_in_memory
from tests.support.factories import DAY, HOUR, MINUTE, NOW_MS, audit, every, instant, report, spec


@pytest.fixture
async def parts() -> AsyncIterator[Parts]:
    async with parts_in_memory() as parts:
        yield parts


@pytest.fixture
def moves(parts: Parts) -> MoveService:
    return MoveService(editor=parts.editor, presenter=parts.presenter, clock=parts.clock)


@pytest.fixture
def skips(parts: Parts) -> SkipService:
    return SkipService(editor=parts.editor, presenter=parts.presenter, clock=parts.clock)


def when(minutes: float) -> int:
    return NOW_MS + round(minutes * MINUTE)


def moving(at: float, to: float, reason: str | None = "a window") -> MoveRequest:
    return MoveRequest(at=instant(when(at)), to=instant(when(to)), reason=reason)


def pairs_of(view: JobView) -> list[tuple[float, float]]:
    start = instant(NOW_MS)
    return [((each.at - start) / timedelta(minutes=1), (each.to - start) / timedelta(minutes=1)) for each in view.moves]


async def shown(parts: Parts, of: Job, until: float = 3) -> list[tuple[float, str, str]]:
    """The occurrences of a job: minute, outcome and reason."""
    queries = OccurrenceQueries(
        query_store=parts.store.query_store, blockers=parts.blockers, offload=ThreadOffload(), clock=parts.clock
    )
    page = await queries.list_occurrences(ANN, of.id, from_ms=NOW_MS, to_ms=when(until))
    start = instant(NOW_MS)
    return [
        ((each.scheduled_at - start) / timedelta(minutes=1), each.outcome, each.reason) for each in page.occurrences
    ]


def reach(parts: Parts, minute: float) -> None:
    parts.clock.step((when(minute) - parts.clock.now_ms()) / 1000)


async def play(parts: Parts, *minutes: float) -> list[float]:
    """Fire what is due at some times, one after the other. Returns the minutes of the dispatches."""
    fired: list[float] = []
    for minute in minutes:
        reach(parts, minute)
        result = await parts.crank.fire(at_ms=when(minute))
        fired += [(each.nominal_ms - NOW_MS) / MINUTE for each in result.dispatches]
    return fired


async def replace(parts: Parts, of: Job, new: JobSpec) -> None:
    now_ms = parts.crank.now_ms = max(parts.clock.now_ms(), parts.crank.now_ms)
    await parts.crank.change(of, lambda before: edits.replace(before, new, None, now_ms, audit()))


async def test_moved_occurrence_fires_once_at_its_new_time_and_is_shown_before_and_after(
    parts: Parts, moves: MoveService
) -> None:
    one = await parts.add(every())
    view = await moves.move(ANN, one.id, moving(1, 1.5))
    assert (pairs_of(view), view.moves[0].by, view.moves[0].reason) == ([(1, 1.5)], "ann", "a window")
    to = "moved to 2030-01-01T00:01:30.000Z by ann: a window"
    came = "moved from 2030-01-01T00:01:00.000Z by ann: a window"
    before = await shown(parts, one)
    assert before[1:3] == [(1, "MOVED", to), (1.5, "PLANNED", f"planned; {came}")]
    assert await play(parts, 0, 1, 1.5, 2) == [0, 1.5, 2]
    after = await shown(parts, one)
    assert after[1:3] == [(1, "MOVED", to), (1.5, "FIRED", f"execution PENDING; {came}")]


async def test_next_fire_follows_the_move(parts: Parts, moves: MoveService) -> None:
    one = await parts.add(every(600))
    assert (await moves.move(ANN, one.id, moving(10, 5))).next_fire_at == instant(NOW_MS)
    assert await play(parts, 0, 5, 10) == [0, 5]
    later = await moves.move(ANN, one.id, moving(20, 25))
    assert later.next_fire_at == instant(when(25))
    assert (later.version, pairs_of(later)) == (3, [(20, 25)])


async def test_occurrence_is_moved_before_the_one_that_the_job_waits_for(parts: Parts, moves: MoveService) -> None:
    one = await parts.add(every(600))
    await play(parts, 0)
    view = await moves.move(ANN, one.id, moving(30, 5))
    assert view.next_fire_at == instant(when(5))
    assert await play(parts, 5, 10, 20, 30, 40) == [5, 10, 20, 40]


async def test_occurrence_is_moved_twice_and_never_fires_in_between(parts: Parts, moves: MoveService) -> None:
    one = await parts.add(every())
    await moves.move(ANN, one.id, moving(1, 1.5))
    view = await moves.move(ANN, one.id, moving(1.5, 2.5, "again"))
    assert pairs_of(view) == [(1, 2.5)]
    assert await play(parts, 0, 1, 1.5, 2, 2.5, 3) == [0, 2, 2.5, 3]
    assert (1, "MOVED", "moved to 2030-01-01T00:02:30.000Z by ann: again") in await shown(parts, one)


async def test_occurrence_is_moved_again_after_its_first_time_was_decided(parts: Parts, moves: MoveService) -> None:
    one = await parts.add(every())
    await moves.move(ANN, one.id, moving(1, 1.5))
    await play(parts, 0, 1)
    view = await moves.move(ANN, one.id, moving(1.5, 2.5))
    assert pairs_of(view) == [(1, 1.5), (1.5, 2.5)]
    assert await play(parts, 1.5, 2, 2.5, 3) == [2, 2.5, 3]
    outcomes = [(minute, outcome) for minute, outcome, _ in await shown(parts, one)]
    assert outcomes[1:5] == [(1, "MOVED"), (1.5, "MOVED"), (2, "FIRED"), (2.5, "FIRED")]


async def test_move_is_undone_by_moving_back(parts: Parts, moves: MoveService) -> None:
    one = await parts.add(every())
    await moves.move(ANN, one.id, moving(1, 1.5))
    view = await moves.move(ANN, one.id, moving(1.5, 1))
    assert (view.moves, view.version) == ((), 3)
    assert await play(parts, 0, 1, 1.5, 2) == [0, 1, 2]


async def test_original_time_of_a_moved_occurrence_names_its_new_one(parts: Parts, moves: MoveService) -> None:
    one = await parts.add(every())
    await moves.move(ANN, one.id, moving(1, 1.5))
    with pytest.raises(Conflict, match=r"was moved to 2030-01-01T00:01:30\.000Z by ann: a window: name its new time"):
        await moves.move(ANN, one.id, moving(1, 2.5))


async def test_new_time_must_be_free(parts: Parts, moves: MoveService) -> None:
    one = await parts.add(every())
    await moves.move(ANN, one.id, moving(3, 1.5))
    for taken in (2, 1.5, 3):
        with pytest.raises(Conflict, match="is an occurrence of job"):
            await moves.move(ANN, one.id, moving(1, taken))


async def test_new_time_must_be_ahead_within_ten_years(parts: Parts, moves: MoveService) -> None:
    one = await parts.add(every())
    for wrong, why in ((0, "in the future"), (-1, "in the future"), (11 * 366 * DAY / MINUTE, "10 years ahead")):
        with pytest.raises(InvalidInput, match=rf"{why}; the server's time is 2030-01-01T00:00:00\.000Z"):
            await moves.move(ANN, one.id, moving(1, wrong))


async def test_time_that_is_no_occurrence_is_refused_with_the_next_one(parts: Parts, moves: MoveService) -> None:
    one = await parts.add(every())
    with pytest.raises(InvalidInput, match=r"the next one is 2030-01-01T00:01:00\.000Z"):
        await moves.move(ANN, one.id, moving(0.5, 1.5))


async def test_dispatched_occurrence_is_not_moved(parts: Parts, moves: MoveService) -> None:
    one = await parts.add(every())
    await parts.fire(one)
    with pytest.raises(Conflict, match="is decided"):
        await moves.move(ANN, one.id, moving(0, 1.5))


async def test_nothing_precedes_an_occurrence_that_was_dispatched_ahead_of_its_time(
    parts: Parts, moves: MoveService
) -> None:
    one = await parts.add(every())
    await play(parts, 0)
    parts.crank.now_ms = when(1)  # the scheduler dispatches ahead, and the clock of the request is behind
    await parts.crank.fire()
    with pytest.raises(Conflict, match=r"2030-01-01T00:01:00\.000Z of job .* is dispatched already"):
        await moves.move(ANN, one.id, moving(2, 0.9))


async def test_skipped_occurrence_is_not_moved_and_a_moved_one_is_skipped_at_its_new_time(
    parts: Parts, moves: MoveService, skips: SkipService
) -> None:
    one = await parts.add(every())
    await skips.skip(ANN, one.id, SkipRequest(at=instant(when(1))))
    with pytest.raises(Conflict, match="is skipped: DELETE /v1/jobs"):
        await moves.move(ANN, one.id, moving(1, 1.5))
    await moves.move(ANN, one.id, moving(2, 2.5))
    with pytest.raises(Conflict, match="name its new time"):
        await skips.skip(ANN, one.id, SkipRequest(at=instant(when(2))))
    await skips.skip(ANN, one.id, SkipRequest(at=instant(when(2.5))))
    assert await play(parts, 0, 1, 2, 2.5, 3) == [0, 3]
    outcomes = [outcome for _, outcome, _ in await shown(parts, one)]
    assert outcomes == ["FIRED", "SKIPPED", "MOVED", "SKIPPED", "FIRED"]


async def test_next_occurrences_to_skip_are_those_that_fire(
    parts: Parts, moves: MoveService, skips: SkipService
) -> None:
    one = await parts.add(every())
    await moves.move(ANN, one.id, moving(1, 1.5))
    view = await skips.skip(ANN, one.id, SkipRequest(next=3))
    assert [each.at for each in view.skips] == [instant(when(each)) for each in (0, 1.5, 2)]


async def test_one_shot_names_the_change_of_its_time(parts: Parts, moves: MoveService) -> None:
    once = await parts.add(spec(run_at=instant(NOW_MS + HOUR)))
    with pytest.raises(
        Conflict, match=rf"runs once: PATCH /v1/jobs/{once.id} \(noonday job change\) with another runAt"
    ):
        await moves.move(ANN, once.id, moving(60, 90))


async def test_strangers_job_is_not_found(parts: Parts, moves: MoveService) -> None:
    one = await parts.add(every())
    with pytest.raises(NotFound):
        await moves.move(STRANGER, one.id, moving(1, 1.5))


async def test_reason_is_bounded(parts: Parts, moves: MoveService) -> None:
    one = await parts.add(every())
    for wrong in ("x" * 501, "a\0b"):
        with pytest.raises(InvalidInput, match="at most 500 characters, without NUL"):
            await moves.move(ANN, one.id, moving(1, 1.5, wrong))


async def test_number_of_moves_is_bounded_and_past_ones_do_not_count(parts: Parts, moves: MoveService) -> None:
    one = await parts.add(every())
    for minute in range(1, MOST_MOVES + 1):
        await moves.move(ANN, one.id, moving(minute, minute + 0.5))
    with pytest.raises(Conflict, match="has 100 moved occurrences, the most that are allowed"):
        await moves.move(ANN, one.id, moving(200, 200.5))
    await play(parts, 0, 1)
    reach(parts, 1.5)
    moved = await parts.crank.fire_one(at_ms=when(1.5))
    await play(parts, 2)
    with pytest.raises(Conflict, match="has 100 moved occurrences"):
        await moves.move(ANN, one.id, moving(200, 200.5))
    await parts.crank.settle(report(moved))
    assert len((await moves.move(ANN, one.id, moving(200, 200.5))).moves) == MOST_MOVES


async def test_repeated_request_moves_once(parts: Parts, moves: MoveService) -> None:
    one = await parts.add(every())
    await moves.move(ANN, one.id, moving(1, 1.5), key())
    entries = await parts.store.settings_store.list_audit(ANN.tenant, target=one.id, subject=None, after=None, limit=10)
    assert [(entry.action, entry.detail) for _, entry in entries] == [
        ("job.move", {"at": "2030-01-01T00:01:00.000Z", "to": "2030-01-01T00:01:30.000Z"})
    ]


async def test_moved_occurrence_of_a_paused_job_is_paused_if_its_new_time_passes_meanwhile(
    parts: Parts, moves: MoveService
) -> None:
    one = await parts.add(every())
    await play(parts, 0)
    await parts.crank.change(one, lambda before: edits.pause(before, when(0.1), audit()))
    reach(parts, 0.2)
    await moves.move(ANN, one.id, moving(1, 1.5))
    await moves.move(ANN, one.id, moving(2, 3.5))
    await parts.crank.change(one, lambda before: edits.resume(before, when(2.5), audit()))
    assert await play(parts, 3, 3.5) == [3, 3.5]
    outcomes = [(minute, outcome) for minute, outcome, _ in await shown(parts, one)]
    assert outcomes == [(0, "FIRED"), (1, "MOVED"), (1.5, "PAUSED"), (2, "MOVED"), (3, "FIRED")]


async def test_missed_new_time_is_caught_up_as_any_occurrence(parts: Parts, moves: MoveService) -> None:
    one = await parts.add(every(600, catch_up=CatchUp(CatchUpPolicy.LATEST)))
    await play(parts, 0)
    await moves.move(ANN, one.id, moving(10, 15))
    assert await play(parts, 18, 18) == [15]


async def test_missed_new_time_that_is_not_caught_up_is_missed(parts: Parts, moves: MoveService) -> None:
    one = await parts.add(every(600, catch_up=CatchUp(CatchUpPolicy.NONE)))
    await play(parts, 0)
    await moves.move(ANN, one.id, moving(10, 15))
    assert await play(parts, 18, 20) == [20]
    outcomes = [(minute, outcome) for minute, outcome, _ in await shown(parts, one, 20)]
    assert outcomes == [(0, "FIRED"), (10, "MOVED"), (15, "MISSED"), (20, "FIRED")]


async def test_moved_occurrence_uses_up_one_run(parts: Parts, moves: MoveService) -> None:
    one = await parts.add(every(max_runs=2))
    view = await moves.move(ANN, one.id, moving(1, 1.5))
    assert view.runs_left == 2
    assert [minute for minute, _, _ in await shown(parts, one)] == [0, 1, 1.5]
    assert await play(parts, 0, 1, 1.5, 2, 3) == [0, 1.5]
    with pytest.raises(Conflict, match="has no future occurrence"):
        await moves.move(ANN, one.id, moving(4, 4.5))


async def test_edit_keeps_the_moves_whose_times_the_new_schedule_has(parts: Parts, moves: MoveService) -> None:
    one = await parts.add(every())
    await moves.move(ANN, one.id, moving(1, 1.5))
    await moves.move(ANN, one.id, moving(2, 2.5))
    await play(parts, 0)
    await replace(parts, one, every(120))
    assert await play(parts, 1, 1.5, 2, 2.5, 4) == [2.5, 4]


async def test_edit_of_another_field_keeps_a_move_whose_former_time_has_passed(
    parts: Parts, moves: MoveService
) -> None:
    one = await parts.add(every())
    await moves.move(ANN, one.id, moving(1, 1.5))
    await play(parts, 0, 1)
    reach(parts, 1.2)
    await replace(parts, one, every(name="renamed"))
    assert await play(parts, 1.5, 2) == [1.5, 2]


async def test_occurrence_at_its_new_time_waits_through_an_edit(parts: Parts, moves: MoveService) -> None:
    """The move is kept while the execution is open, although both times have passed."""
    one = await parts.add(every(overlap=Overlap.BUFFER_ALL))
    await moves.move(ANN, one.id, moving(1, 1.5))
    await play(parts, 0, 1, 1.5, 2)
    await moves.move(ANN, one.id, moving(5, 5.5))
    await replace(parts, one, every(name="renamed", overlap=Overlap.BUFFER_ALL))
    nominals = [(e.nominal_ms, e.state.name) for e in await parts.crank.all_of(one)]
    assert (when(1.5), "PENDING") in nominals


async def test_early_decision_about_a_left_out_occurrence_is_not_repeated_by_an_edit(
    parts: Parts, moves: MoveService
) -> None:
    """A scheduler decides a moment ahead of the time. An edit in this moment finds no execution there."""
    one = await parts.add(every())
    await moves.move(ANN, one.id, moving(1, 2.5))
    await play(parts, 0)
    parts.crank.now_ms = when(1)
    await parts.crank.fire()
    now_ms = when(1) - 100
    await parts.crank.change(one, lambda before: edits.replace(before, every(name="renamed"), None, now_ms, audit()))
    fire = await parts.crank.fire_row(one)
    assert fire is not None
    assert fire.nominal_ms == when(2)
