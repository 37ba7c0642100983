"""The servers of a cluster as the stages see them: they outlive processes, answer late or not at all, and lose data."""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import TypeVar

import msgspec

from noonday.drivers.memory.breakers import MemoryBreakers
from noonday.drivers.memory.hot_index import MemoryHotIndex
from noonday.drivers.sqlite.connection import PendingWork, SqliteDatabase, Work
from noonday.model.breaker import CallCounts
from noonday.model.claim import FENCED, ClaimRefused, DispatchRef, Revocation
from noonday.model.errors import (
    BusUnavailable,
    IndexUnavailable,
    LeasesUnavailable,
    SignalsUnavailable,
    StoreUnavailable,
    Unavailable,
)
from noonday.model.firing import Entry
from noonday.model.ids import ExecutionId, InstanceId, JobId, WorkerId
from noonday.model.message import Dispatch, LogBatch, LogEntry, Oversized, Report, Token
from noonday.ports.breakers import Breakers
from noonday.ports.bus import Bus
from noonday.ports.leases import Leases
from noonday.ports.signals import Signals
from tests.simulation.embedded import Disk
from tests.simulation.history import History, Logged, Passed, Span
from tests.simulation.kernel import Process, SimClock, World

T = TypeVar("T")
E = TypeVar("E", bound=Dispatch | LogEntry)
Observer = Callable[[Process, str, bool], bool]
"""Called for each call (process, verb, whether the server has done it). Returns whether it has acted on it."""
LOG_PARTITIONS = 2
POOL_PARTITIONS = 3
SESSION_SEC = 6.0
LAPSE_MS = 30_000
TTL_SEC = 3.0
STORE, REDIS, KAFKA, ETCD = "store", "redis", "kafka", "etcd"


@dataclass
class Network:
    """The connections between processes and servers. A cut swallows requests, or answers, or both."""

    world: World
    random: Random
    cuts: set[tuple[str, str]] = field(default_factory=set)
    """(process, server); `*` stands for every process."""
    away: set[str] = field(default_factory=set)
    stalled: set[str] = field(default_factory=set)
    """Servers that accept requests and answer when the stall is over."""
    observers: list[Observer] = field(default_factory=list)

    def reaches(self, process: Process, server: str) -> bool:
        return server not in self.away and (process.name, server) not in self.cuts

    async def call(
        self,
        process: Process,
        clock: SimClock,
        server: str,
        work: Callable[[], T],
        failing: type[Unavailable],
        verb: str = "",
    ) -> T:
        """Make one round trip. The server may have done its work although the answer is lost."""
        verb = verb or verb_of(work)
        await clock.sleep(self.random.random() * 0.003)
        if self._is_noticed(process, verb, done=False):
            await clock.sleep(0)  # a process that was killed or frozen makes no further step
        while server in self.stalled:
            await clock.sleep(0.1)
        if not self.reaches(process, server):
            await clock.sleep(0.5)
            raise failing(f"{server} does not answer")
        done = work()
        self._is_noticed(process, verb, done=True)
        await clock.sleep(self.random.random() * 0.003)
        if not self.reaches(process, server):
            await clock.sleep(0.5)
            raise failing(f"{server} did it, perhaps, and the answer is lost")
        return done

    def _is_noticed(self, process: Process, verb: str, *, done: bool) -> bool:
        noticed = [observer(process, verb, done) for observer in self.observers]
        return any(noticed)


def verb_of(work: Callable[..., object]) -> str:
    """Return the driver method that a piece of work was written in."""
    return work.__qualname__.split(".<locals>")[0].split(".")[-1]


