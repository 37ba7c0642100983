"""A deterministic world for asyncio programs: virtual time, seeded order, processes that die like kill -9.

Real asyncio code runs here unchanged, in one thread. Time stands still while anything can run and then jumps to the
next timer, so an hour costs as much as what happens in it. Everything that is left to chance is drawn from the seed.

Order. What is ready waits in lanes. A lane is one chain of cause and effect: the steps of a task together with the
callbacks that they (or their timers) scheduled; it is first in, first out, always. Which process goes next, and which
of its lanes, is drawn. So two callbacks of one task are never reordered, and nothing else can be relied upon: a task
that was just created may start late, and one process may be many steps ahead of another at the same instant. With
`shuffle=False` each process has one lane, as in the real loop, and only the processes are interleaved by chance.

Processes. A process is carried in the context of its handles, as a context variable, so whatever its code starts is
its own. A killed process keeps all it had, but nothing of it ever runs again; its coroutines are closed, silently,
when the world is. A process that kills or freezes itself runs on until its next await: no Python code can be stopped
in the middle without unwinding it.

Three things would break determinism. Garbage collection could run a finalizer at any allocation: it is off during a
run. Task groups keep their tasks in a set, which is ordered by address: our tasks hash to their serial number.
`asyncio.as_completed` puts bare coroutines into a set before it starts them: give it tasks.
"""

import asyncio
import contextlib
import gc
import heapq
import math
import sys
import warnings
import weakref
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from contextvars import Context, ContextVar, copy_context
from dataclasses import dataclass
from enum import StrEnum
from random import Random
from types import TracebackType
from typing import Any, NoReturn, Self, TypeVar

from noonday.ports.clock import wait_by_the_loop

T = TypeVar("T")

START_MS = 1_893_456_000_000
"""2030-01-01T00:00:00Z: the reference clock of every world starts here."""


class SimulationError(Exception):
    """A run could not end properly. The message has the seed and the last steps."""


class SimulationStuck(SimulationError):
    """The director can never end, or did not end within the limits of the run."""


class SimulationFailed(SimulationError):
    """An exception that no task awaited; it is the cause of this one."""


