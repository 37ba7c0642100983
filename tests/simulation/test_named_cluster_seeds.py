"""Faults among several processes that once lost or repeated work, each played again.

The names are those of docs/invariants.md. Unless a scenario says otherwise, there are an API, two schedulers, two recorders
and two workers, all of them have started, and no message is delivered twice by chance.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from noonday.intake.idempotency import AlreadyAnswered, Idempotency
from noonday.model.breaker import MIN_RUNS, OPEN_MS
from noonday.model.execution import State
from noonday.model.job import JobType
from noonday.model.message import Tick
from tests.simulation.cluster import ClusterSimulation
from tests.simulation.embedded import USER
from tests.simulation.kernel import Process
from tests.simulation.test_named_seeds import created, once, one, states, until

Scenario = Callable[[ClusterSimulation], Awaitable[None]]
NO_STALL_SEC = 10
"""Two lease TTLs, the grace of the sweeper, and a moment (I16)."""


def play(scenario: Scenario, seed: int = 1, concurrency: int = 16) -> ClusterSimulation:
    """Play a scenario until it is quiet, and check every promise. The world is closed then; disk and history remain."""
    simulation = ClusterSimulation(seed, concurrency=concurrency)
    simulation.broker.duplicate = 0.0
    simulation.restart_sec = 0.5

    async def direct() -> None:
        await until(lambda: _are_at_work(simulation))
        await scenario(simulation)

    try:
        problems = simulation.run(direct)
    finally:
        simulation.world.close()
    assert problems == []
    return simulation


def _are_at_work(simulation: ClusterSimulation) -> bool:
    owners, owned = one(simulation, "SELECT count(DISTINCT owner), count(owner) FROM partitions")
    known = one(simulation, "SELECT count(*) FROM workers WHERE state = 'ALIVE'")[0]
    ticks = one(simulation, "SELECT count(*) FROM checkpoints WHERE tick_ms > 0")[0]
    return (owners, owned, known, ticks) == (2, 256, 2, 2) and "p" in simulation.redis.generations


async def create_some(simulation: ClusterSimulation, count: int, delay: float = 0.0, **payload: Any) -> None:
    for _ in range(count):
        await created(simulation, once(simulation, delay, payload={"v": 1, **payload}))


async def all_begun(simulation: ClusterSimulation, count: int, seconds: float = 60) -> None:
    await until(lambda: len(simulation.history.effects) >= count, seconds)


async def all_reported(simulation: ClusterSimulation, count: int, seconds: float = 60) -> None:
    """Wait until the store has `count` running executions."""
    await until(lambda: rows(simulation, "SELECT id FROM executions WHERE state = 1", count), seconds)


async def all_ended(simulation: ClusterSimulation, count: int, seconds: float = 60) -> None:
    await until(lambda: rows(simulation, "SELECT id FROM executions WHERE state > 1", count), seconds)


def rows(simulation: ClusterSimulation, query: str, count: int) -> bool:
    return len(simulation.disk.conn.execute(query).fetchall()) == count


def lost(simulation: ClusterSimulation) -> int:
    """The number of workers that were ever called lost while they ran something, or are called so now."""
    marked: int = one(simulation, "SELECT count(*) FROM workers WHERE state = 'LOST'")[0]
    return marked + sum(State.FAILED_WORKER_LOST in transitions for transitions in paths(simulation))


def paths(simulation: ClusterSimulation) -> list[list[State]]:
    found = simulation.disk.conn.execute("SELECT transitions FROM executions ORDER BY id").fetchall()
    return [
        [State(transition[0]) for transition in msgspec.json.decode(f"[{transitions}]")] for (transitions,) in found
    ]


def published(simulation: ClusterSimulation) -> int:
    return sum(map(len, simulation.broker.topic("p")))


def unsealed(simulation: ClusterSimulation) -> int:
    count: int = one(simulation, "SELECT count(*) FROM batches")[0]
    return count


def ran_on(simulation: ClusterSimulation) -> list[str]:
    return [effect.process for effect in simulation.history.effects]


def assert_ran_once(simulation: ClusterSimulation, count: int) -> None:
    """Check that all executions succeeded in one run, under the first dispatch."""
    assert states(simulation) == ["SUCCEEDED"] * count
    assert len(simulation.history.effects) == count
    assert rows(simulation, "SELECT id FROM executions WHERE dispatch = 1 AND attempt = 1", count)


def lag(simulation: ClusterSimulation) -> None:
    """Let no report reach the store for now."""
    simulation.cut("recorder-0", "store")
    simulation.cut("recorder-1", "store")


def test_hand_over_backlog() -> None:
    async def scenario(simulation: ClusterSimulation) -> None:
        workers = [simulation.processes["worker-0"], simulation.processes["worker-1"]]
        for worker in workers:
            worker.freeze()
        await create_some(simulation, 20)
        await until(lambda: published(simulation) == 20 and not unsealed(simulation), 4)
        await simulation.stop("scheduler-0")
        await until(lambda: one(simulation, "SELECT count(DISTINCT owner) FROM partitions") == (1,), 1)
        for worker in workers:
            worker.wake()
        await all_ended(simulation, 20, 5)

    assert_ran_once(play(scenario), 20)


def test_long_job_rebalance() -> None:
    """All offsets are committed while a long job runs, so a worker that joins gets no dispatch again."""

    async def scenario(simulation: ClusterSimulation) -> None:
        await create_some(simulation, 4, do="sleep", sec=40)
        await all_reported(simulation, 4)
        await create_some(simulation, 40)
        await all_ended(simulation, 40)
        await until(lambda: simulation.broker.is_all_committed("p"), 2)
        await simulation.start("worker-2")
        simulation.broker.rebalance()

    assert_ran_once(play(scenario), 44)


def test_retry_then_flush() -> None:
    """The recorder dies between the commit of a retry and its hint, and Redis loses its memory."""

    async def scenario(simulation: ClusterSimulation) -> None:
        def die(process: Process) -> None:
            process.kill()
            simulation.flush()

        dead = simulation.at("settle", "recorder", die, done=True, given=lambda: retry_is_decided(simulation))
        await create_some(simulation, 1, do="fail", times=1)
        await until(lambda: dead)
        await all_begun(simulation, 2, 2 + NO_STALL_SEC)

    def retry_is_decided(simulation: ClusterSimulation) -> Any:
        return one(simulation, "SELECT 1 FROM timeline WHERE kind = 1")

    assert states(play(scenario)) == ["SUCCEEDED"]


def test_flush_while_running() -> None:
    async def scenario(simulation: ClusterSimulation) -> None:
        await create_some(simulation, 8, do="sleep", sec=45)
        await all_reported(simulation, 8)
        simulation.flush()
        await asyncio.sleep(40)
        assert lost(simulation) == 0

    simulation = play(scenario)
    assert_ran_once(simulation, 8)
    assert lost(simulation) == 0


@pytest.mark.parametrize(
    ("verb", "done", "runs"), [("claim", True, 1), ("pre_start_check", True, 1), ("report", False, 2)]
)
def test_dead_before_report(verb: str, done: bool, runs: int) -> None:
    """The worker that claimed a dispatch dies. When the claim lapses, another worker runs the same dispatch."""

    async def scenario(simulation: ClusterSimulation) -> None:
        def die(process: Process) -> None:
            simulation.kill(process.name)

        is_fired = "SELECT 1 FROM executions"
        dead = simulation.at(verb, "worker", die, done=done, given=lambda: one(simulation, is_fired))
        await create_some(simulation, 1, do="sleep", sec=0.5)
        await until(lambda: dead)
        await all_ended(simulation, 1, 60)
        assert ran_on(simulation)[-1] != str(dead[0])

    simulation = play(scenario)
    assert states(simulation) == ["SUCCEEDED"]
    assert len(simulation.history.effects) == runs
    assert one(simulation, "SELECT dispatch, attempt FROM executions") == (1, 1)


@pytest.mark.parametrize("verb", ["pause", "delete", "cancel"])
@pytest.mark.parametrize("flushed", [False, True])
def test_superseded_comes_again(verb: str, flushed: bool) -> None:
    """A dispatch has run, and its execution waits for the next dispatch when a user ends it.

    The worker died before it could commit the offset. The processes that could ack the dispatch for it have died too, or Redis
    loses its memory. So the message is delivered again, and Redis has no revocation of a dispatch that is over.
    """

    async def scenario(simulation: ClusterSimulation) -> None:
        is_fired = "SELECT 1 FROM executions"
        dead = simulation.at("ack", "worker", Process.kill, given=lambda: one(simulation, is_fired))
        await create_some(simulation, 1, do="snooze, then sleep", sec=1)
        await until(lambda: dead)
        survivor = simulation.processes["worker-1" if dead[0].name == "worker-0" else "worker-0"]
        survivor.freeze()
        await until(lambda: one(simulation, "SELECT 1 FROM executions WHERE dispatch = 2"))
        execution, job = one(simulation, "SELECT id, job_id FROM executions")
        ask: dict[str, Any] = {
            "pause": lambda e: e.services.jobs.pause(USER, job),
            "delete": lambda e: e.services.jobs.delete(USER, job),
            "cancel": lambda e: e.services.executions.cancel(USER, execution),
        }
        await simulation.ask(verb, execution if verb == "cancel" else job, ask[verb])
        if flushed:
            await until(lambda: simulation.redis.claims[execution, 1][2])
            simulation.flush()
        else:
            simulation.kill("recorder-0", "recorder-1")
            await simulation.let_up("recorder-0", "recorder-1")
        survivor.wake()
        await asyncio.sleep(45)
        assert simulation.broker.is_all_committed("p")
        assert len(simulation.history.effects) == 1
        if verb == "pause":
            await simulation.ask("resume", job, lambda e: e.services.jobs.resume(USER, job))
            await all_ended(simulation, 1)

    simulation = play(scenario)
    assert states(simulation) == ["SUCCEEDED" if verb == "pause" else "CANCELLED"]
    assert len(simulation.history.effects) == (2 if verb == "pause" else 1)


@pytest.mark.parametrize("lost", [False, True])
def test_on_its_way_then_flush(lost: bool) -> None:
    """Dispatches in flight may have run when Redis loses its memory.

    They are fired again, and by then the store knows which have run.
    """

    async def scenario(simulation: ClusterSimulation) -> None:
        workers = [simulation.processes["worker-0"], simulation.processes["worker-1"]]
        for worker in workers:
            worker.freeze()
        await create_some(simulation, 10)
        await until(lambda: published(simulation) == 10 and not unsealed(simulation), 4)
        if lost:
            simulation.flush()
            await until(lambda: "p" in simulation.redis.generations)
        for worker in workers:
            worker.wake()
        await all_ended(simulation, 10, 20)

    simulation = play(scenario)
    assert states(simulation) == ["SUCCEEDED"] * 10
    assert len(simulation.history.effects) == 10
    assert rows(simulation, f"SELECT id FROM executions WHERE dispatch = {1 + lost} AND attempt = 1", 10)


def test_drain_interrupt() -> None:
    async def scenario(simulation: ClusterSimulation) -> None:
        await create_some(simulation, 8, do="sleep", sec=50)
        await all_reported(simulation, 8)
        await asyncio.sleep(5)
        await create_some(simulation, 4, do="sleep", sec=20)
        await all_begun(simulation, 12)
        await simulation.stop("worker-0")

    simulation = play(scenario)
    interrupted = ran_on(simulation)[:8].count("worker-0")
    assert interrupted > 0
    assert states(simulation) == ["SUCCEEDED"] * 12
    assert len(simulation.history.effects) == 12 + interrupted
    assert rows(simulation, "SELECT id FROM executions WHERE attempt = 1", 12)
    assert rows(simulation, "SELECT id FROM executions WHERE dispatch = 2", interrupted)
    assert lost(simulation) == 0


@pytest.mark.parametrize("done", [False, True])
def test_frozen_in_fire(done: bool) -> None:
    """The owner is frozen with a fire in flight to the store, or with the answer in flight back."""

    async def scenario(simulation: ClusterSimulation) -> None:
        frozen = simulation.at("fire", "scheduler", lambda process: process.freeze(), done=done)
        await create_some(simulation, 20)
        await until(lambda: frozen)
        await all_ended(simulation, 20, NO_STALL_SEC)
        await create_some(simulation, 20)
        await all_ended(simulation, 40, 2)
        frozen[0].wake()
        await asyncio.sleep(10)

    assert_ran_once(play(scenario), 40)


def test_cut_from_store() -> None:
    async def scenario(simulation: ClusterSimulation) -> None:
        simulation.cut("scheduler-0", "store")
        await create_some(simulation, 20)
        await all_ended(simulation, 20, NO_STALL_SEC)

    assert_ran_once(play(scenario), 20)


def test_cut_off_still_member() -> None:
    """The owner is cut off from the store at the moment of a fire, and reaches all other servers.

    Another instance publishes its batch.
    """

    async def scenario(simulation: ClusterSimulation) -> None:
        def cut(process: Process) -> None:
            simulation.cut(process.name, "store")

        caught = simulation.at("fire", "scheduler", cut, done=True)
        await create_some(simulation, 20)
        await until(lambda: caught)
        assert unsealed(simulation)
        await all_ended(simulation, 20, NO_STALL_SEC)
        await until(lambda: not unsealed(simulation), 5)

    assert_ran_once(play(scenario), 20)


def test_epoch_restart() -> None:
    """The registrar is restored from nothing, and Redis is empty. Epochs come from the store, so they go on."""

    async def scenario(simulation: ClusterSimulation) -> None:
        await create_some(simulation, 5)
        await all_ended(simulation, 5)
        before = epochs(simulation)
        simulation.kill("scheduler-0", "scheduler-1")
        simulation.registrar.leases.clear()
        simulation.flush()
        await simulation.let_up("scheduler-0", "scheduler-1")
        await create_some(simulation, 20)
        await all_ended(simulation, 25, NO_STALL_SEC)
        assert all(now > then for now, then in zip(epochs(simulation), before, strict=True))

    assert_ran_once(play(scenario), 25)


def test_leases_forgotten() -> None:
    """The registrar loses all leases while the schedulers work."""

    async def scenario(simulation: ClusterSimulation) -> None:
        before = epochs(simulation)
        simulation.registrar.leases.clear()
        await create_some(simulation, 20)
        await all_ended(simulation, 20, NO_STALL_SEC)
        assert all(now >= then for now, then in zip(epochs(simulation), before, strict=True))

    assert_ran_once(play(scenario), 20)


def epochs(simulation: ClusterSimulation) -> list[int]:
    return [row[0] for row in simulation.disk.conn.execute("SELECT epoch FROM partitions ORDER BY partition")]


@pytest.mark.parametrize("recorded", [True, False])
def test_republished_batch(recorded: bool) -> None:
    """The owner dies after publish and before seal. If the recorders lag, the store has all of it as PENDING."""

    async def scenario(simulation: ClusterSimulation) -> None:
        if not recorded:
            lag(simulation)
        sealing = simulation.at("seal", "scheduler", lambda process: process.freeze())
        await create_some(simulation, 10, 2.0)
        await until(lambda: len(simulation.history.acks) == 10, NO_STALL_SEC)
        sealing[0].kill()
        assert unsealed(simulation)
        await until(lambda: not unsealed(simulation), NO_STALL_SEC)
        assert published(simulation) == 10 if recorded else published(simulation) > 10
        await until(lambda: simulation.broker.is_all_committed("p"), 5)

    assert_ran_once(play(scenario), 10)


@pytest.mark.slow
def test_full_worker() -> None:
    """A worker is full for two minutes, and has taken more than it can run.

    Another worker with a free slot runs it at once.
    """

    async def scenario(simulation: ClusterSimulation) -> None:
        simulation.knows_limits = False  # the dispatches that the full worker has claimed wait until the claims lapse
        simulation.kill("worker-1")
        await asyncio.sleep(7)
        await create_some(simulation, 3, do="sleep", sec=120)
        await all_reported(simulation, 2)
        await simulation.let_up("worker-1")
        await create_some(simulation, 12)
        await all_begun(simulation, 15, 15)

    assert_ran_once(play(scenario, concurrency=2), 15)


def test_pool_away() -> None:
    """Work without workers stays on the timeline, where nothing expires it."""

    async def scenario(simulation: ClusterSimulation) -> None:
        simulation.kill("worker-0", "worker-1")
        await asyncio.sleep(7)
        await create_some(simulation, 20)
        await asyncio.sleep(60)
        assert published(simulation) == 0
        assert rows(simulation, "SELECT key FROM timeline WHERE kind = 0", 20)
        await simulation.let_up("worker-0", "worker-1")
        await all_ended(simulation, 20, 10)

    assert_ran_once(play(scenario), 20)


def test_finish_on_lagging_partition() -> None:
    async def scenario(simulation: ClusterSimulation) -> None:
        await create_some(simulation, 8, do="sleep", sec=4)
        await all_reported(simulation, 8)
        lag(simulation)
        await simulation.stop("worker-0")
        await asyncio.sleep(60)
        assert rows(simulation, "SELECT id FROM executions WHERE state = 1", 8)
        simulation.mend()
        await all_ended(simulation, 8, 15)

    simulation = play(scenario)
    assert "worker-0" in ran_on(simulation)
    assert_ran_once(simulation, 8)
    assert lost(simulation) == 0


def test_start_after_verdict() -> None:
    """A worker is frozen before it reports a start, is judged lost, reports the start, and dies."""

    async def scenario(simulation: ClusterSimulation) -> None:
        simulation.kill("worker-1")
        await until(lambda: one(simulation, "SELECT count(*) FROM workers WHERE state = 'LOST'") == (1,))
        await create_some(simulation, 1, do="sleep", sec=3)
        await all_begun(simulation, 1)
        frozen = simulation.at(
            "report", "worker", lambda process: process.freeze(), given=lambda: a_second_in(simulation)
        )
        await until(lambda: frozen, 5)
        await until(lambda: one(simulation, "SELECT count(*) FROM workers WHERE state = 'LOST'") == (2,))
        simulation.at("report", "worker", lambda process: simulation.kill(process.name), done=True)
        frozen[0].wake()
        await all_reported(simulation, 1, 2)
        await until(lambda: State.FAILED_WORKER_LOST in paths(simulation)[0])

    def a_second_in(simulation: ClusterSimulation) -> bool:
        return simulation.world.now_ms() - simulation.history.effects[0].start_ms >= 1_000

    assert states(play(scenario)) == ["SUCCEEDED"]


def test_broker_away_40s() -> None:
    async def scenario(simulation: ClusterSimulation) -> None:
        await create_some(simulation, 12, do="sleep", sec=60)
        await all_reported(simulation, 12)
        away = asyncio.create_task(simulation.away("kafka", 40))
        await create_some(simulation, 10, 1.0)
        await away
        await all_ended(simulation, 10, 20)
        await asyncio.sleep(40)

    simulation = play(scenario)
    assert_ran_once(simulation, 22)
    assert lost(simulation) == 0


def test_recorder_forgets() -> None:
    """A worker dies, and every recorder is replaced before it is judged."""

    async def scenario(simulation: ClusterSimulation) -> None:
        await create_some(simulation, 8, do="sleep", sec=20)
        await all_reported(simulation, 8)
        simulation.kill("worker-0")
        await asyncio.sleep(15)
        for name in ("recorder-0", "recorder-1"):
            simulation.processes[name].kill()
        await asyncio.sleep(15)
        assert lost(simulation) == 0
        await until(lambda: lost(simulation), 30)

    simulation = play(scenario)
    assert states(simulation) == ["SUCCEEDED"] * 8
    assert len(simulation.history.effects) == 8 + ran_on(simulation)[:8].count("worker-0") > 8


@pytest.mark.slow
def test_store_away_10min() -> None:
    """The recorders reach the store last when it is back."""

    async def scenario(simulation: ClusterSimulation) -> None:
        await create_some(simulation, 8, do="sleep", sec=2)
        await all_begun(simulation, 8)
        lag(simulation)
        await simulation.away("store", 600)
        await asyncio.sleep(20)

    simulation = play(scenario)
    assert_ran_once(simulation, 8)
    assert lost(simulation) == 0


@pytest.mark.slow
@pytest.mark.parametrize("after_sec", [1, 310])
def test_offsets_forgotten(after_sec: float) -> None:
    """Finished dispatches are delivered again.

    Their acks last for five minutes; after that, the dispatches are too old to start.
    """

    async def scenario(simulation: ClusterSimulation) -> None:
        await create_some(simulation, 10)
        await create_some(simulation, 2, do="sleep", sec=after_sec + 30)
        await all_reported(simulation, 2)
        await asyncio.sleep(after_sec)
        simulation.broker.committed.clear()
        simulation.broker.rebalance()
        await until(lambda: simulation.broker.is_all_committed("p"), 10)

    assert_ran_once(play(scenario), 12)


@pytest.mark.slow
def test_publisher_wakes_late() -> None:
    """The publisher is frozen for six minutes with messages in its queue.

    Another instance has published them long ago. Some of them still run, under the same dispatch or the next, and are revoked
    when a user asks.
    """

    async def scenario(simulation: ClusterSimulation) -> None:
        frozen = simulation.at("publish", "scheduler", lambda process: process.freeze())
        at = simulation.instant() + timedelta(seconds=3)
        for payload in [{}, {"do": "sleep", "sec": 400}, {"do": "snooze, then sleep", "sec": 4000}] * 6:
            await created(simulation, simulation.spec(type=JobType.ONE_TIME, run_at=at, payload={"v": 1, **payload}))
        await until(lambda: frozen)
        await all_reported(simulation, 12, NO_STALL_SEC + 3)
        before = published(simulation)
        await asyncio.sleep(360)
        frozen[0].wake()
        await until(lambda: published(simulation) > before, 5)
        await until(lambda: simulation.broker.is_all_committed("p"), 10)
        for (execution,) in simulation.disk.conn.execute("SELECT id FROM executions WHERE dispatch = 2").fetchall():
            await simulation.ask("cancel", execution, lambda e, x=execution: e.services.executions.cancel(USER, x))  # type: ignore[misc]
        await all_ended(simulation, 12, 5)

    simulation = play(scenario)
    assert len(simulation.history.effects) == 24
    assert rows(simulation, "SELECT id FROM executions WHERE state = 5 AND dispatch = 1", 12)
    assert rows(simulation, "SELECT id FROM executions WHERE state = 6 AND dispatch = 2", 6)


def test_commit_refused_long_job() -> None:
    """The group is rebalanced after a start is acknowledged and before its offset is committed."""

    async def scenario(simulation: ClusterSimulation) -> None:
        refused = simulation.at("ack", "worker", lambda process: simulation.broker.rebalance(), done=True)
        await create_some(simulation, 1, do="sleep", sec=20)
        await until(lambda: refused)
        await until(lambda: simulation.broker.is_all_committed("p"), 2)

    assert_ran_once(play(scenario), 1)


@pytest.mark.parametrize("before_ms", [30, 100, 150])
def test_edit_api_dies(before_ms: int) -> None:
    """The edit of an early occurrence is in the store, and its revocation is not in Redis."""

    async def scenario(simulation: ClusterSimulation) -> None:
        job = await created(simulation, once(simulation, 5.0))
        assert job.next_fire_at is not None
        due_ms = round(job.next_fire_at.timestamp() * 1000)
        dead = simulation.at("revoke", "api", lambda process: process.kill())
        await asyncio.sleep((due_ms - before_ms - simulation.world.now_ms()) / 1000)
        spec = simulation.spec(type=JobType.ONE_TIME, run_at=job.next_fire_at, payload={"v": 2})
        await simulation.replace(job.job_id, spec)
        assert dead
        await asyncio.sleep(20)

    simulation = play(scenario)
    assert states(simulation) == ["SUCCEEDED"]
    assert len(simulation.history.effects) == 1


def test_cancel_then_flush() -> None:
    async def scenario(simulation: ClusterSimulation) -> None:
        await create_some(simulation, 1, 5.0)
        (execution,) = await until(lambda: one(simulation, "SELECT id FROM executions WHERE fired_ms IS NOT NULL"))
        await simulation.ask("cancel", execution, lambda e: e.services.executions.cancel(USER, execution))
        simulation.flush()

    simulation = play(scenario)
    assert states(simulation) == ["CANCELLED"]
    assert simulation.history.effects == []


def test_answered_from_stored_response() -> None:
    """Redis is away when a user pauses: the pause is stored, and the answer is an error.

    The same request under the same key is answered from the stored response. Workers know of the pause by then.
    """

    async def scenario(simulation: ClusterSimulation) -> None:
        workers = [simulation.processes["worker-0"], simulation.processes["worker-1"]]
        for worker in workers:
            worker.freeze()
        job = await created(simulation, once(simulation, 0.0))
        await until(lambda: published(simulation) == 1)
        pause = Idempotency("k", "f", lambda _: 200, msgspec.json.encode)

        async def again(engine: Any) -> None:
            with pytest.raises(AlreadyAnswered):
                await engine.services.jobs.pause(USER, job.job_id, pause)

        simulation.cut("api-0", "redis")
        assert (
            await simulation.ask("pause", job.job_id, lambda e: e.services.jobs.pause(USER, job.job_id, pause)) is None
        )
        simulation.mend()
        simulation.kill("recorder-0", "recorder-1")
        await simulation.ask("pause", job.job_id, again)
        for worker in workers:
            worker.wake()
        await asyncio.sleep(5)
        assert simulation.history.effects == []
        await simulation.let_up("recorder-0", "recorder-1")
        await simulation.ask("resume", job.job_id, lambda e: e.services.jobs.resume(USER, job.job_id))
        await all_ended(simulation, 1)

    assert states(play(scenario)) == ["SUCCEEDED"]


@pytest.mark.parametrize("flushed", [False, True])
def test_retry_storm(flushed: bool) -> None:
    """Every run of a handler fails for a while. Its retries wait, unless Redis lost the breaker."""

    async def scenario(simulation: ClusterSimulation) -> None:
        await create_some(simulation, 2 * MIN_RUNS, do="fail", times=1)
        await all_begun(simulation, 2 * MIN_RUNS)
        if flushed:
            await asyncio.sleep(5)
            simulation.flush()
        await until(lambda: rows(simulation, "SELECT id FROM executions WHERE state = 5", 2 * MIN_RUNS), 120)

    simulation = play(scenario)
    ran: Counter[str] = Counter()
    firsts, seconds = [], []
    for effect in simulation.history.effects:
        ran[effect.execution] += 1
        (firsts if ran[effect.execution] == 1 else seconds).append(effect.start_ms)
    assert set(ran.values()) == {2}
    waited = [at for at in seconds if at > max(firsts) + OPEN_MS - 5_000]
    assert len(waited) > MIN_RUNS
    assert rows(simulation, "SELECT id FROM executions WHERE attempt = 2", 2 * MIN_RUNS), "waiting costs no attempt"
    assert (
        one(simulation, "SELECT count(*) FROM executions WHERE transitions LIKE '%runs of handler act%retries wait%'")[
            0
        ]
        > MIN_RUNS
    )


def test_parked_stops_pool() -> None:
    """A worker dies with claims.

    Until they lapse, its messages are parked at the other worker, which goes on with the rest.
    """

    async def scenario(simulation: ClusterSimulation) -> None:
        simulation.broker.depth = 4

        def die(process: Process) -> None:
            simulation.kill(process.name)

        dead = simulation.at("pre_start_check", "worker", die, done=True)
        await create_some(simulation, 10, 2.0)
        await until(lambda: dead)
        await asyncio.sleep(8)
        assert not simulation.broker.is_all_committed("p")
        before = len(simulation.history.effects)
        await create_some(simulation, 20)
        await all_begun(simulation, before + 20, 3)
        assert not simulation.broker.is_all_committed("p")

    assert_ran_once(play(scenario, concurrency=2), 30)


def test_store_stall_7s() -> None:
    """No instance can win a partition during the stall. Afterwards all owners go on as before."""

    async def scenario(simulation: ClusterSimulation) -> None:
        simulation.knows_limits = False  # a stall is no fault in the history
        before = epochs(simulation)
        await create_some(simulation, 10, 2.0)
        simulation.network.stalled.add("store")
        await asyncio.sleep(7)
        simulation.network.stalled.clear()
        await all_ended(simulation, 10, NO_STALL_SEC)
        await asyncio.sleep(5)
        after = epochs(simulation)
        assert max(now - then for now, then in zip(after, before, strict=True)) <= 2
        await asyncio.sleep(15)
        assert epochs(simulation) == after

    assert_ran_once(play(scenario), 10)


@pytest.mark.parametrize("after_ms", [0, 1, 3, 5, 8, 10, 12, 15, 20, 30])
def test_trigger_races_delete(after_ms: int) -> None:
    """The trigger and the delete arrive at two APIs."""

    async def scenario(simulation: ClusterSimulation) -> None:
        await simulation.start("api-1")
        job = await created(simulation, once(simulation, 1000.0))

        async def ask(face: str, action: str, after_ms: int = 0) -> None:
            await asyncio.sleep(after_ms / 1000)
            simulation.process, simulation.engine = simulation.faces[face]
            await simulation.ask(action, job.job_id, lambda e: getattr(e.services.jobs, action)(USER, job.job_id))

        await asyncio.gather(ask("api-0", "trigger"), ask("api-1", "delete", after_ms))
        await asyncio.sleep(5)

    play(scenario, seed=after_ms)


def test_dead_before_ack() -> None:
    """A report is acknowledged, and its worker dies before it can ack the dispatch."""

    async def scenario(simulation: ClusterSimulation) -> None:
        dead = simulation.at("ack", "worker", lambda process: simulation.kill(process.name))
        await create_some(simulation, 1)
        await until(lambda: dead)
        assert not simulation.broker.is_all_committed("p")
        await until(lambda: simulation.broker.is_all_committed("p"), 45)
        await asyncio.sleep(5)

    assert_ran_once(play(scenario), 1)


def test_dead_before_ack_with_its_recorder() -> None:
    """A worker dies between the acknowledgement of its report and its ack.

    The recorder of its partition settles that report, and dies before it acks in the worker's place. The next recorder does.
    """

    async def scenario(simulation: ClusterSimulation) -> None:
        worker = simulation.at("ack", "worker", lambda process: simulation.kill(process.name))
        await create_some(simulation, 1)
        await until(lambda: worker)
        recorder = simulation.at("ack", "recorder", Process.kill)
        await until(lambda: recorder, 10)
        assert states(simulation) == ["SUCCEEDED"]
        await until(lambda: simulation.broker.is_all_committed("p"), 60)
        await asyncio.sleep(5)

    assert_ran_once(play(scenario), 1)


def test_duplicate_parked_then_flush() -> None:
    """A message is delivered twice to one worker. When the first run is settled, Redis loses the claim."""

    async def scenario(simulation: ClusterSimulation) -> None:
        simulation.broker.duplicate = 1.0
        await create_some(simulation, 1, do="sleep", sec=0.3)
        await all_ended(simulation, 1)
        assert simulation.world.now_ms() - simulation.history.effects[0].start_ms < 900
        simulation.flush()
        await until(lambda: simulation.broker.is_all_committed("p"), 5)
        await asyncio.sleep(10)

    assert_ran_once(play(scenario), 1)


def test_duplicate_parked_flush_while_running() -> None:
    """Redis loses a claim while the first delivery runs. The second delivery does not take its place."""

    async def scenario(simulation: ClusterSimulation) -> None:
        simulation.broker.duplicate = 1.0
        flushed = simulation.at("pre_start_check", "worker", lambda process: simulation.flush(), done=True)
        await create_some(simulation, 1, do="sleep", sec=10)
        await until(lambda: flushed)
        await until(lambda: simulation.broker.is_all_committed("p"), 5)

    assert_ran_once(play(scenario), 1)


def test_duplicate_waits_then_flush() -> None:
    """Both deliveries wait for a slot of one worker, because Redis lost its memory between their claims."""

    async def scenario(simulation: ClusterSimulation) -> None:
        simulation.kill("worker-1")
        await asyncio.sleep(7)
        await create_some(simulation, 2, do="sleep", sec=5)
        await all_reported(simulation, 2)
        simulation.broker.duplicate = 1.0
        flushed = simulation.at("claim", "worker", lambda process: simulation.flush(), done=True)
        await create_some(simulation, 1, do="sleep", sec=3)
        await until(lambda: flushed)
        await all_ended(simulation, 3, 15)

    simulation = play(scenario, concurrency=2)
    assert states(simulation) == ["SUCCEEDED"] * 3
    assert len(simulation.history.effects) == 3
    dispatches = simulation.disk.conn.execute("SELECT dispatch FROM executions ORDER BY 1").fetchall()
    assert dispatches == [(1,), (1,), (2,)], "dispatches in flight when Redis lost its memory are fired again"


def test_dead_after_settle() -> None:
    """The recorder dies between the commit of a batch and its answer.

    The next recorder finds the checkpoint behind the batch.
    """

    async def scenario(simulation: ClusterSimulation) -> None:
        dead = simulation.at("settle", "recorder", Process.kill, done=True, given=lambda: succeeded(simulation))
        await create_some(simulation, 10)
        await until(lambda: dead)
        await create_some(simulation, 10)

    def succeeded(simulation: ClusterSimulation) -> Any:
        return one(simulation, "SELECT 1 FROM executions WHERE state = 5")

    simulation = play(scenario)
    assert_ran_once(simulation, 20)
    assert one(simulation, "SELECT sum(runs), sum(succeeded) FROM usage") == (20, 20)


def test_idle_worker_dies() -> None:
    async def scenario(simulation: ClusterSimulation) -> None:
        await asyncio.sleep(12)
        simulation.kill("worker-0")
        await until(lambda: lost(simulation), 60)
        worker, partition = one(simulation, "SELECT id, partition FROM workers WHERE state = 'LOST'")
        entries = simulation.broker.log[partition]
        last_word = max(
            n for n, entry in enumerate(entries) if not isinstance(entry, Tick) and entry.worker_id == worker
        )
        ticks = Counter(entry.recorder for entry in entries[last_word:] if isinstance(entry, Tick))
        assert max(ticks.values()) == 6
        assert one(simulation, "SELECT count(*) FROM workers WHERE state = 'ALIVE'") == (1,)

    play(scenario)


def test_events_partitions_added() -> None:
    """Present workers go on in their partition. New workers may report to a new partition."""

    async def scenario(simulation: ClusterSimulation) -> None:
        await create_some(simulation, 8, do="sleep", sec=60)
        await all_reported(simulation, 8)
        simulation.broker.log += [[], []]
        await simulation.start("worker-2")
        await simulation.start("worker-3")
        await asyncio.sleep(50)
        assert rows(simulation, "SELECT DISTINCT partition FROM workers WHERE state = 'ALIVE'", 3)
        await create_some(simulation, 8)

    simulation = play(scenario)
    assert_ran_once(simulation, 16)
    assert lost(simulation) == 0


@pytest.mark.parametrize("away_sec", [2.0, 3.6, 5.5])
def test_store_away_between_ticks(away_sec: float) -> None:
    """The store is away for a moment, again and again, while workers run. A batch that is tried often has its ticks once."""

    async def scenario(simulation: ClusterSimulation) -> None:
        await create_some(simulation, 8, do="sleep", sec=60)
        await all_reported(simulation, 8)
        for _ in range(5):
            await simulation.away("store", away_sec)
            await asyncio.sleep(4.5)
        assert lost(simulation) == 0

    simulation = play(scenario)
    assert_ran_once(simulation, 8)
    assert lost(simulation) == 0


def test_tick_answers_lost() -> None:
    """The log has each tick of the recorders, and the answer is lost. The tick that is sent again is the same tick."""

    async def scenario(simulation: ClusterSimulation) -> None:
        def cut(process: Process, verb: str, done: bool) -> bool:
            if done and verb == "report" and process.name.startswith("recorder"):
                wire = (process.name, "kafka")
                simulation.network.cuts.add(wire)
                simulation.world.loop.call_later(0.01, simulation.network.cuts.discard, wire)
            return False

        await create_some(simulation, 8, do="sleep", sec=60)
        await all_reported(simulation, 8)
        simulation.network.observers.append(cut)
        await asyncio.sleep(40)
        simulation.network.observers.remove(cut)
        ticks = [entry for log in simulation.broker.log for entry in log if isinstance(entry, Tick)]
        assert max(Counter((tick.recorder, tick.number) for tick in ticks).values()) > 6
        assert lost(simulation) == 0

    simulation = play(scenario)
    assert_ran_once(simulation, 8)
    assert lost(simulation) == 0


def test_old_copy_of_redis() -> None:
    """Redis is restored from a copy that was made before a cancel. The copy has a generation, and lacks the revocation."""

    async def scenario(simulation: ClusterSimulation) -> None:
        workers = [simulation.processes["worker-0"], simulation.processes["worker-1"]]
        for worker in workers:
            worker.freeze()
        await create_some(simulation, 2)
        await until(lambda: published(simulation) == 2 and not unsealed(simulation), 4)
        copy = simulation.redis.copy()
        await asyncio.sleep(2)
        (execution,) = one(simulation, "SELECT id FROM executions")
        await simulation.ask("cancel", execution, lambda e: e.services.executions.cancel(USER, execution))
        simulation.restore(copy)
        await asyncio.sleep(2)
        assert simulation.redis.generations["p"] > 0, "an older copy is another generation"
        for worker in workers:
            worker.wake()
        await all_ended(simulation, 2, 30)

    simulation = play(scenario)
    assert sorted(states(simulation)) == ["CANCELLED", "SUCCEEDED"]
    assert len(simulation.history.effects) == 1
