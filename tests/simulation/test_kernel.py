import asyncio
import contextlib
import gc
import os
import subprocess
import sys
import weakref
from collections.abc import AsyncIterator, Callable
from itertools import count
from pathlib import Path
from random import Random

import pytest

from tests.simulation.kernel import (
    START_MS,
    FaultKind,
    FaultPlan,
    Process,
    SimClock,
    SimulationFailed,
    SimulationStuck,
    World,
    current_process,
)

# Order and determinism


async def busy_town(world: World) -> list[str]:
    """Three processes with everything whose order chance could decide: groups, timers, a shared queue, faults."""
    heard: list[str] = []
    square: asyncio.Queue[str] = asyncio.Queue()

    async def shout(name: str, times: int) -> None:
        for n in range(times):
            await square.put(f"{name} {n}")
            await asyncio.sleep(world.random.choice([0, 0.001, 0.005]))

    async def run_on(name: str) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.02), asyncio.TaskGroup() as group:
                for child in range(5):
                    group.create_task(shout(f"{name}.{child}", 10))

    async def listen() -> None:
        while True:
            heard.append(await square.get())

    for name in ("a", "b", "c"):
        world.process(name).spawn(run_on(name))
    world.process("listener").spawn(listen())
    await asyncio.sleep(1)
    return heard


def traced(seed: int) -> list[str]:
    with World(seed, trace_size=100_000) as world:
        world.faults = FaultPlan(kill=0.003, freeze=0.01, freeze_ms=(1, 30))
        heard = world.run(busy_town(world))
        return world.trace + heard


def test_a_seed_gives_the_same_trace_again() -> None:
    assert traced(7) == traced(7)


@pytest.mark.slow
def test_different_seeds_give_different_traces() -> None:
    assert len({tuple(traced(seed)) for seed in range(20)}) == 20


@pytest.mark.slow
def test_a_trace_does_not_depend_on_the_interpreters_hash_seed() -> None:
    program = "from tests.simulation.test_kernel import traced; print(*traced(7), sep='\\n')"
    root = Path(__file__).parents[2]

    def run(hash_seed: str) -> str:
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        command = [sys.executable, "-c", program]
        return subprocess.run(command, cwd=root, env=environment, check=True, capture_output=True, text=True).stdout

    assert run("1").splitlines() == run("2").splitlines() == traced(7)


@pytest.mark.slow
def test_tasks_are_started_in_any_order_but_each_keeps_its_own() -> None:
    def order(seed: int) -> tuple[str, ...]:
        seen: list[str] = []

        async def walk(name: str) -> None:
            for n in range(2):
                seen.append(f"{name}{n}")
                await asyncio.sleep(0)

        async def director() -> None:
            await asyncio.gather(walk("a"), walk("b"))

        with World(seed) as world:
            world.run(director())
        return tuple(seen)

    orders = {order(seed) for seed in range(100)}
    assert len(orders) == 6  # every interleaving of two pairs
    assert all(o.index("a0") < o.index("a1") and o.index("b0") < o.index("b1") for o in orders)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_callbacks_of_one_task_run_in_order_and_before_its_next_step(seed: int) -> None:
    seen: list[int] = []

    async def schedule(loop: asyncio.AbstractEventLoop) -> None:
        for n in range(5):
            loop.call_soon(seen.append, n)
        await asyncio.sleep(0)
        seen.append(5)
        for n in range(6, 9):
            loop.call_later(1, seen.append, n)
        await asyncio.sleep(1)
        seen.append(9)

    async def director() -> None:
        noise = [asyncio.create_task(asyncio.sleep(0)) for _ in range(5)]
        await asyncio.gather(schedule(asyncio.get_running_loop()), *noise)

    with World(seed) as world:
        world.run(director())
    assert seen == list(range(10))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_without_shuffling_a_process_runs_first_in_first_out(seed: int) -> None:
    seen: list[int] = []

    async def append(n: int) -> None:
        seen.append(n)

    async def director() -> None:
        await asyncio.gather(*(append(n) for n in range(10)))

    with World(seed, shuffle=False) as world:
        world.run(director())
    assert seen == list(range(10))