class ServerDatabase(SqliteDatabase):
    """A store that many processes use. Each request is a transaction."""

    def __init__(self, disk: Disk, network: Network, process: Process, clock: SimClock) -> None:
        self.path = "store"
        self._disk = disk
        self._network = network
        self._process = process
        self._clock = clock

    async def write(self, work: Work[T]) -> T:
        request: PendingWork[T] = PendingWork(work, asyncio.get_running_loop().create_future())
        await self._network.call(
            self._process, self._clock, STORE, lambda: self._disk.commit([request]), StoreUnavailable, verb_of(work)
        )
        request.resolve()
        return await request.future

    async def read(self, work: Work[T]) -> T:
        return await self._network.call(
            self._process, self._clock, STORE, lambda: work(self._disk.conn), StoreUnavailable, verb_of(work)
        )

    async def close(self) -> None:
        """Do nothing: sessions end with their process."""


@dataclass
class Broker:
    """Pool topics with consumer groups, and the log."""

    world: World
    random: Random
    topics: dict[str, list[list[Dispatch]]] = field(default_factory=dict)
    committed: dict[tuple[str, int], int] = field(default_factory=dict)
    log: list[list[LogEntry]] = field(default_factory=lambda: [[] for _ in range(LOG_PARTITIONS)])
    dead_letters: list[tuple[LogEntry, str]] = field(default_factory=list)
    members: dict[str, dict[WorkerId, float]] = field(default_factory=dict)
    """The members of each pool, and when each last asked."""
    capacity: dict[str, dict[WorkerId, int]] = field(default_factory=dict)
    generation: int = 0
    joined: int = 0
    duplicate: float = 0.02
    """The chance that a message is written twice."""
    loses: int = 0
    """The number of next messages that are acknowledged and lost."""
    lost: dict[tuple[str, int], list[int]] = field(default_factory=dict)
    """(execution, dispatch) -> when a message of it was lost."""
    depth: int | None = None
    """The number of unread messages of a pool that use up its credit; None: no limit."""
    read_to: dict[tuple[str, int], int] = field(default_factory=dict)
    largest_bytes: int | None = None
    """The size of the largest accepted message, if there is a bound."""
    rebalances: int = 0
    """The number of rebalances, at which every member starts at the committed offsets."""
    arrival: asyncio.Event = field(default_factory=asyncio.Event)
    """Set, and replaced, when there is something new to fetch."""

    def topic(self, pool: str) -> list[list[Dispatch]]:
        return self.topics.setdefault(pool, [[] for _ in range(POOL_PARTITIONS)])

    def publish(self, dispatches: Sequence[Dispatch]) -> None:
        for dispatch in dispatches:
            if self.loses:
                self.loses -= 1
                self.lost.setdefault((dispatch.execution_id, dispatch.number), []).append(self.world.now_ms())
                self.world.note(f"the broker loses dispatch {dispatch.number} of {dispatch.execution_id}")
                continue
            partition = self.topic(dispatch.pool)[int(dispatch.execution_id[-1], 16) % POOL_PARTITIONS]
            partition.append(dispatch)
            if self.random.random() < self.duplicate:
                partition.append(dispatch)
        self.wake()

    def wake(self) -> None:
        """Let the processes look that wait for something to fetch."""
        self.arrival.set()
        self.arrival = asyncio.Event()

    def refused(self, entries: Sequence[E]) -> list[Oversized[E]]:
        """Return the messages that are larger than allowed. They are refused, and all others are accepted."""
        if self.largest_bytes is None:
            return []
        sizes = [(entry, len(msgspec.msgpack.encode(entry))) for entry in entries]
        return [Oversized(entry, size, self.largest_bytes) for entry, size in sizes if size > self.largest_bytes]

    def rebalance(self) -> None:
        """Rebalance a pool. Taken and uncommitted messages are delivered again; late commits of them are refused."""
        self.rebalances += 1
        self.wake()
        self.world.note("the broker rebalances")

    def credit(self, pool: str) -> int:
        if self.depth is None:
            return 50
        ends = [len(partition) for partition in self.topic(pool)]
        return self.depth - sum(end - self.read_to.get((pool, n), 0) for n, end in enumerate(ends))

    def is_all_committed(self, pool: str) -> bool:
        return all(self.committed.get((pool, n), 0) == len(each) for n, each in enumerate(self.topic(pool)))

    def assigned(self, pool: str, worker: WorkerId) -> list[int]:
        """The partitions of a pool that are assigned to a worker now."""
        alive = self._alive(pool)
        if worker not in alive:
            return []
        place = alive.index(worker)
        return [n for n in range(POOL_PARTITIONS) if n % len(alive) == place]

    def _alive(self, pool: str) -> list[WorkerId]:
        now = self.world.loop.time()
        seen = self.members.get(pool, {})
        gone = [worker for worker, at in seen.items() if now - at > SESSION_SEC]
        for worker in gone:
            del seen[worker]
            self.generation += 1
        return list(seen)