class FaultKind(StrEnum):
    KILL = "KILL"
    FREEZE = "FREEZE"
    WAKE = "WAKE"
    CLOCK_STEP = "CLOCK_STEP"


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault of a process, caused by a plan or by a test."""

    process: str
    kind: FaultKind
    step: int
    """The number of steps that the process had made."""
    now_ms: int
    by_ms: int | None = None
    """The planned duration of a freeze, None if open-ended; or the size of a clock step."""


@dataclass(frozen=True, slots=True)
class FaultPlan:
    """Faults drawn at each step of each process. Planned freezes end by themselves."""

    kill: float = 0.0
    """The chance of a kill per step."""
    freeze: float = 0.0
    freeze_ms: tuple[int, int] = (1, 10_000)
    """The shortest and the longest freeze."""
    window_ms: tuple[int, int] = (0, sys.maxsize)
    """First and last moment of a fault, counted from the start of the world."""
    limit: int = sys.maxsize
    """The largest number of kills and freezes."""
    only: tuple[str, ...] | None = None
    """Names of the processes to harm, in all their incarnations; None for every process."""


class World:
    """One simulation. Two worlds of the same seed that run the same code do the same, step by step.

    Use it as a context manager, or call `close`: coroutines that are left over are closed there, and only there their
    `finally` blocks run. Read what you want to check before.
    """

    def __init__(
        self, seed: int, *, shuffle: bool = True, trace_size: int = 1_000, max_steps: int = 10_000_000
    ) -> None:
        self.seed = seed
        self.random = Random(seed)
        """For the test's own choices; the order of steps and the faults have streams of their own."""
        self.loop = SimLoop(Random(f"order {seed}"), shuffle=shuffle, trace_size=trace_size)
        self.faults: FaultPlan | None = None
        self.fault_log: list[Fault] = []
        self._fault_random = Random(f"faults {seed}")
        self._faults_done = 0
        self._max_steps = max_steps
        self._director = Process(self, "director", 1)
        self._processes = [self._director]
        self._suspects: list[tuple[Process, asyncio.Task[Any]]] = []
        self.loop.belongs_to(self._director, self._after_step)
        _spare_the_old_from_collection()

    @property
    def steps(self) -> int:
        """The number of handles that have run, over all processes."""
        return self.loop.steps

    @property
    def trace(self) -> list[str]:
        """The last steps, notes and faults, oldest first."""
        return self.loop.trace()

    def now_ms(self) -> int:
        """The reference clock, which no clock step affects."""
        return START_MS + self.loop.now_us // 1_000

    def note(self, text: str) -> None:
        """Add a line to the trace."""
        self.loop.note(text)

    def process(self, name: str) -> "Process":
        """Start a process. A name may be used again after its former process died."""
        namesakes = [process for process in self._processes if process.name == name]
        if any(process.alive for process in namesakes):
            raise ValueError(f"process {name!r} is alive; kill it before starting it again")
        process = Process(self, name, len(namesakes) + 1)
        self._processes.append(process)
        return process

    def run(self, director: Coroutine[Any, Any, T], until_ms: int | None = None) -> T:
        """Run a coroutine that stands outside all processes to its end, and with it whatever else is ready or due.

        May be called again: the processes go on where they were. Raises what the director raises; SimulationFailed
        when a callback fails, or a spawned task fails and nobody has taken its exception when the clock moves on;
        SimulationStuck when nothing is left to run, the next timer is after `until_ms` on the reference clock, or
        the steps of this run exceed `max_steps`.
        """
        limit_us = sys.maxsize if until_ms is None else (until_ms - START_MS) * 1_000
        with self.loop.running():
            task = self.loop.create_task(director, name="director", context=Context())
            self._drive(task, limit_us, self.steps + self._max_steps)
            # A failure in a process is raised instead of the director's own, which it most likely caused.
            task._log_traceback = False
            self._raise_failure()
        return self._outcome(task)

    def close(self) -> None:
        """Dispose of everything. Raises SimulationFailed for an exception that was never taken from a live task."""
        if self.loop.is_closed():
            return
        failure = self.loop.take_failure() or self._untaken_failure()
        self.loop.dispose(self._processes)
        _collect_the_young()
        if failure:
            raise self._failed(failure)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        try:
            self.close()
        except SimulationFailed:
            if error is None:
                raise

    def _drive(self, director: asyncio.Task[Any], limit_us: int, max_steps: int) -> None:
        loop = self.loop
        while not director.done() and loop.failure is None:
            if loop.runnable:
                loop.step()
                if loop.steps >= max_steps:
                    self._stuck(f"the director has not ended after {self._max_steps} steps")
            elif self._has_failed_tasks():
                return
            elif (due_us := loop.next_due_us()) is None:
                self._stuck("nothing is ready, no timers are left, and the director has not ended")
            elif due_us > limit_us:
                self._stuck("the director has not ended in time")
            else:
                loop.advance(due_us)

    def _outcome(self, director: asyncio.Task[T]) -> T:
        try:
            return director.result()
        except BaseException as error:
            error.add_note(self._where())
            raise

    def _after_step(self, process: "Process") -> None:
        if process.on_step is not None:
            process.on_step(process.steps)
        if self.faults is not None:
            self._draw_fault(self.faults, process)

    def _draw_fault(self, plan: FaultPlan, process: "Process") -> None:
        if not self._may_harm(plan, process):
            return
        draw = self._fault_random.random()
        if draw < plan.kill + plan.freeze:
            self._faults_done += 1
            if draw < plan.kill:
                process.kill()
            else:
                process.freeze(self._fault_random.randint(*plan.freeze_ms))

    def _may_harm(self, plan: FaultPlan, process: "Process") -> bool:
        first_ms, last_ms = plan.window_ms
        return (
            process is not self._director
            and process.alive
            and not process.frozen
            and self._faults_done < plan.limit
            and first_ms * 1_000 <= self.loop.now_us <= last_ms * 1_000
            and (plan.only is None or process.name in plan.only)
        )

    def _log_fault(self, process: "Process", kind: FaultKind, by_ms: int | None = None) -> None:
        self.fault_log.append(Fault(str(process), kind, process.steps, self.now_ms(), by_ms))
        self.note(f"{kind} {process}" if by_ms is None else f"{kind} {process} by {by_ms} ms")

    def _watch(self, process: "Process", task: asyncio.Task[Any]) -> None:
        def look_at_its_end(task: asyncio.Task[Any]) -> None:
            if _is_untaken(task):
                self._suspects.append((process, task))

        task.add_done_callback(look_at_its_end, context=Context())

    def _has_failed_tasks(self) -> bool:
        """Whether a spawned task failed and no live task could take its exception."""
        if not self._suspects:
            return False
        self._suspects = [(process, task) for process, task in self._suspects if process.alive and _is_untaken(task)]
        for process, task in self._suspects:
            if not process.frozen:
                self.loop.fail(_failure_of(task))
                return True
        return False

    def _untaken_failure(self) -> "_Failure | None":
        living = (process for process in self._processes if process.alive)
        untaken = (task for process in living for task in process.tasks() if _is_untaken(task))
        return next(map(_failure_of, untaken), None)

    def _raise_failure(self) -> None:
        self._has_failed_tasks()
        if failure := self.loop.take_failure():
            raise self._failed(failure)

    def _failed(self, failure: "_Failure") -> SimulationFailed:
        error = SimulationFailed(f"{failure.text}\n{self._where()}")
        error.__cause__ = failure.cause
        return error

    def _stuck(self, what: str) -> NoReturn:
        waiting = [f"  {process}: {task.get_name()}" for process in self._processes for task in process.pending()]
        raise SimulationStuck("\n".join([what, "unfinished tasks:", *waiting, self._where()]))

    def _where(self) -> str:
        place = f"simulation seed {self.seed}, step {self.steps}, reference time {self.now_ms()}; last steps:"
        return "\n".join([place, *(f"  {line}" for line in self.trace[-40:])])