def test_a_process_may_get_ahead_of_another_at_one_instant() -> None:
    def lead(seed: int) -> int:
        steps = {"a": 0, "b": 0}
        leads = []

        async def walk(name: str) -> None:
            for _ in range(10):
                steps[name] += 1
                leads.append(abs(steps["a"] - steps["b"]))
                await asyncio.sleep(0)

        async def director() -> None:
            await asyncio.gather(*(world.process(name).spawn(walk(name)) for name in steps))

        with World(seed) as world:
            world.run(director())
        return max(leads)

    assert max(lead(seed) for seed in range(20)) >= 5


# Time


def test_timers_run_in_order_of_their_time_without_waiting_for_it() -> None:
    seen: list[tuple[str, float]] = []

    async def director() -> None:
        loop = asyncio.get_running_loop()
        for delay in (3600, 0.5, 86_400, 0.1, 7):
            loop.call_later(delay, lambda delay=delay: seen.append((f"after {delay}", loop.time())))
        loop.call_at(2, lambda: seen.append(("at 2", loop.time())))
        await asyncio.sleep(100_000)

    with World(1) as world:
        world.run(director())
        assert world.now_ms() == START_MS + 100_000_000
    assert seen == [
        ("after 0.1", 0.1),
        ("after 0.5", 0.5),
        ("at 2", 2),
        ("after 7", 7),
        ("after 3600", 3600),
        ("after 86400", 86_400),
    ]


def test_a_cancelled_timer_neither_runs_nor_moves_the_clock() -> None:
    async def director() -> None:
        asyncio.get_running_loop().call_later(5, pytest.fail).cancel()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(50), asyncio.timeout(1):
                await asyncio.Event().wait()

    with World(1) as world:
        world.run(director())
        with pytest.raises(SimulationStuck):
            world.run(asyncio.Event().wait())
        assert world.now_ms() == START_MS + 1_000


def test_waiting_out_a_deadline_always_ends() -> None:
    async def director(clock: SimClock) -> None:
        deadline = 0.1 + 0.2  # a little more than 0.3
        while clock.monotonic() < deadline:
            await clock.sleep(deadline - clock.monotonic())

    with World(1, max_steps=100) as world:
        world.run(director(SimClock(world, world.process("patient"))))
        assert world.now_ms() == START_MS + 300


def test_a_timer_without_delay_does_not_wait_for_the_others_to_rest() -> None:
    async def director() -> None:
        called = asyncio.Event()
        asyncio.get_running_loop().call_later(0, called.set)
        await asyncio.sleep(0)
        assert called.is_set()

    with World(1) as world:
        world.run(director())


def test_a_clock_step_moves_the_wall_clock_of_one_process_and_no_sleep() -> None:
    with World(1) as world:
        near, far = (SimClock(world, world.process(name)) for name in ("near", "far"))

        async def director() -> None:
            before = near.monotonic()
            nap = asyncio.create_task(near.sleep(10))
            await far.sleep(4)
            near.step(-3_600_000)
            near.step(1_000)
            await nap
            assert near.monotonic() - before == 10

        world.run(director())
        assert world.now_ms() == far.now_ms() == START_MS + 10_000
        assert near.now_ms() == START_MS + 10_000 - 3_599_000
        assert [(f.process, f.kind, f.now_ms, f.by_ms) for f in world.fault_log] == [
            ("near", FaultKind.CLOCK_STEP, START_MS + 4_000, -3_600_000),
            ("near", FaultKind.CLOCK_STEP, START_MS + 4_000, 1_000),
        ]


# What asyncio offers


def test_timeout_cancels_its_block() -> None:
    async def director() -> float:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5):
                await asyncio.sleep(60)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.sleep(60), 5)
        return asyncio.get_running_loop().time()

    with World(1) as world:
        assert world.run(director()) == 10