class SimBus(Bus):
    """The broker as one process sees it."""

    def __init__(self, broker: Broker, network: Network, process: Process, clock: SimClock, history: History) -> None:
        self._broker = broker
        self._history = history
        self._network = network
        self._process = process
        self._clock = clock
        self._position: dict[tuple[str, int], int] = {}
        self._rebalances = broker.rebalances
        self._open: dict[tuple[str, int], dict[int, tuple[ExecutionId, int]]] = {}
        """Taken and unprocessed messages, by partition: offset -> dispatch."""

    async def _call(self, work: Callable[[], T]) -> T:
        return await self._network.call(self._process, self._clock, KAFKA, work, BusUnavailable)

    async def publish(self, dispatches: Sequence[Dispatch]) -> Sequence[Oversized[Dispatch]]:
        oversized = self._broker.refused(dispatches)
        sent = _without(dispatches, oversized)
        await self._call(lambda: self._broker.publish(sent))
        return oversized

    async def take(self, worker: WorkerId, room: Mapping[str, int], wait_sec: float) -> list[Dispatch]:
        taken = await self._call(lambda: self._take(worker, room))
        if not taken and await self._waits_for(lambda: self._is_waiting(worker, room), wait_sec):
            taken = await self._call(lambda: self._take(worker, room))
        return taken

    async def _waits_for(self, arrived: Callable[[], bool], wait_sec: float) -> bool:
        """Wait at the broker until there is something to fetch, and a moment longer. Returns whether there is."""
        give_up_at = self._clock.monotonic() + wait_sec
        while not arrived():
            rest_sec = give_up_at - self._clock.monotonic()
            if rest_sec <= 0:
                return False
            await self._clock.wait_for(self._broker.arrival, rest_sec)
        await self._clock.sleep(self._network.random.random() * 0.05)
        return True

    def _is_waiting(self, worker: WorkerId, room: Mapping[str, int]) -> bool:
        broker = self._broker
        return self._rebalances != broker.rebalances or any(
            self._position.get((pool, n), broker.committed.get((pool, n), 0)) < len(broker.topic(pool)[n])
            for pool, count in room.items()
            if count
            for n in broker.assigned(pool, worker)
        )

    def _take(self, worker: WorkerId, room: Mapping[str, int]) -> list[Dispatch]:
        broker = self._broker
        taken: list[Dispatch] = []
        if self._rebalances != broker.rebalances:
            self._rebalances = broker.rebalances
            self._position.clear()
            self._open.clear()
        for pool in broker.capacity:
            if worker in broker.capacity[pool]:
                broker.members.setdefault(pool, {})[worker] = broker.world.loop.time()
        for pool, count in room.items():
            mine = broker.assigned(pool, worker)
            self._drop_revoked(pool, mine)
            for partition in mine:
                self._position.setdefault((pool, partition), broker.committed.get((pool, partition), 0))
            for _ in range(count):
                heads = [(pool, n) for n in mine if self._position[pool, n] < len(broker.topic(pool)[n])]
                if not heads:
                    break
                taken.append(self._take_from(min(heads, key=lambda place: self._head(place).due_ms)))
        return taken

    def _head(self, place: tuple[str, int]) -> Dispatch:
        return self._broker.topic(place[0])[place[1]][self._position[place]]

    def _take_from(self, place: tuple[str, int]) -> Dispatch:
        message, at = self._head(place), self._position[place]
        name = (message.execution_id, message.number)
        self._history.taken.setdefault(name, {}).setdefault(str(self._process), self._broker.world.now_ms())
        self._open.setdefault(place, {})[at] = name
        self._position[place] = self._broker.read_to[place] = at + 1
        return message

    def _drop_revoked(self, pool: str, mine: Sequence[int]) -> None:
        for place in [place for place in self._position if place[0] == pool and place[1] not in mine]:
            del self._position[place]
            self._open.pop(place, None)

    async def mark_processed(self, worker: WorkerId, dispatches: Sequence[Dispatch]) -> None:
        if self._rebalances != self._broker.rebalances:
            return
        names = {(dispatch.execution_id, dispatch.number) for dispatch in dispatches}
        for place, taken in self._open.items():
            for offset in [offset for offset, name in taken.items() if name in names]:
                del taken[offset]
            if place in self._position:
                safe = min(taken, default=self._position[place])
                if self._network.reaches(self._process, KAFKA):
                    self._commit(place, safe)

    def _commit(self, place: tuple[str, int], offset: int) -> None:
        before = self._broker.committed.get(place, 0)
        self._broker.committed[place] = max(offset, before)
        now_ms = self._broker.world.now_ms()
        self._history.passed += [
            Passed(now_ms, dispatch.execution_id, dispatch.number, dispatch.fired_ms)
            for dispatch in self._broker.topic(place[0])[place[1]][before:offset]
        ]

    async def credit(self) -> Mapping[str, int]:
        if not self._network.reaches(self._process, KAFKA):
            return {}
        return {pool: self._broker.credit(pool) for pool in self._broker.capacity if self._broker._alive(pool)}

    async def join(self, worker: WorkerId, pools: Mapping[str, int]) -> int:
        def work() -> int:
            for pool, slots in pools.items():
                self._broker.capacity.setdefault(pool, {})[worker] = slots
                self._broker.members.setdefault(pool, {})[worker] = self._broker.world.loop.time()
            self._broker.joined += 1
            return self._broker.joined % len(self._broker.log)

        return await self._call(work)

    async def leave(self, worker: WorkerId) -> None:
        for pool in self._broker.capacity:
            self._broker.capacity[pool].pop(worker, None)
            self._broker.members.get(pool, {}).pop(worker, None)
        self._position.clear()
        self._open.clear()

    async def report(self, partition: int, entries: Sequence[LogEntry]) -> Sequence[Oversized[LogEntry]]:
        oversized = self._broker.refused(entries)
        entries = _without(entries, oversized)
        await self._call(lambda: self._write(partition, entries))
        for entry in entries:
            if isinstance(entry, Report):
                name = (entry.execution_id, entry.dispatch, str(self._process))
                self._history.acks.setdefault(name, self._broker.world.now_ms())
        return oversized

    def _write(self, partition: int, entries: Sequence[LogEntry]) -> None:
        self._broker.log[partition].extend(entries)
        self._broker.wake()
        now_ms = self._broker.world.now_ms()
        self._history.log += [Logged(partition, now_ms, entry) for entry in entries]

    async def read(self, partition: int, offset: int, limit: int, wait_sec: float) -> LogBatch:
        def work() -> tuple[LogEntry, ...]:
            return tuple(self._broker.log[partition][offset : offset + limit])

        entries = await self._call(work)
        if not entries and await self._waits_for(lambda: len(self._broker.log[partition]) > offset, wait_sec):
            entries = await self._call(work)
        return LogBatch(offset, offset + len(entries), entries)

    async def offset_since(self, partition: int, since_ms: int) -> int | None:
        def work() -> int | None:
            times = [logged.at_ms for logged in self._history.log if logged.partition == partition]
            return next((offset for offset, at_ms in enumerate(times) if at_ms >= since_ms), None)

        return await self._call(work)

    async def keep_dead_letter(self, entry: LogEntry, why: str) -> None:
        await self._call(lambda: self._broker.dead_letters.append((entry, why)))

    async def partitions(self) -> int:
        return await self._call(lambda: len(self._broker.log))

    async def generation(self, partition: int) -> str:
        return await self._call(lambda: "the only one")