class Process:
    """A simulated operating-system process. Made by `World.process`."""

    def __init__(self, world: World, name: str, incarnation: int) -> None:
        self.name = name
        self.incarnation = incarnation
        self.alive = True
        self.frozen = False
        self.steps = 0
        """The number of handles of this process that have run."""
        self.on_step: Callable[[int], None] | None = None
        """Called after each step with the number of steps so far; the place to kill or freeze at step k."""
        self.lane = _Lane(self)
        self.lanes: list[_Lane] = []
        """Lanes with a ready handle."""
        self._world = world
        self._loop = world.loop
        self._context = Context()
        self._context.run(_current.set, self)
        self._tasks: list[weakref.ref[SimTask]] = []
        self._buried: list[SimTask] = []
        self._sweep_at = 64
        self._mourners: list[asyncio.Future[None]] = []
        self._alarm: asyncio.TimerHandle | None = None

    def __str__(self) -> str:
        return self.name if self.incarnation == 1 else f"{self.name}#{self.incarnation}"

    def spawn(self, coro: Coroutine[Any, Any, T], name: str | None = None) -> asyncio.Task[T]:
        """Start a coroutine in this process. If it fails and nobody awaits it, the world fails."""
        if not self.alive:
            coro.close()
            raise RuntimeError(f"process {self} is dead")
        task = self._loop.create_task(coro, name=name, context=self._context.copy())
        self._world._watch(self, task)
        return task

    def kill(self) -> None:
        """Kill the process: nothing of it runs from now on, no finally block and no except clause."""
        if not self.alive:
            return
        self._stop_running()
        self.alive = self.frozen = False
        self._buried = self.pending()
        self._silence_alarm()
        self._world._log_fault(self, FaultKind.KILL)
        for mourner in self._mourners:
            if not mourner.done():
                mourner.set_result(None)

    def freeze(self, for_ms: int | None = None) -> None:
        """Freeze the process: handles that are ready or due wait until `wake`, or for the given time."""
        if not self.alive or self.frozen:
            return
        self._stop_running()
        self.frozen = True
        self._world._log_fault(self, FaultKind.FREEZE, for_ms)
        if for_ms is not None:
            self._alarm = self._loop.call_later(for_ms / 1_000, self.wake, context=Context())

    def wake(self) -> None:
        """Let a frozen process run again; the handles that waited are ready now."""
        if not self.frozen:
            return
        self.frozen = False
        self._silence_alarm()
        self._world._log_fault(self, FaultKind.WAKE)
        if self.lanes:
            self._loop.runnable.append(self)

    async def wait_dead(self) -> None:
        """Return once the process is dead. For a director that starts it again."""
        if self.alive:
            mourner = self._loop.create_future()
            self._mourners.append(mourner)
            await mourner

    def tasks(self) -> list["SimTask"]:
        """Tasks that still exist, in the order of their creation."""
        return [task for ref in self._tasks if (task := ref()) is not None]

    def pending(self) -> list["SimTask"]:
        return [task for task in self.tasks() if not task.done()]

    def adopt(self, task: "SimTask") -> None:
        self._tasks.append(weakref.ref(task))
        if len(self._tasks) >= self._sweep_at:
            self._tasks = [weakref.ref(task) for task in self.tasks() if not task.done() or _is_untaken(task)]
            self._sweep_at = 64 + 2 * len(self._tasks)

    def offer(self, lane: "_Lane") -> None:
        """Note a lane that has become ready."""
        if not self.lanes and self.alive and not self.frozen:
            self._loop.runnable.append(self)
        self.lanes.append(lane)

    def forget(self) -> None:
        for lane in self.lanes:
            lane.clear()
        self.lanes.clear()
        self._buried.clear()
        self._mourners.clear()

    def _stop_running(self) -> None:
        if self.lanes and not self.frozen:
            self._loop.runnable.remove(self)

    def _silence_alarm(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None


class SimClock:
    """The clock of one process: the reference clock plus an offset that a test may step."""

    def __init__(self, world: World, process: Process) -> None:
        self.offset_ms = 0
        self._world = world
        self._process = process

    def now_ms(self) -> int:
        return self._world.now_ms() + self.offset_ms

    def monotonic(self) -> float:
        return self._world.loop.time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def wait_for(self, event: asyncio.Event, seconds: float) -> bool:
        return await wait_by_the_loop(event, seconds)

    def step(self, ms: int) -> None:
        """Set the wall clock forward, or back if negative. Sleeps and the monotonic clock do not notice."""
        self.offset_ms += ms
        self._world._log_fault(self._process, FaultKind.CLOCK_STEP, ms)


class KeptClock(SimClock):
    """The clock of a process with an offset, as far as the process has not measured and corrected it."""

    def __init__(self, world: World, process: Process, ahead_ms: int) -> None:
        super().__init__(world, process)
        self.ahead_ms = ahead_ms
        """By how many ms its own clock is ahead of the reference clock. `offset_ms` is the correction."""

    def now_ms(self) -> int:
        return super().now_ms() + self.ahead_ms

    def system_ms(self) -> float:
        """The uncorrected clock."""
        return START_MS + self._world.loop.now_us / 1_000 + self.ahead_ms

    def step(self, ms: int) -> None:
        self.ahead_ms += ms
        self._world._log_fault(self._process, FaultKind.CLOCK_STEP, ms)


def current_process() -> Process | None:
    """The process whose code is running; None in the director and outside a run."""
    return _current.get(None)


class SimLoop(asyncio.AbstractEventLoop):
    """An event loop without a clock, sockets or threads. An undefined method raises NotImplementedError."""

    def __init__(self, order: Random, *, shuffle: bool, trace_size: int) -> None:
        self.now_us = 0
        self.steps = 0
        self.runnable: list[Process] = []
        """Processes with a ready handle that are neither frozen nor dead."""
        self.failure: _Failure | None = None
        self._draw = order.random
        self._shuffle = shuffle
        self._trace: deque[tuple[int, int, object, str]] = deque(maxlen=trace_size)
        self._timers: list[tuple[int, int, _Handle]] = []
        self._timer_serial = 0
        self._task_serial = 0
        self._is_running = False
        self._closing = False
        self._closed = False

    def belongs_to(self, director: Process, after_step: Callable[[Process], None]) -> None:
        """Name the process of handles that belong to no process, and the function that is called after each step of a live
        process."""
        self._director = director
        self._lane = director.lane
        self._after_step = after_step

    def step(self) -> None:
        """Run one ready handle. There must be a runnable process."""
        process = self.runnable[self._drawn_index(len(self.runnable))]
        handle = self._take(process)
        if handle._cancelled:
            return
        self.steps += 1
        process.steps += 1
        self._lane = handle.lane
        self._trace.append((self.steps, self.now_us, process, handle.label))
        self._call(handle)
        if process.alive:
            self._after_step(process)

    def next_due_us(self) -> int | None:
        timers = self._timers
        while timers and not timers[0][2].is_awaited:
            self._make_ready(heapq.heappop(timers)[2])
        return timers[0][0] if timers else None

    def advance(self, to_us: int) -> None:
        """Advance the clock, and make the handles ready that are due by then."""
        self.now_us = max(self.now_us, to_us)
        while self._timers and self._timers[0][0] <= to_us:
            self._make_ready(heapq.heappop(self._timers)[2])

    def note(self, text: str) -> None:
        self._trace.append((self.steps, self.now_us, "*", text))

    def trace(self) -> list[str]:
        return [f"{step} +{us / 1_000:.3f} ms {who}: {what}" for step, us, who, what in self._trace]

    def fail(self, failure: "_Failure") -> None:
        """Stop the run after this step. The first failure is raised."""
        if self.failure is None:
            self.failure = failure

    def take_failure(self) -> "_Failure | None":
        failure, self.failure = self.failure, None
        return failure

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Be the running loop of this thread, with garbage collection off."""
        if asyncio._get_running_loop() is not None:
            raise RuntimeError("a simulation cannot run inside a running event loop")
        if self._closed:
            raise RuntimeError("the world is closed")
        hooks = sys.get_asyncgen_hooks()
        collecting = gc.isenabled()
        gc.disable()
        sys.set_asyncgen_hooks(firstiter=None, finalizer=self._finish_generator)
        asyncio._set_running_loop(self)
        self._is_running = True
        try:
            yield
        finally:
            self._is_running = False
            asyncio._set_running_loop(None)
            sys.set_asyncgen_hooks(*hooks)
            if collecting:
                gc.enable()

    def dispose(self, processes: list[Process]) -> None:
        """Close every remaining coroutine silently, and drop all waiting handles."""
        if self._is_running:
            raise RuntimeError("a world cannot be closed while it runs")
        self._closing = True
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for task in [task for process in processes for task in process.pending()]:
                _close(task.get_coro())
            self._timers.clear()
            self.runnable.clear()
            for process in processes:
                process.forget()
        self._closed = True

    # The methods that asyncio calls on a loop.

    def time(self) -> float:
        return self.now_us / 1_000_000

    def call_soon(self, callback: Callable[..., object], *args: Any, context: Context | None = None) -> "_Handle":
        handle = self._handle(callback, args, context)
        self._make_ready(handle)
        return handle

    call_soon_threadsafe = call_soon

    def call_later(
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> "_Handle":
        handle = self._handle(callback, args, context)
        due_us = self.now_us + _microseconds(delay)
        handle._when = due_us / 1_000_000
        if due_us == self.now_us:
            self._make_ready(handle)
        else:
            self._timer_serial += 1
            heapq.heappush(self._timers, (due_us, self._timer_serial, handle))
        return handle

    def call_at(
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> "_Handle":
        return self.call_later(when - self.time(), callback, *args, context=context)

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(
        self, coro: Coroutine[Any, Any, T], *, name: object = None, context: Context | None = None
    ) -> "SimTask":
        self._task_serial += 1
        label = str(name) if name is not None else f"{_name_of(coro)}-{self._task_serial}"
        if context is None:
            context = copy_context()
        return SimTask(coro, self, label, context, self._task_serial, context.get(_current, self._director))

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> NoReturn:
        raise RuntimeError(f"no threads in a simulation: {_name_of(func)} must be called on the loop")

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        source = context.get("task") or context.get("future")
        of = f" ({source.get_name()})" if isinstance(source, asyncio.Task) else ""
        self.fail(_Failure(f"{context['message']}{of}", context.get("exception")))

    def get_debug(self) -> bool:
        return False

    def get_task_factory(self) -> None:
        return None

    def is_running(self) -> bool:
        return self._is_running

    def is_closed(self) -> bool:
        return self._closed

    async def shutdown_asyncgens(self) -> None:
        """Return at once: generators end with their process."""

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        """Return at once: there is no executor."""

    def _handle(self, callback: Callable[..., object], args: tuple[Any, ...], context: Context | None) -> "_Handle":
        if self._closed:
            raise RuntimeError("the world is closed")
        if context is None:
            context = copy_context()
        process = context.get(_current, self._director)
        owner = getattr(callback, "__self__", None)
        if isinstance(owner, SimTask):
            lane, label = owner.lane, owner.label
        else:
            lane, label = self._lane, _name_of(callback)
        if lane.process is not process or not self._shuffle:
            lane = process.lane
        return _Handle(callback, args, context, lane, label)

    def _make_ready(self, handle: "_Handle") -> None:
        lane = handle.lane
        if handle._cancelled:
            return
        if not lane:
            lane.process.offer(lane)
        lane.append(handle)

    def _take(self, process: Process) -> "_Handle":
        lanes = process.lanes
        at = self._drawn_index(len(lanes))
        lane = lanes[at]
        handle = lane.popleft()
        if not lane:
            lanes[at] = lanes[-1]
            lanes.pop()
            if not lanes:
                self.runnable.remove(process)
        return handle

    def _drawn_index(self, length: int) -> int:
        return int(self._draw() * length) if length > 1 else 0

    def _call(self, handle: "_Handle") -> None:
        try:
            handle._context.run(handle._callback, *handle._args)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            self.call_exception_handler({"message": f"exception in callback {handle.label}", "exception": error})

    def _finish_generator(self, generator: AsyncGenerator[Any, Any]) -> None:
        if not self._closing:
            self.create_task(generator.aclose())


class SimTask(asyncio.Task[Any]):
    """A task that knows its lane, and whose place in a set does not depend on its address."""

    __slots__ = ("label", "lane", "serial")

    def __init__(
        self, coro: Coroutine[Any, Any, Any], loop: SimLoop, name: str, context: Context, serial: int, process: Process
    ) -> None:
        self.serial = serial
        self.label = name
        self.lane = _Lane(process)
        super().__init__(coro, loop=loop, name=name, context=context)
        process.adopt(self)

    def __hash__(self) -> int:
        return self.serial


_current: ContextVar[Process] = ContextVar("simulated process")


class _Lane(deque["_Handle"]):
    """Handles that are ready, first in, first out."""

    __slots__ = ("process",)

    def __init__(self, process: Process) -> None:
        super().__init__()
        self.process = process


class _Handle(asyncio.TimerHandle):
    __slots__ = ("label", "lane")

    # The original asks its loop for the debug mode and keeps tracebacks; a run makes thousands of these.
    def __init__(
        self, callback: Callable[..., object], args: tuple[Any, ...], context: Context, lane: _Lane, label: str
    ) -> None:
        self._callback = callback
        self._args = args
        self._context = context
        self._cancelled = False
        self.lane = lane
        self.label = label

    def __repr__(self) -> str:
        return f"<{self.label} of {self.lane.process}{' cancelled' if self._cancelled else ''}>"

    @property
    def is_awaited(self) -> bool:
        """Whether the clock may be advanced for it."""
        return not self._cancelled and self.lane.process.alive

    def cancel(self) -> None:
        self._cancelled = True
        self._callback = self._args = None

    def cancelled(self) -> bool:
        return self._cancelled

    def when(self) -> float:
        return self._when


@dataclass(frozen=True)
class _Failure:
    text: str
    cause: BaseException | None


def _failure_of(task: asyncio.Task[Any]) -> _Failure:
    return _Failure(f"task {task.get_name()} failed and nobody awaited it: {task.exception()!r}", task.exception())


def _is_untaken(task: asyncio.Task[Any]) -> bool:
    """Whether it ended with an exception that no task has taken."""
    return task.done() and not task.cancelled() and task._log_traceback


def _microseconds(seconds: float) -> int:
    """Round up, except for the noise of floats. A wait is never zero, because a loop that waits would not end."""
    if seconds <= 0:
        return 0
    return max(1, math.ceil(min(seconds, 1e12) * 1e6 - 0.01))


def _name_of(thing: object) -> str:
    return getattr(thing, "__qualname__", None) or type(thing).__name__


_undying: list[Coroutine[Any, Any, Any]] = []


def _close(coro: Any) -> None:
    # A coroutine that awaits in a finally block refuses to close once for each such await.
    for _ in range(100):
        try:
            coro.close()
        except (Exception, asyncio.CancelledError, GeneratorExit):
            continue
        return
    _undying.append(coro)


_open_worlds = 0
_closed_worlds = 0


def _spare_the_old_from_collection() -> None:
    """Let the collection at the end of a world examine the objects of that world only."""
    global _open_worlds
    _open_worlds += 1
    gc.freeze()


def _collect_the_young() -> None:
    """Collect now those objects that would otherwise warn of their end in the middle of another test."""
    global _open_worlds, _closed_worlds
    _open_worlds -= 1
    _closed_worlds += 1
    # The caller still holds this world, so it outlives its own collection; now and then all such worlds are collected.
    if _closed_worlds % 32 == 0:
        gc.unfreeze()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gc.collect()
    if not _open_worlds:
        gc.unfreeze()