def test_a_task_group_cancels_the_siblings_of_a_failed_task() -> None:
    ended: list[str] = []

    async def sibling(name: str) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(name)

    async def fail() -> None:
        await asyncio.sleep(1)
        raise LookupError("gone")

    async def director() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(sibling("a"))
            group.create_task(sibling("b"))
            group.create_task(fail())

    with World(1) as world, pytest.raises(ExceptionGroup) as caught:
        world.run(director())
    assert caught.group_contains(LookupError, match="gone")
    assert sorted(ended) == ["a", "b"]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_locks_queues_and_conditions_keep_their_promises(seed: int) -> None:
    async def director() -> None:
        lock, room, queue = asyncio.Lock(), asyncio.Semaphore(2), asyncio.Queue[int](maxsize=3)
        inside = {"lock": 0, "room": 0}

        async def visit(place: str, door: asyncio.Lock | asyncio.Semaphore, most: int) -> None:
            async with door:
                inside[place] += 1
                assert inside[place] <= most
                await asyncio.sleep(0)
                inside[place] -= 1

        async def consume() -> list[int]:
            return [await queue.get() for _ in range(20)]

        async with asyncio.TaskGroup() as group:
            for _ in range(5):
                group.create_task(visit("lock", lock, 1))
                group.create_task(visit("room", room, 2))
            consumed = group.create_task(consume())
            for n in range(20):
                await queue.put(n)
        assert consumed.result() == list(range(20))

    with World(seed) as world:
        world.run(director())


def test_a_dropped_async_generator_is_closed() -> None:
    seen: list[str] = []

    async def numbers() -> AsyncIterator[int]:
        try:
            yield 1
            yield 2
        finally:
            await asyncio.sleep(1)
            seen.append("closed")

    async def director() -> None:
        async for _ in numbers():
            break
        await asyncio.sleep(2)

    with World(1) as world:
        world.run(director())
        assert seen == ["closed"]


def test_threads_are_refused() -> None:
    async def director() -> None:
        await asyncio.to_thread(print)

    with World(1) as world, pytest.raises(RuntimeError, match="no threads in a simulation"):
        world.run(director())


def test_a_simulation_leaves_the_thread_as_it_was() -> None:
    async def director() -> None:
        assert not gc.isenabled()

    hooks, frozen = sys.get_asyncgen_hooks(), gc.get_freeze_count()
    with World(1) as world:
        world.run(director())
        assert asyncio._get_running_loop() is None
    assert gc.isenabled()
    assert gc.get_freeze_count() == frozen
    assert sys.get_asyncgen_hooks() == hooks


# Processes


def test_everything_a_process_starts_belongs_to_it() -> None:
    seen: list[str] = []

    def look() -> None:
        seen.append(str(current_process()))

    async def child() -> None:
        look()

    async def parent(shared: asyncio.Future[None]) -> None:
        loop = asyncio.get_running_loop()
        shared.add_done_callback(lambda _: look())
        loop.call_soon(look)
        loop.call_later(1, look)
        async with asyncio.TaskGroup() as group:
            group.create_task(child())
        await shared
        look()

    async def director(process: Process) -> None:
        shared = asyncio.get_running_loop().create_future()
        task = process.spawn(parent(shared))
        await asyncio.sleep(2)
        assert current_process() is None
        shared.set_result(None)
        await task

    with World(1) as world:
        world.run(director(world.process("home")))
    assert seen == ["home"] * 5


def test_killed_process_runs_no_finally_and_no_except_until_the_world_is_closed() -> None:
    seen: list[str] = []

    async def sleeper() -> None:
        try:
            seen.append("start")
            await asyncio.sleep(10)
            seen.append("woke")
        except BaseException as error:
            seen.append(f"caught {error!r}")
            raise
        finally:
            seen.append("finally")

    async def group() -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(sleeper())
        seen.append("group ended")

    async def unreachable() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            seen.append("finally")

    async def director(process: Process) -> None:
        process.spawn(group())
        process.spawn(sleeper())
        process.spawn(unreachable())
        await asyncio.sleep(5)
        process.kill()
        assert not process.alive
        gc.collect()
        await asyncio.sleep(100)

    with World(1) as world:
        world.run(director(world.process("victim")))
        gc.collect()
        assert seen == ["start", "start"]


def test_a_process_that_kills_itself_stops_at_its_next_await() -> None:
    seen: list[str] = []

    async def die(process: Process) -> None:
        process.kill()
        seen.append("last words")
        await asyncio.sleep(0)
        seen.append("resurrected")

    async def director(process: Process) -> None:
        process.spawn(die(process))
        await process.wait_dead()
        await asyncio.sleep(1)

    with World(1) as world:
        world.run(director(world.process("victim")))
    assert seen == ["last words"]