def _without(entries: Sequence[E], oversized: Sequence[Oversized[E]]) -> Sequence[E]:
    refused = {id(each.entry) for each in oversized}
    return [entry for entry in entries if id(entry) not in refused] if refused else entries


@dataclass
class Redis:
    """Claims, revocations and hints. It may lose everything at any time."""

    world: World
    claims: dict[tuple[ExecutionId, int], tuple[int, int, bool]] = field(default_factory=dict)
    """(when it lapses, the token's time, whether it was acked)."""
    revocations: dict[str, dict[tuple[ExecutionId, int], str]] = field(default_factory=dict)
    fences: dict[tuple[str, JobId], int] = field(default_factory=dict)
    generations: dict[str, int] = field(default_factory=dict)
    beats: dict[str, int] = field(default_factory=dict)
    breakers: MemoryBreakers = field(default_factory=MemoryBreakers)
    lost_hints: list[Span] = field(default_factory=list)
    loses_hints: float = 0.1
    """The share of hints that do not reach an owner."""
    listeners: list["SimIndex"] = field(default_factory=list)
    copied_ms: int = 0
    """The time at which a copy was made."""

    def flush(self) -> None:
        self.claims.clear()
        self.revocations.clear()
        self.fences.clear()
        self.breakers = MemoryBreakers()
        self.generations.clear()
        self.beats.clear()
        self.world.note("redis forgets everything")

    def copy(self) -> "Redis":
        """Return what a backup has, or a replica that lags from now on."""
        revocations = {pool: dict(revocations) for pool, revocations in self.revocations.items()}
        return replace(
            self,
            copied_ms=self.world.now_ms(),
            claims=dict(self.claims),
            revocations=revocations,
            fences=dict(self.fences),
            generations=dict(self.generations),
            beats=dict(self.beats),
        )

    def restore(self, copy: "Redis") -> None:
        """Become the copy again."""
        self.claims, self.revocations, self.fences = dict(copy.claims), dict(copy.revocations), dict(copy.fences)
        self.generations, self.beats = dict(copy.generations), dict(copy.beats)
        self.world.note("redis is an older copy")


