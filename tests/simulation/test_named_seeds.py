"""Faults that once lost or repeated work, each played again. The names are those of docs/invariants.md."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from noonday.drivers.memory.hot_index import MemoryHotIndex
from noonday.drivers.memory.signals import MemorySignals
from noonday.model.execution import State
from noonday.model.filters import SkipRequest
from noonday.model.job import CatchUp, CatchUpPolicy, Concurrency, JobSpec, JobType, Overlap
from noonday.model.view import JobView
from tests.simulation.bulk import bulk_retry_with_deaths
from tests.simulation.embedded import QUICK, USER, Simulation

Director = Callable[[Simulation], Awaitable[None]]


def play(director: Director, seed: int = 1, *, knows_limits: bool = True, **options: Any) -> Simulation:
    """Play a scenario until it is quiet, and check every promise. The world is closed then; disk and history remain."""
    simulation = Simulation(seed, **options)
    simulation.knows_limits = knows_limits
    try:
        problems = simulation.run(lambda: director(simulation))
    finally:
        simulation.world.close()
    assert problems == []
    return simulation


def once(simulation: Simulation, delay: float = 0.0, **fields: Any) -> JobSpec:
    return simulation.spec(type=JobType.DELAYED, delay_sec=delay, **fields)


def each_second(simulation: Simulation, seconds: float, **fields: Any) -> JobSpec:
    end = simulation.instant() + timedelta(seconds=seconds)
    return simulation.spec(type=JobType.CRON, schedule="* * * * * *", end_at=end, **fields)


def states(simulation: Simulation) -> list[str]:
    rows = simulation.disk.conn.execute("SELECT state FROM executions ORDER BY id").fetchall()
    return [State(row[0]).name for row in rows]


def one(simulation: Simulation, query: str, *parameters: Any) -> Any:
    return simulation.disk.conn.execute(query, parameters).fetchone()


async def created(simulation: Simulation, spec: JobSpec) -> JobView:
    job = await simulation.create(spec)
    assert job is not None
    return job


async def until(condition: Callable[[], Any], seconds: float = 60) -> Any:
    for _ in range(int(seconds * 100)):
        found = condition()
        if found:
            return found
        await asyncio.sleep(0.01)
    raise AssertionError("it never came to that")


def flush(simulation: Simulation) -> None:
    """Let the hot index lose its memory."""
    assert simulation.engine is not None
    index = simulation.engine.drivers.index
    assert isinstance(index, MemoryHotIndex)
    index.__init__(simulation.settings.scheduler.lead_ms)  # type: ignore[misc]


def flush_signals(simulation: Simulation) -> None:
    assert simulation.engine is not None
    signals = simulation.engine.drivers.signals
    assert isinstance(signals, MemorySignals)
    signals._revocations.clear()
    signals._generations.clear()
    signals._claims.clear()


async def kill(simulation: Simulation) -> None:
    assert simulation.process is not None
    simulation.process.kill()
    await asyncio.sleep(0.1)


def test_retry_then_flush() -> None:
    async def scenario(simulation: Simulation) -> None:
        await created(simulation, once(simulation, payload={"v": 1, "do": "fail", "times": 1}))
        await until(lambda: one(simulation, "SELECT 1 FROM timeline WHERE kind = 1"))
        flush(simulation)

    assert states(play(scenario)) == ["SUCCEEDED"]


@pytest.mark.slow
def test_flush_while_running() -> None:
    async def scenario(simulation: Simulation) -> None:
        for _ in range(20):
            await created(simulation, once(simulation, payload={"v": 1, "do": "sleep", "sec": 40}))
        await until(lambda: len(simulation.history.effects) == 8)
        flush(simulation)
        flush_signals(simulation)

    simulation = play(scenario)
    assert states(simulation) == ["SUCCEEDED"] * 20
    assert len(simulation.history.effects) == 20


@pytest.mark.slow
@pytest.mark.parametrize("after_ms", [0, 1, 2, 5, 10, 50, 400, 900])
def test_dead_before_report(after_ms: int) -> None:
    async def scenario(simulation: Simulation) -> None:
        await created(simulation, once(simulation, payload={"v": 1, "do": "sleep", "sec": 0.5}))
        await until(lambda: simulation.history.effects)
        await asyncio.sleep(after_ms / 1000)
        await kill(simulation)

    simulation = play(scenario)
    assert states(simulation) == ["SUCCEEDED"]
    assert len(simulation.history.effects) in (1, 2)


@pytest.mark.slow
def test_drain_interrupt() -> None:
    async def scenario(simulation: Simulation) -> None:
        await created(simulation, once(simulation, payload={"v": 1, "do": "sleep", "sec": 100}))
        await until(lambda: one(simulation, "SELECT 1 FROM executions WHERE state = 1"))
        assert simulation.process is not None
        assert simulation.engine is not None
        stopped = simulation.process.spawn(simulation.engine.stop())
        await until(stopped.done)
        await kill(simulation)

    simulation = play(scenario)
    assert states(simulation) == ["SUCCEEDED"]
    assert one(simulation, "SELECT attempt, dispatch FROM executions") == (1, 2)


@pytest.mark.slow
@pytest.mark.parametrize("before_ms", [0, 1, 3, 10, 100, 150, 199])
def test_edit_while_early(before_ms: int) -> None:
    async def scenario(simulation: Simulation) -> None:
        job = await created(simulation, once(simulation, 5.0))
        assert job.next_fire_at is not None
        due_ms = round(job.next_fire_at.timestamp() * 1000)
        await asyncio.sleep((due_ms - before_ms - simulation.world.now_ms()) / 1000)
        spec = simulation.spec(type=JobType.ONE_TIME, run_at=job.next_fire_at, payload={"v": 2})
        await simulation.replace(job.job_id, spec)

    simulation = play(scenario, seed=before_ms)
    assert states(simulation) == ["SUCCEEDED"]
    assert len(simulation.history.effects) == 1


@pytest.mark.slow
def test_edit_same_next() -> None:
    async def scenario(simulation: Simulation) -> None:
        job = await created(simulation, simulation.spec(type=JobType.CRON, schedule="0 * * * * *", max_runs=2))
        spec = simulation.spec(type=JobType.CRON, schedule="0,30 * * * * *", max_runs=2)
        await simulation.replace(job.job_id, spec)
        await asyncio.sleep(2 * 60)

    simulation = play(scenario)
    rows = simulation.disk.conn.execute("SELECT nominal_ms FROM executions ORDER BY id").fetchall()
    assert rows[1][0] - rows[0][0] == 30_000


@pytest.mark.slow
@pytest.mark.parametrize("every", ["*/2 * * * * *", "* * * * * *"])
def test_edit_while_overdue(every: str) -> None:
    """Several times of a plan wait for a key when a plan that has only some of them replaces it."""
    line = Concurrency("line", 1, ordered=True)

    async def scenario(simulation: Simulation) -> None:
        job = await created(simulation, each_second(simulation, 60, concurrency=line, max_runs=40))
        await until(lambda: one(simulation, "SELECT count(*) FROM executions")[0] == 3)
        await created(simulation, once(simulation, payload={"v": 1, "do": "sleep", "sec": 7}, concurrency=line))
        await asyncio.sleep(6.2)
        end = simulation.instant() + timedelta(seconds=5)
        spec = simulation.spec(type=JobType.CRON, schedule=every, end_at=end, max_runs=40)
        await simulation.replace(job.job_id, spec)

    simulation = play(scenario)
    edited = one(simulation, "SELECT sum(count) FROM decisions WHERE outcome = 'EDITED'")[0]
    assert bool(edited) == (every == "*/2 * * * * *")


@pytest.mark.slow
def test_skip_every_second() -> None:
    async def scenario(simulation: Simulation) -> None:
        payload = {"v": 1, "do": "sleep", "sec": 0.8}
        await created(simulation, each_second(simulation, 20.5, payload=payload, overlap=Overlap.SKIP))

    simulation = play(scenario)
    assert one(simulation, "SELECT count(*) FROM decisions WHERE outcome = 'SKIPPED'") == (0,)
    assert len(states(simulation)) == 20


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_buffer_lost_wake_up(seed: int) -> None:
    """The run ends at the very moment at which the next one is fired."""

    async def scenario(simulation: Simulation) -> None:
        payload = {"v": 1, "do": "sleep", "sec": 1.0}
        await created(simulation, each_second(simulation, 8.5, payload=payload, overlap=Overlap.BUFFER_ONE))

    assert set(states(play(scenario, seed))) == {"SUCCEEDED"}


def test_deadline_while_buffered() -> None:
    """An occurrence waits behind another one for longer than its start deadline."""

    async def scenario(simulation: Simulation) -> None:
        job = await created(
            simulation,
            once(
                simulation,
                1.0,
                payload={"v": 1, "do": "sleep", "sec": 6},
                overlap=Overlap.BUFFER_ALL,
                start_deadline_sec=3,
            ),
        )
        await simulation.ask("trigger", job.job_id, lambda e: e.services.jobs.trigger(USER, job.job_id))

    assert sorted(states(play(scenario))) == ["EXPIRED", "SUCCEEDED"]


def test_cancel_then_lost() -> None:
    async def scenario(simulation: Simulation) -> None:
        await created(simulation, once(simulation, payload={"v": 1, "do": "sleep", "sec": 50}))
        (execution,) = await until(lambda: one(simulation, "SELECT id FROM executions WHERE state = 1"))
        await simulation.ask("cancel", execution, lambda e: e.services.executions.cancel(USER, execution))
        await kill(simulation)

    assert states(play(scenario)) == ["CANCELLED"]


@pytest.mark.slow
def test_republished_batch() -> None:
    """The owner dies after publish and before seal, when everything has finished."""

    async def scenario(simulation: Simulation) -> None:
        for _ in range(5):
            await created(simulation, once(simulation))
        await until(lambda: len(simulation.history.effects) == 5)
        conn = simulation.disk.conn
        ids = [row[0] for row in conn.execute("SELECT id FROM executions")]
        members = msgspec.json.encode([[id_, 0] for id_ in ids]).decode()
        conn.execute("INSERT INTO batches (owner, fired_ms, members) VALUES ('dead', 0, ?)", (members,))
        await asyncio.sleep(15)

    simulation = play(scenario)
    assert len(simulation.history.effects) == 5
    assert one(simulation, "SELECT count(*) FROM batches") == (0,)


@pytest.mark.slow
def test_capped_head() -> None:
    """A backlog behind a full key is the head of the timeline; the entry of another job is lost from the index."""

    async def scenario(simulation: Simulation) -> None:
        key = Concurrency("narrow", 1)
        for _ in range(10):
            await created(simulation, once(simulation, payload={"v": 1, "do": "sleep", "sec": 20}, concurrency=key))
        await asyncio.sleep(3)
        job = await created(simulation, once(simulation, 2.0))
        flush(simulation)
        await until(lambda: one(simulation, "SELECT 1 FROM executions WHERE job_id = ? AND state = 5", job.job_id), 15)

    assert states(play(scenario)) == ["SUCCEEDED"] * 11


@pytest.mark.slow
def test_poison() -> None:
    """One entry cannot be planned; the others of its batch fire.

    Its schedule waits, and goes on when it can be planned again.
    """

    async def scenario(simulation: Simulation) -> None:
        catch_up = CatchUp(CatchUpPolicy.ALL, 3600)
        bad = await created(simulation, each_second(simulation, 10, catch_up=catch_up, timezone="Europe/Berlin"))
        for _ in range(5):
            await created(simulation, once(simulation, 3.0))
        text = "UPDATE jobs SET spec = json_set(spec, '$.timezone', ?) WHERE id = ?"
        simulation.disk.conn.execute(text, ("Mars/Olympus", bad.job_id))
        await until(lambda: states(simulation).count("SUCCEEDED") == 5)
        await asyncio.sleep(30)
        assert states(simulation) == ["SUCCEEDED"] * 5
        assert one(simulation, "SELECT due_ms IS NOT NULL FROM timeline WHERE key = ?", bad.job_id) == (1,)
        simulation.disk.conn.execute(text, ("Europe/Berlin", bad.job_id))

    # Not checked for lateness: the checker does not know that this machine lacks a zone.
    with Simulation(1) as simulation:
        simulation.direct(lambda: scenario(simulation))
        assert states(simulation) == ["SUCCEEDED"] * 15
        assert one(simulation, "SELECT count(*) FROM decisions WHERE outcome = 'ERROR'") == (0,)


@pytest.mark.slow
def test_edit_finished_one_shot() -> None:
    async def scenario(simulation: Simulation) -> None:
        job = await created(simulation, once(simulation, payload={"v": 1, "do": "sleep", "sec": 3}))
        await until(lambda: simulation.history.effects)
        later = simulation.instant() + timedelta(seconds=60)
        spec = simulation.spec(type=JobType.ONE_TIME, run_at=later, payload={"v": 2})
        await simulation.replace(job.job_id, spec)

    simulation = play(scenario)
    assert states(simulation) == ["SUCCEEDED", "SUCCEEDED"]
    assert [effect.payload["v"] for effect in simulation.history.effects] == [1, 2]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_replay_after_retry(seed: int) -> None:
    """The process dies around the settling of a failure: attempts neither vanish nor count twice."""

    async def scenario(simulation: Simulation) -> None:
        await created(simulation, once(simulation, payload={"v": 1, "do": "fail", "times": 2}))
        await until(lambda: simulation.history.effects)
        await asyncio.sleep(0.05 + seed * 0.002)
        await kill(simulation)

    assert states(play(scenario, seed)) == ["SUCCEEDED"]


@pytest.mark.slow
def test_store_away_10min() -> None:
    async def scenario(simulation: Simulation) -> None:
        for _ in range(5):
            await created(simulation, once(simulation, payload={"v": 1, "do": "sleep", "sec": 2}))
        await until(lambda: len(simulation.history.effects) == 5)
        await simulation.full_disk(600)

    simulation = play(scenario)
    assert states(simulation) == ["SUCCEEDED"] * 5
    assert len(simulation.history.effects) == 5


@pytest.mark.slow
def test_cancel_then_flush() -> None:
    async def scenario(simulation: Simulation) -> None:
        job = await created(simulation, once(simulation, 5.0))
        assert job.next_fire_at is not None
        execution = await until(
            lambda: one(simulation, "SELECT id FROM executions WHERE job_id = ? AND fired_ms IS NOT NULL", job.job_id)
        )
        await simulation.ask("cancel", execution[0], lambda e: e.services.executions.cancel(USER, execution[0]))
        flush_signals(simulation)

    simulation = play(scenario)
    assert states(simulation) == ["CANCELLED"]
    assert simulation.history.effects == []


@pytest.mark.slow
def test_flush_during_capped_fire() -> None:
    async def scenario(simulation: Simulation) -> None:
        key = Concurrency("narrow", 2)
        for _ in range(12):
            await created(simulation, once(simulation, payload={"v": 1, "do": "sleep", "sec": 1}, concurrency=key))
            flush(simulation)
            await asyncio.sleep(0.02)

    assert states(play(scenario)) == ["SUCCEEDED"] * 12


def test_cancel_last_open() -> None:
    async def scenario(simulation: Simulation) -> None:
        payload = {"v": 1, "do": "sleep", "sec": 300}
        job = await created(simulation, each_second(simulation, 2.2, payload=payload, overlap=Overlap.BUFFER_ONE))
        await until(lambda: one(simulation, "SELECT 1 FROM executions WHERE buffered = 1"))
        query = "SELECT id FROM executions WHERE job_id = ? AND buffered = 0 AND state < 2"
        (first,) = one(simulation, query, job.job_id)
        await simulation.ask("cancel", first, lambda e: e.services.executions.cancel(USER, first))
        await until(lambda: len(simulation.history.effects) == 2, 20)
        (second,) = one(simulation, query, job.job_id)
        await simulation.ask("cancel", second, lambda e: e.services.executions.cancel(USER, second))

    simulation = play(scenario)
    assert set(states(simulation)) == {"CANCELLED"}


@pytest.mark.slow
def test_nul_in_error() -> None:
    async def scenario(simulation: Simulation) -> None:
        await created(simulation, once(simulation, payload={"v": 1, "do": "fail", "times": 99}))
        await created(simulation, once(simulation, 1.0))

    simulation = play(scenario)
    assert states(simulation) == ["DEAD", "SUCCEEDED"]
    (failure,) = one(simulation, "SELECT failure FROM executions WHERE state = 8")
    assert "told to" in failure


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_trigger_races_delete(seed: int) -> None:
    async def scenario(simulation: Simulation) -> None:
        job = await created(simulation, once(simulation, 1000.0))
        await asyncio.gather(
            simulation.ask("trigger", job.job_id, lambda e: e.services.jobs.trigger(USER, job.job_id)),
            simulation.ask("delete", job.job_id, lambda e: e.services.jobs.delete(USER, job.job_id)),
        )

    play(scenario, seed)


@pytest.mark.slow
def test_a_stop_of_an_hour_catches_up_by_each_policy() -> None:
    async def scenario(simulation: Simulation) -> None:
        for policy in CatchUpPolicy:
            spec = simulation.spec(
                type=JobType.CRON,
                schedule="0 * * * * *",
                name=policy.value,
                catch_up=CatchUp(policy, 7200),
                end_at=simulation.instant() + timedelta(minutes=61, seconds=30),
            )
            await created(simulation, spec)
        await asyncio.sleep(30)
        simulation.random.choice = lambda options: 3600.0  # type: ignore[method-assign,assignment]
        await kill(simulation)
        await asyncio.sleep(3700)

    simulation = play(scenario)
    rows = simulation.disk.conn.execute(
        """SELECT j.name, count(x.id), (SELECT coalesce(sum(count), 0) FROM decisions d WHERE d.job_id = j.id)
           FROM jobs j LEFT JOIN executions x ON x.job_id = j.id GROUP BY j.name ORDER BY j.name"""
    ).fetchall()
    assert [row[1] + row[2] for row in rows] == [61, 61, 61]
    fired = {name: count for name, count, _ in rows}
    assert fired["ALL"] == 61
    assert fired["LATEST"] == 2
    assert fired["NONE"] == 1


@pytest.mark.slow
def test_dies_in_its_first_second() -> None:
    """A handler kills its process at once, again and again. Its attempts are used up nevertheless."""

    async def director(simulation: Simulation) -> None:
        await created(simulation, once(simulation, payload={"v": 1, "do": "die"}))
        await until(lambda: states(simulation) == ["DEAD"], 600)

    simulation = play(director)
    # The first run of an attempt may end unseen, the second one may not.
    assert len(simulation.history.effects) <= 2 * QUICK.max_attempts


def test_edit_overdue_while_paused() -> None:
    """A pause covers the due time of a one-shot. The edit gives that time up, and the decision names the edit."""

    async def director(simulation: Simulation) -> None:
        assert simulation.engine is not None
        job = await created(simulation, once(simulation, 1))
        await simulation.ask("pause", job.job_id, lambda e: e.services.jobs.pause(USER, job.job_id))
        await asyncio.sleep(3)
        await simulation.replace(job.job_id, once(simulation, 5, payload={"v": 2}))
        await simulation.ask("resume", job.job_id, lambda e: e.services.jobs.resume(USER, job.job_id))

    simulation = play(director)
    assert one(simulation, "SELECT outcome FROM decisions") == ("EDITED",)
    assert [effect.payload["v"] for effect in simulation.history.effects] == [2]


@pytest.mark.slow
@pytest.mark.parametrize("before_ms", [300, 210, 195, 150, 60, 20, 5])
def test_skip_races_fire(before_ms: int) -> None:
    """A skip arrives while its occurrence is planned or dispatched ahead of its instant: it holds, or it is refused."""

    async def scenario(simulation: Simulation) -> None:
        job = await created(simulation, each_second(simulation, 6))
        for _ in range(4):
            now_ms = simulation.world.now_ms()
            await asyncio.sleep((1_000 - now_ms % 1_000 + 1_000 - before_ms) / 1000)
            await simulation.skip(job.job_id, 1)

    simulation = play(scenario)
    skipped = one(simulation, "SELECT count(*) FROM decisions WHERE outcome = 'SKIPPED'")[0]
    assert skipped == len(simulation.history.answered("skip")) > 0


@pytest.mark.slow
@pytest.mark.parametrize("when", ["before", "after"])
def test_skip_then_die(when: str) -> None:
    """The process dies right after a skip was acknowledged and is away over its time, or dies right after its decision."""

    async def scenario(simulation: Simulation) -> None:
        job = await created(simulation, each_second(simulation, 30, catch_up=CatchUp(CatchUpPolicy.ALL)))
        await simulation.skip(job.job_id, 3)
        if when == "after":
            await until(lambda: one(simulation, "SELECT 1 FROM decisions"))
        await kill(simulation)

    simulation = play(scenario)
    rows = simulation.disk.conn.execute("SELECT outcome, count FROM decisions").fetchall()
    assert rows == [("SKIPPED", 1)] * 3


@pytest.mark.slow
def test_skip_during_pause() -> None:
    """A skipped time passes while its job is paused: it is SKIPPED, and what passed around it PAUSED."""

    async def scenario(simulation: Simulation) -> None:
        job = await created(simulation, each_second(simulation, 12))
        await asyncio.sleep(1.5)
        await simulation.ask("pause", job.job_id, lambda e: e.services.jobs.pause(USER, job.job_id))
        times = [datetime.fromtimestamp(simulation.world.now_ms() // 1000 + ahead, UTC) for ahead in (3, 5)]
        for at in times:
            request = SkipRequest(at=at)
            await simulation.ask("skip", job.job_id, lambda e, r=request: e.services.skips.skip(USER, job.job_id, r))  # type: ignore[misc]
        await asyncio.sleep(7)
        await simulation.ask("resume", job.job_id, lambda e: e.services.jobs.resume(USER, job.job_id))

    simulation = play(scenario)
    rows = simulation.disk.conn.execute("SELECT outcome FROM decisions ORDER BY from_ms").fetchall()
    assert [row[0] for row in rows] == ["PAUSED", "SKIPPED", "PAUSED", "SKIPPED", "PAUSED"]


@pytest.mark.parametrize("seed", range(1, 7))
def test_bulk_retry_that_is_killed_again_and_again_retries_each_dead_letter_once(seed: int) -> None:
    simulation = play(bulk_retry_with_deaths, seed, knows_limits=False)
    assert simulation.history.deaths
    assert one(simulation, "SELECT state FROM operations") == ("DONE",)


def moved_times(simulation: Simulation) -> list[tuple[int, str]]:
    """The outcome of each decided time, and of each execution, in order."""
    return simulation.disk.conn.execute(
        """SELECT from_ms, outcome FROM decisions
           UNION ALL SELECT nominal_ms, 'FIRED' FROM executions WHERE cause = 0 ORDER BY 1"""
    ).fetchall()


@pytest.mark.slow
@pytest.mark.parametrize("before_ms", [300, 210, 195, 150, 60, 20, 5])
def test_move_races_fire(before_ms: int) -> None:
    """A move arrives while its occurrence is planned or dispatched ahead of its instant: it holds, or it is refused."""

    async def scenario(simulation: Simulation) -> None:
        job = await created(simulation, each_second(simulation, 8))
        for _ in range(4):
            now_ms = simulation.world.now_ms()
            at_ms = now_ms - now_ms % 1_000 + 2_000
            await asyncio.sleep((at_ms - before_ms - now_ms) / 1000)
            await simulation.move(job.job_id, at_ms, at_ms + 1_500)

    simulation = play(scenario)
    moved = len([outcome for _, outcome in moved_times(simulation) if outcome == "MOVED"])
    assert moved == len(simulation.history.answered("move"))
    assert moved > 0 or before_ms < 200


@pytest.mark.slow
@pytest.mark.parametrize("when", ["before", "between", "after"])
def test_move_then_die(when: str) -> None:
    """The process dies right after a move was acknowledged, after the decision about the former time, or after the new fire."""

    async def scenario(simulation: Simulation) -> None:
        job = await created(simulation, each_second(simulation, 30, catch_up=CatchUp(CatchUpPolicy.ALL)))
        at_ms = simulation.world.now_ms() // 1_000 * 1_000 + 2_000
        await simulation.move(job.job_id, at_ms, at_ms + 1_500)
        if when == "between":
            await until(lambda: one(simulation, "SELECT 1 FROM decisions"))
        if when == "after":
            await until(lambda: one(simulation, "SELECT 1 FROM executions WHERE nominal_ms = ?", at_ms + 1_500))
        await kill(simulation)

    simulation = play(scenario)
    (former,) = [time for time, outcome in moved_times(simulation) if outcome == "MOVED"]
    fired = [time for time, outcome in moved_times(simulation) if outcome == "FIRED"]
    assert fired.count(former + 1_500) == 1
    assert former not in fired


@pytest.mark.slow
@pytest.mark.parametrize("policy", CatchUpPolicy)
def test_away_over_the_end_of_a_pause(policy: CatchUpPolicy) -> None:
    """No process runs when a pause ends. What passed before the end is PAUSED, what passed since is caught up or missed."""

    async def scenario(simulation: Simulation) -> None:
        job = await created(simulation, each_second(simulation, 60, catch_up=CatchUp(policy)))
        await asyncio.sleep(1.5)
        await simulation.pause_until(job.job_id, simulation.world.now_ms() // 1_000 * 1_000 + 5_500)
        simulation.random.choice = lambda options: 30.0  # type: ignore[method-assign,assignment]
        await kill(simulation)
        await asyncio.sleep(40)

    simulation = play(scenario)
    ended_ms = one(simulation, "SELECT until_ms FROM resumed")[0]
    decided = simulation.disk.conn.execute("SELECT from_ms, to_ms, outcome FROM decisions ORDER BY 1").fetchall()
    assert (decided[0][2], decided[0][1]) == ("PAUSED", ended_ms - 500)
    since = [each for each in moved_times(simulation) if each[0] > ended_ms]
    assert since[0] == (ended_ms + 500, "FIRED" if policy is CatchUpPolicy.ALL else "MISSED")


@pytest.mark.slow
def test_dies_at_the_end_of_a_pause() -> None:
    """The process dies in the moment in which it resumes jobs, again and again: each is resumed once."""

    async def scenario(simulation: Simulation) -> None:
        jobs = [await created(simulation, each_second(simulation, 30)) for _ in range(5)]
        end_ms = simulation.world.now_ms() // 1_000 * 1_000 + 4_000
        for job in jobs:
            await simulation.pause_until(job.job_id, end_ms)
        for count in range(1, 5):
            await until(lambda n=count: one(simulation, "SELECT count(*) FROM resumed")[0] >= n)  # type: ignore[misc]
            await kill(simulation)

    simulation = play(scenario)
    assert one(simulation, "SELECT count(*), count(DISTINCT job) FROM resumed") == (5, 5)