@pytest.mark.parametrize("outcome", ["result", "exception", "cancel"])
def test_future_completed_for_a_dead_waiter_resumes_no_task(outcome: str) -> None:
    seen: list[str] = []

    async def wait(shared: asyncio.Future[None]) -> None:
        try:
            await shared
        finally:
            seen.append("resumed")

    async def complete(shared: asyncio.Future[None]) -> None:
        if outcome == "result":
            shared.set_result(None)
        elif outcome == "exception":
            shared.set_exception(LookupError())
        else:
            shared.cancel()

    async def director(world: World) -> None:
        shared: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiter, completer = world.process("waiter"), world.process("completer")
        waiter.spawn(wait(shared))
        await asyncio.sleep(1)
        waiter.kill()
        await completer.spawn(complete(shared))
        del shared
        await asyncio.sleep(1)

    with World(1) as world:
        world.run(director(world))
        assert seen == []


def test_a_process_can_be_started_again_under_its_name() -> None:
    async def director(world: World) -> None:
        first = world.process("worker")
        with pytest.raises(ValueError, match="alive"):
            world.process("worker")
        first.kill()
        second = world.process("worker")
        assert await second.spawn(asyncio.sleep(1, "done")) == "done"
        assert (str(first), str(second), second.name) == ("worker", "worker#2", "worker")

    with World(1) as world:
        world.run(director(world))


def test_a_dead_process_starts_nothing() -> None:
    with World(1) as world:
        process = world.process("victim")
        process.kill()
        with pytest.raises(RuntimeError, match="dead"):
            process.spawn(asyncio.sleep(1))