class SimSignals(Signals):
    def __init__(self, redis: Redis, network: Network, process: Process, clock: SimClock, history: History) -> None:
        self._redis = redis
        self._network = network
        self._process = process
        self._clock = clock
        self._history = history

    async def _call(self, work: Callable[[], T]) -> T:
        return await self._network.call(self._process, self._clock, REDIS, work, SignalsUnavailable)

    @property
    def lapse_sec(self) -> float:
        return LAPSE_MS / 1000

    async def claim(self, worker: WorkerId, dispatches: Sequence[Dispatch], now_ms: int) -> list[Token | ClaimRefused]:
        return await self._call(lambda: [self._claim(dispatch, now_ms) for dispatch in dispatches])

    def _claim(self, dispatch: Dispatch, now_ms: int) -> Token | ClaimRefused:
        name, now = (dispatch.execution_id, dispatch.number), self._redis.world.now_ms()
        lapses_ms, former_ms, told = self._redis.claims.get(name, (0, 0, False))
        if lapses_ms > now:
            return ClaimRefused.ACKED if told else ClaimRefused.CLAIMED
        claimed_ms = max(now_ms, former_ms + 1)
        self._redis.claims[name] = (now + LAPSE_MS, claimed_ms, False)
        return Token(dispatch.number, claimed_ms, taken_over=former_ms > 0)

    async def renew(self, claims: Sequence[tuple[Dispatch, Token]]) -> list[Token | ClaimRefused]:
        return await self._call(lambda: [self._renew(dispatch, token) for dispatch, token in claims])

    def _renew(self, dispatch: Dispatch, token: Token) -> Token | ClaimRefused:
        name, now = (dispatch.execution_id, dispatch.number), self._redis.world.now_ms()
        lapses_ms, claimed_ms, told = self._redis.claims.get(name, (0, token.claimed_ms, False))
        if told and lapses_ms > now:
            return ClaimRefused.ACKED
        if claimed_ms != token.claimed_ms:
            return ClaimRefused.CLAIMED
        self._redis.claims[name] = (now + LAPSE_MS, claimed_ms, False)
        return token

    async def ack(self, names: Sequence[DispatchRef]) -> None:
        def work() -> None:
            until = self._redis.world.now_ms() + 300_000
            for name in names:
                _, claimed_ms, _ = self._redis.claims.get(name, (0, 0, False))
                self._redis.claims[name] = (until, claimed_ms, True)

        await self._call(work)

    async def pre_start_check(self, pool: str, dispatches: Sequence[Dispatch]) -> Mapping[ExecutionId, str] | None:
        def work() -> Mapping[ExecutionId, str] | None:
            generation = self._redis.generations.get(pool)
            if generation is None:
                return None
            revocations = self._redis.revocations.get(pool, {})
            found = {}
            for dispatch in dispatches:
                name = (dispatch.execution_id, dispatch.number)
                if name in revocations:
                    found[dispatch.execution_id] = revocations[name]
                elif dispatch.fired_ms <= max(generation, self._redis.fences.get((pool, dispatch.job_id), 0)):
                    found[dispatch.execution_id] = FENCED
                else:
                    self._history.checks[name] = self._redis.world.now_ms()
            return found

        return await self._call(work)

    async def revoke(self, pool: str, revocations: Sequence[Revocation]) -> None:
        def work() -> None:
            raised = self._redis.revocations.setdefault(pool, {})
            for execution, dispatch, reason in revocations:
                raised[execution, dispatch] = reason

        await self._call(work)

    async def fence(self, pool: str, job: JobId, until_ms: int) -> None:
        await self._call(lambda: self._redis.fences.update({(pool, job): until_ms}))

    async def revoked(self, pool: str, executions: Sequence[DispatchRef]) -> Mapping[ExecutionId, str]:
        revocations = await self._call(lambda: self._redis.revocations.get(pool, {}))
        return {name[0]: revocations[name] for name in executions if name in revocations}

    async def has_generation(self, pool: str) -> bool:
        return await self._call(lambda: pool in self._redis.generations)

    async def beat(self, pool: str, now_ms: int, seen_ms: int) -> int | None:
        def work() -> int | None:
            if pool not in self._redis.generations:
                return None
            if self._redis.beats.get(pool, 0) < seen_ms:
                del self._redis.generations[pool]
                for copy in self._history.old_copies:
                    copy.found_ms = copy.found_ms or self._redis.world.now_ms()
                return None
            self._redis.beats[pool] = max(self._redis.beats.get(pool, 0), now_ms)
            return self._redis.beats[pool]

        return await self._call(work)

    async def begin_generation(self, pool: str, fenced_before_ms: int = 0) -> None:
        await self._call(lambda: self._redis.generations.update({pool: fenced_before_ms}))


class SimBreakers(Breakers):
    def __init__(self, redis: Redis, network: Network, process: Process, clock: SimClock) -> None:
        self._redis = redis
        self._network = network
        self._process = process
        self._clock = clock

    async def add_counts(self, told: Mapping[str, CallCounts], now_ms: int) -> Mapping[str, int]:
        return await (await self._call(lambda: self._redis.breakers.add_counts(told, now_ms)))

    async def ask(self, name: str, now_ms: int) -> int:
        return await (await self._call(lambda: self._redis.breakers.ask(name, now_ms)))

    async def _call(self, work: Callable[[], T]) -> T:
        return await self._network.call(self._process, self._clock, REDIS, work, SignalsUnavailable)


class SimIndex(MemoryHotIndex):
    """The hot index in the owner's process. Hints to other owners go through Redis, and some are lost."""

    def __init__(
        self,
        redis: Redis,
        network: Network,
        process: Process,
        clock: SimClock,
        lead_ms: int,
        on_placed: Callable[[], None],
    ) -> None:
        super().__init__(lead_ms)
        self._redis = redis
        self._network = network
        self._process = process
        self._clock = clock
        self._on_placed = on_placed

    async def add(self, entries: Sequence[Entry]) -> None:
        await super().add([entry for entry in entries if entry.partition in self._generations])
        hints = [entry for entry in entries if entry.partition not in self._generations]
        if hints:
            await self._network.call(self._process, self._clock, REDIS, lambda: self._tell(hints), IndexUnavailable)

    def _tell(self, hints: Sequence[Entry]) -> None:
        for listener in self._redis.listeners:
            alive = listener._process.alive and not listener._process.frozen
            heard = alive and self._network.random.random() > self._redis.loses_hints
            if alive and not heard:
                now_ms = self._redis.world.now_ms()
                self._redis.lost_hints.append(Span("hint", now_ms, max(now_ms, *(hint.due_ms for hint in hints))))
            if heard and self._network.reaches(listener._process, REDIS):
                listener._queue.add([entry for entry in hints if entry.partition in listener._generations])
                listener._on_placed()

    async def generations(self, partitions: Collection[int]) -> Mapping[int, str]:
        if self not in self._redis.listeners:
            self._redis.listeners.append(self)
        return await super().generations(partitions)