class PingPong:
    """Two processes that pass a ball until each has had it ten times, and record what they saw."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.log: list[str] = []
        self.ping, self.pong = world.process("ping"), world.process("pong")

    def play(self) -> None:
        self.world.run(self._direct())

    async def _direct(self) -> None:
        there, back = asyncio.Queue[int](), asyncio.Queue[int]()
        self.ping.spawn(self._throw("ping", there, back, first=True))
        self.pong.spawn(self._throw("pong", back, there, first=False))
        await asyncio.sleep(100)

    async def _throw(self, name: str, to: asyncio.Queue[int], by: asyncio.Queue[int], *, first: bool) -> None:
        try:
            for n in range(10):
                if first:
                    await to.put(n)
                ball = await by.get()
                self.log.append(f"{name} {ball}")
                await asyncio.sleep(0.01)
                if not first:
                    await to.put(ball)
        finally:
            self.log.append(f"{name} left")


def clean_game() -> tuple[list[str], int]:
    with World(3) as world:
        game = PingPong(world)
        game.play()
        return game.log, game.pong.steps


@pytest.mark.slow
def test_a_process_can_be_killed_at_each_of_its_steps() -> None:
    clean, steps = clean_game()
    assert steps > 30
    assert clean[-1] in ("ping left", "pong left")

    lengths = []
    for k in range(1, steps):
        with World(3) as world:
            game = PingPong(world)
            game.pong.on_step = at_step(k, game.pong.kill)
            game.play()
            assert game.pong.steps == k
            assert [(f.process, f.kind, f.step) for f in world.fault_log] == [("pong", FaultKind.KILL, k)]
            assert game.log == clean[: len(game.log)]
            lengths.append(len(game.log))
    assert lengths == sorted(lengths)
    assert lengths[0] == 0
    assert lengths[-1] == len(clean) - 3  # only the last pass and the two farewells are missing


def at_step(k: int, act: Callable[[], None]) -> Callable[[int], None]:
    def on_step(step: int) -> None:
        if step == k:
            act()

    return on_step


@pytest.mark.slow
def test_a_process_frozen_at_any_step_does_the_same_later() -> None:
    clean, steps = clean_game()
    for k in range(1, steps):
        with World(3) as world:
            game = PingPong(world)
            game.pong.on_step = at_step(k, lambda game=game: game.pong.freeze(for_ms=5_000))
            game.play()
            assert sorted(game.log) == sorted(clean)
            assert [fault.kind for fault in world.fault_log] == [FaultKind.FREEZE, FaultKind.WAKE]
            frozen, woken = world.fault_log
            assert (frozen.by_ms, woken.now_ms - frozen.now_ms, woken.step) == (5_000, 5_000, k)


def test_frozen_process_keeps_ready_and_due_handles_until_it_wakes() -> None:
    seen: list[tuple[str, float]] = []

    async def tick() -> None:
        for _ in range(4):
            await asyncio.sleep(1)
            seen.append(("tick", asyncio.get_running_loop().time()))

    async def hear(bell: asyncio.Event) -> None:
        await bell.wait()
        seen.append(("bell", asyncio.get_running_loop().time()))

    async def director(process: Process) -> None:
        bell = asyncio.Event()
        process.spawn(tick())
        process.spawn(hear(bell))
        await asyncio.sleep(1.5)
        process.freeze()
        bell.set()
        await asyncio.sleep(8.5)
        assert process.frozen
        assert seen == [("tick", 1)]
        process.wake()
        assert not process.frozen
        await asyncio.sleep(10)

    with World(1) as world:
        world.run(director(world.process("sleeper")))
    assert sorted(seen) == [("bell", 10), ("tick", 1), ("tick", 10), ("tick", 11), ("tick", 12)]


def test_a_freeze_that_was_ended_by_hand_does_not_end_the_next_one() -> None:
    async def director(process: Process) -> None:
        process.freeze(for_ms=1_000)
        process.wake()
        process.freeze()
        await asyncio.sleep(2)
        assert process.frozen

    with World(1) as world:
        world.run(director(world.process("sleeper")))


def test_a_frozen_process_can_be_killed() -> None:
    async def director(process: Process) -> None:
        process.spawn(asyncio.sleep(1))
        process.freeze(for_ms=5_000)
        process.kill()
        await asyncio.sleep(10)
        assert (process.alive, process.frozen, process.steps) == (False, False, 0)

    with World(1) as world:
        world.run(director(world.process("victim")))


def test_the_timers_of_a_dead_process_do_not_move_the_clock() -> None:
    async def director(process: Process) -> None:
        task = process.spawn(asyncio.sleep(100))
        await asyncio.sleep(1)
        process.kill()
        await task

    with World(1) as world:
        with pytest.raises(SimulationStuck):
            world.run(director(world.process("victim")))
        assert world.now_ms() == START_MS + 1_000


# Fault plans


async def endless() -> None:
    for _ in count():
        await asyncio.sleep(0.01)


def faulty_world(seed: int, plan: FaultPlan) -> World:
    async def director(world: World) -> None:
        for name in ("a", "b", "store"):
            world.process(name).spawn(endless())
        await asyncio.sleep(10)

    with World(seed) as world:
        world.faults = plan
        world.run(director(world))
        return world


@pytest.mark.slow
def test_planned_faults_keep_to_their_window_their_number_and_their_processes() -> None:
    plan = FaultPlan(kill=0.01, freeze=0.1, freeze_ms=(20, 40), window_ms=(2_000, 3_000), limit=4, only=("a", "b"))
    kinds = set()
    for seed in range(20):
        log = faulty_world(seed, plan).fault_log
        harm = [fault for fault in log if fault.kind != FaultKind.WAKE]
        kinds |= {fault.kind for fault in harm}
        assert 1 <= len(harm) <= 4
        assert all(2_000 <= fault.now_ms - START_MS <= 3_000 for fault in harm)
        assert all(20 <= fault.by_ms <= 40 for fault in harm if fault.kind == FaultKind.FREEZE)
        assert {fault.process for fault in harm} <= {"a", "b"}
    assert kinds == {FaultKind.KILL, FaultKind.FREEZE}


def test_drawing_faults_does_not_disturb_the_tests_own_choices() -> None:
    assert faulty_world(5, FaultPlan(freeze=0.1)).random.random() == Random(5).random()


def test_director_can_restart_processes_that_a_plan_kills() -> None:
    async def keep_alive(world: World) -> int:
        async with asyncio.timeout(60):
            for _ in range(5):
                process = world.process("worker")
                process.spawn(endless())
                await process.wait_dead()
        return process.incarnation

    with World(1) as world:
        world.faults = FaultPlan(kill=0.1)
        assert world.run(keep_alive(world)) == 5
        assert [fault.process for fault in world.fault_log] == ["worker", *(f"worker#{n}" for n in range(2, 6))]


# How a run fails


async def fail_after(seconds: float) -> None:
    await asyncio.sleep(seconds)
    raise LookupError("lost")


def test_a_spawned_task_that_fails_unawaited_fails_the_world_at_once() -> None:
    with World(42) as world:
        world.note("before the end")
        kept = world.process("unlucky").spawn(fail_after(1), name="keeper")
        with pytest.raises(SimulationFailed, match="keeper failed and nobody awaited it") as caught:
            world.run(asyncio.sleep(100))
        assert isinstance(caught.value.__cause__, LookupError)
        assert "seed 42" in str(caught.value)
        assert "before the end" in str(caught.value)
        assert world.now_ms() == START_MS + 1_000
        assert kept.done()


def test_a_failure_that_is_awaited_is_the_awaiters() -> None:
    async def director(process: Process) -> None:
        with pytest.raises(LookupError):
            await process.spawn(fail_after(1))
        await asyncio.sleep(100)

    with World(1) as world:
        world.run(director(world.process("unlucky")))


@pytest.mark.slow
def test_a_failure_whose_awaiter_is_frozen_waits_for_it() -> None:
    async def parent(process: Process) -> str:
        child = process.spawn(fail_after(1))
        child.add_done_callback(lambda _: process.freeze(for_ms=5_000))
        try:
            await child
        except LookupError:
            return "taken"
        return "missed"

    async def director(process: Process) -> str:
        return await process.spawn(parent(process))

    for seed in range(10):
        with World(seed) as world:
            assert world.run(director(world.process("home"))) == "taken"


def test_failure_whose_awaiter_is_dead_is_ignored() -> None:
    async def parent(process: Process) -> None:
        child = process.spawn(fail_after(1))
        child.add_done_callback(lambda _: process.kill())
        with contextlib.suppress(LookupError):
            await child

    async def director(process: Process) -> None:
        process.spawn(parent(process))
        await asyncio.sleep(100)

    with World(1) as world:
        world.run(director(world.process("home")))
        assert [fault.kind for fault in world.fault_log] == [FaultKind.KILL]


def test_failure_in_a_process_is_raised_instead_of_the_directors_own() -> None:
    async def director(process: Process) -> None:
        task = process.spawn(fail_after(0))
        for _ in range(100):
            await asyncio.sleep(0)
        assert not task.done()

    world = World(1)
    with pytest.raises(SimulationFailed) as caught:
        world.run(director(world.process("unlucky")))
    assert isinstance(caught.value.__cause__, LookupError)
    world.close()


def test_an_inner_task_that_is_dropped_with_its_exception_fails_the_world() -> None:
    async def careless() -> None:
        task = asyncio.create_task(fail_after(1))
        await asyncio.sleep(2)
        del task
        await asyncio.sleep(100)

    with World(1) as world:
        world.process("careless").spawn(careless())
        with pytest.raises(SimulationFailed, match="never retrieved"):
            world.run(asyncio.sleep(1_000))


def test_untaken_inner_failure_is_raised_when_the_world_is_closed() -> None:
    class Service:
        async def start(self) -> None:
            self.task = asyncio.create_task(self.run())

        async def run(self) -> None:
            raise LookupError(f"lost by {self}")

    world = World(1)
    world.process("service").spawn(Service().start())
    world.run(asyncio.sleep(10))
    with pytest.raises(SimulationFailed, match="nobody awaited"):
        world.close()


def test_a_failing_callback_fails_the_world() -> None:
    async def director() -> None:
        asyncio.get_running_loop().call_later(1, {}.pop, "missing")
        await asyncio.sleep(100)

    with World(1) as world, pytest.raises(SimulationFailed, match="exception in callback") as caught:
        world.run(director())
    assert isinstance(caught.value.__cause__, KeyError)


def test_the_directors_own_failure_comes_with_the_seed() -> None:
    with World(4711) as world, pytest.raises(LookupError) as caught:
        world.run(fail_after(1))
    assert "seed 4711" in caught.value.__notes__[0]


def test_a_director_that_waits_for_nothing_is_stuck() -> None:
    async def director(world: World) -> None:
        dead, frozen = world.process("dead"), world.process("frozen")
        task = dead.spawn(asyncio.sleep(10), name="unfinished")
        frozen.spawn(asyncio.sleep(10), name="held")
        await asyncio.sleep(1)
        dead.kill()
        frozen.freeze()
        await task

    with World(9) as world, pytest.raises(SimulationStuck, match="no timers are left") as caught:
        world.run(director(world))
    for words in ("director: director", "dead: unfinished", "frozen: held", "seed 9", "KILL dead"):
        assert words in str(caught.value)


def test_a_director_that_does_not_end_in_time_is_stuck() -> None:
    with World(1) as world:
        with pytest.raises(SimulationStuck, match="in time"):
            world.run(endless(), until_ms=START_MS + 5_000)
        assert world.now_ms() == START_MS + 5_000


def test_a_loop_that_never_lets_time_pass_is_stuck() -> None:
    async def spin() -> None:
        for _ in count():
            await asyncio.sleep(0)

    with World(1, max_steps=1_000) as world, pytest.raises(SimulationStuck, match="1000 steps"):
        world.run(spin())


# The end of a world


def test_a_world_can_run_again_where_it_stopped() -> None:
    ticks: list[float] = []

    async def tick(clock: SimClock) -> None:
        while True:
            await clock.sleep(1)
            ticks.append(clock.monotonic())

    with World(1) as world:
        process = world.process("ticker")
        process.spawn(tick(SimClock(world, process)))
        world.run(asyncio.sleep(2.5))
        assert ticks == [1, 2]
        world.run(asyncio.sleep(2))
        assert ticks == [1, 2, 3, 4]


@pytest.mark.slow
def test_closing_disposes_of_unfinished_coroutines_silently() -> None:
    class Luggage:
        pass

    luggage: list[weakref.ref[Luggage]] = []

    async def stubborn() -> None:
        carried = Luggage()
        luggage.append(weakref.ref(carried))
        never_awaited = asyncio.sleep(1)
        try:
            async with asyncio.timeout(100), asyncio.TaskGroup() as group:
                group.create_task(asyncio.sleep(50))
                await asyncio.sleep(50)
        finally:
            await asyncio.sleep(1)
            await never_awaited

    async def generate() -> AsyncIterator[int]:
        try:
            while True:
                yield 1
                await asyncio.sleep(50)
        finally:
            await asyncio.sleep(1)

    async def iterate() -> None:
        async for _ in generate():
            await asyncio.sleep(1)

    async def in_a_circle() -> None:
        generator = generate()
        await anext(generator)
        circle: list[object] = [asyncio.sleep(1), generator]
        circle.append(circle)
        await asyncio.Event().wait()

    async def director(world: World) -> None:
        living, dead, unborn = (world.process(name) for name in ("living", "dead", "unborn"))
        for process in (living, dead):
            for coro in (stubborn(), iterate(), in_a_circle()):
                process.spawn(coro)
        await asyncio.sleep(1.5)
        dead.kill()
        unborn.spawn(stubborn())
        unborn.kill()

    with World(1) as world:
        world.run(director(world))
        assert len(luggage) == 2
    assert [carried() for carried in luggage] == [None, None]
    gc.collect()
    world.close()
    with pytest.raises(RuntimeError, match="closed"):
        world.loop.call_soon(print)


def test_a_world_cannot_be_closed_from_within() -> None:
    async def director(world: World) -> None:
        with pytest.raises(RuntimeError, match="while it runs"):
            world.close()

    with World(1) as world:
        world.run(director(world))


async def test_a_world_cannot_run_inside_another_loop() -> None:
    director = asyncio.sleep(0)
    with World(1) as world, pytest.raises(RuntimeError, match="running event loop"):
        world.run(director)
    director.close()


def test_steps_are_counted_over_all_processes_and_the_trace_is_bounded() -> None:
    with World(1, trace_size=10) as world:
        a, b = world.process("a"), world.process("b")
        a.spawn(endless())
        b.spawn(endless())
        world.run(asyncio.sleep(1))
        assert min(a.steps, b.steps) >= 100
        assert world.steps >= a.steps + b.steps
        assert len(world.trace) == 10