@dataclass
class Registrar:
    """Leases of all groups: (group, instance) -> (when it lapses, weight, owner of the lease)."""

    world: World
    leases: dict[tuple[str, InstanceId], tuple[float, float, object]] = field(default_factory=dict)


class SimLeases(Leases):
    def __init__(self, registrar: Registrar, group: str, network: Network, process: Process, clock: SimClock) -> None:
        self._registrar = registrar
        self._group = group
        self._network = network
        self._process = process
        self._clock = clock
        self._name: tuple[str, InstanceId] | None = None
        self._weight = 1.0
        self._seen: Mapping[InstanceId, float] = {}

    @property
    def ttl_sec(self) -> float:
        return TTL_SEC

    async def _call(self, work: Callable[[], T]) -> T:
        return await self._network.call(self._process, self._clock, ETCD, work, LeasesUnavailable)

    def _now(self) -> float:
        return self._registrar.world.loop.time()

    async def join(self, instance: InstanceId, weight: float) -> None:
        self._name, self._weight = (self._group, instance), weight
        await self._call(self._extend)

    def _extend(self) -> None:
        assert self._name is not None
        self._registrar.leases[self._name] = (self._now() + TTL_SEC, self._weight, self)

    async def renew(self, weight: float | None = None) -> bool:
        def work() -> bool:
            held = self._registrar.leases.get(self._name) if self._name else None
            if held is None or held[0] < self._now() or held[2] is not self:
                return False
            self._weight = self._weight if weight is None else weight
            self._extend()
            return True

        return await self._call(work)

    async def members(self) -> Mapping[InstanceId, float]:
        self._seen = await self._call(self._members)
        return self._seen

    def _members(self) -> dict[InstanceId, float]:
        now = self._now()
        return {
            instance: weight
            for (group, instance), (lapses, weight, _) in self._registrar.leases.items()
            if group == self._group and lapses >= now
        }

    async def changed(self, timeout_sec: float) -> bool:
        waited = 0.0
        while waited < timeout_sec:
            await self._clock.sleep(0.1)
            waited += 0.1
            if self._network.reaches(self._process, ETCD) and self._members() != self._seen:
                return True
        return False

    async def leave(self) -> None:
        name, self._name = self._name, None
        if name:
            await self._call(lambda: self._registrar.leases.pop(name, None))
