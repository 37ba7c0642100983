"""One repetition: a work, measured once on one peer, in a session of its own."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from bench import BenchFailed
from bench.figures import Lateness, lateness, used_between
from bench.peers.calls import judge_calls, judge_outage
from bench.peers.catalog import Peer
from bench.peers.session import Session, now_ms, open_session, sleep_until
from bench.peers.waiting import Waited, await_recorded
from bench.peers.works import CRON_PERIOD_SEC, WAIT_MS, Work, jobs_for_a_round

WARM_UP_JOBS = 1_000
WARM_UP_AGAIN_FROM = 4
"""If the work is so many times larger than the warm-up, there is a second one, of a quarter of the work."""
FIRST = 100_000_000
"""The number of the first job that counts; smaller ones are those of warm-ups."""
AT_REST = 1_000_000_000
LOAD_PAGE = 50_000
HEAD_MS = 6_500
"""How long before they are due the last jobs are created at least: longer than the periods in which peers look ahead."""
MARGIN_MS = 400
"""How long before the first due time CPU time is read: engines hand out a little ahead."""
DAY_MS = 86_400_000
IDLE_SEC = 20.0
SETTLE_SEC = 3.0
KILL_AFTER_SEC = 8.0
CRON_FIRINGS = 2


@dataclass(frozen=True)
class Limits:
    """What a person may change."""

    jobs: int | None = None
    """At most so many, whatever a round would have time for."""
    at_rest: int | None = None
    kill_wait_sec: float = 60
    load_sec: float = 600
    round_sec: float = 30
    idle_sec: float = IDLE_SEC
    most_rate: float = 64_000


@dataclass
class Sizes:
    """How many jobs a peer gets for a work, chosen once so that all its repetitions are alike."""

    chosen: dict[tuple[str, str], int] = field(default_factory=dict)
    create_per_s: dict[str, float] = field(default_factory=dict)


class Measured(msgspec.Struct, frozen=True):
    peer: str
    work: str
    jobs: int = 0
    figures: dict[str, float | None] = {}
    lost: int = 0
    duplicated: int = 0
    early: int = 0
    failed: str | None = None
    """Why there are no figures."""


class TooSlowToLoad(BenchFailed):
    """A peer that needs too long to be filled with jobs at rest."""

    code = "too-slow-to-load"


class _CreatedLate(BenchFailed):
    code = "created-late"


def measure(
    peer: Peer, work: Work, place: Path, directory: Path, environ: Mapping[str, str], limits: Limits, sizes: Sizes
) -> Measured:
    """Raises BenchFailed."""
    repetition = _Repetition(peer, work, place, directory, environ, limits, sizes)
    ways: dict[str, Callable[[], Measured]] = {
        "schedule": repetition.schedule,
        "burst": repetition.burst,
        "stream": repetition.stream,
        "stream-max": repetition.stream_max,
        "crons": repetition.crons,
        "kill": repetition.kill,
        "idle": repetition.idle,
    }
    return ways[work.kind]()


class _Repetition:
    def __init__(
        self,
        peer: Peer,
        work: Work,
        place: Path,
        directory: Path,
        environ: Mapping[str, str],
        limits: Limits,
        sizes: Sizes,
    ) -> None:
        self._peer = peer
        self._work = work
        self._place = place
        self._directory = directory
        self._environ = environ
        self._limits = limits
        self._sizes = sizes
        self._most = min(work.jobs, limits.jobs or work.jobs)

    def schedule(self) -> Measured:
        with self._session() as session:
            session.work()
            far_ms = now_ms() + DAY_MS
            pilot = range(min(200, self._most))
            per_s = len(pilot) / session.create(self._work.way, pilot, far_ms)
            jobs = self._jobs(lambda: jobs_for_a_round(per_s, 0, self._most, self._limits.round_sec))
            numbers, used = range(FIRST, FIRST + jobs), session.used_sec(calling=True)
            sec = session.create(self._work.way, numbers, far_ms + DAY_MS)
            cpu = _cpu(used, session.used_sec(calling=True), jobs)
            counted = session.count(numbers, far_ms + DAY_MS, far_ms + DAY_MS)
            lost, duplicated = max(0, jobs - counted.left), max(0, counted.left - jobs)
            return self._measured(jobs, {"per_s": jobs / sec, **cpu}, lost, duplicated)

    def burst(self) -> Measured:
        with self._session() as session:
            session.work()
            loaded = self._load(session) if self._work.at_rest else {}
            done_per_s = self._warm_up(session)
            most, sec = self._most, self._limits.round_sec
            jobs = self._jobs(lambda: jobs_for_a_round(self._create_per_s, done_per_s, most, sec))
            return self._timed(session, jobs, loaded)

    def stream(self) -> Measured:
        with self._session() as session:
            session.work()
            self._warm_up(session)
            return self._timed(session, self._most, {})

    def stream_max(self) -> Measured:
        """Double the rate until the p95 reaches a second, then try between the last two. A session for each."""
        best: Measured | None = None
        rate, failed_at = self._work.rate, None
        while rate <= self._limits.most_rate:
            found = self._at_rate(rate)
            if _keeps_up(found):
                best = msgspec.structs.replace(found, figures={"rate": rate, **found.figures})
                if failed_at:
                    break
                rate *= 2
            elif failed_at or best is None:
                break
            else:
                failed_at, rate = rate, rate * 0.75
        if best is None:
            raise BenchFailed(f"{self._peer.title} does not keep a p95 below 1 s at {self._work.rate:g} a second")
        return best

    def crons(self) -> Measured:
        jobs = self._most
        with self._session() as session:
            session.crons(jobs)
            begun = time.monotonic()
            session.work(within_sec=self._limits.load_sec)
            registered = time.monotonic() - begun
            period_ms = CRON_PERIOD_SEC * 1000
            first_ms = (now_ms() // period_ms + 1) * period_ms
            if first_ms - now_ms() < 10_000:
                first_ms += period_ms
            sleep_until(first_ms - MARGIN_MS)
            before, used = session.started(), session.used_sec()
            expected, end_ms = jobs * CRON_FIRINGS, first_ms + period_ms * CRON_FIRINGS - 2_000
            sleep_until(first_ms + period_ms * (CRON_FIRINGS - 1))
            while now_ms() < end_ms and (before is None or (session.started() or 0) - before < expected):
                time.sleep(0.5)
            time.sleep(0.5)
            cpu = _cpu(used, session.used_sec(), expected)
            calls = [call for call in session.finish() if call.at_us >= first_ms * 1000]
        fired = {(call.number, call.at_us // (period_ms * 1000)) for call in calls}
        late = lateness([call.at_us / 1000 % period_ms for call in calls])
        figures = {**_late(late), "fired_percent": 100 * len(fired) / expected, "registered_sec": registered, **cpu}
        return self._measured(jobs, figures, lost=expected - len(fired), duplicated=len(calls) - len(fired))

    def kill(self) -> Measured:
        role = self._work.name.removeprefix("kill-")
        with self._session() as session:
            session.work(each=True, copies=2)
            self._warm_up(session, 50)
            numbers, step_us = range(FIRST, FIRST + self._most), self._work.step_us
            begin_ms = now_ms() + HEAD_MS
            last_ms = begin_ms + self._work.lasts_ms(self._most)
            session.create(self._way, numbers, begin_ms, step_us=step_us, wait_ms=WAIT_MS)
            # Shorter runs are killed in their middle.
            sleep_until(begin_ms + min(KILL_AFTER_SEC * 1000, (last_ms - begin_ms) / 2))
            killed_us = time.time_ns() // 1000
            session.kill(role)
            session.restart_ended()
            give_up_ms = last_ms + self._limits.kill_wait_sec * 1000
            while now_ms() < give_up_ms and len({call.number for call in session.calls() if call.is_end}) < self._most:
                time.sleep(0.5)
            calls = session.calls()
        found = judge_outage(calls, lambda number: begin_ms + (number - FIRST) * step_us // 1000, numbers, killed_us)
        figures = {"flows_sec": found.flows_sec, "again": float(found.again), "again_sec": found.again_sec}
        return self._measured(self._most, figures, found.lost, found.duplicated, found.early)

    def idle(self) -> Measured:
        with self._session() as session:
            session.work()
            self._warm_up(session)
            time.sleep(SETTLE_SEC)
            used, begun = session.used_sec(), time.monotonic()
            time.sleep(self._limits.idle_sec)
            sec = time.monotonic() - begun
            shares = {name: 100 * each / sec for name, each in used_between(used, session.used_sec()).items()}
            figures = {
                "cpu_percent": shares["programs"],
                "with_servers_percent": sum(shares.values()),
                "rss_mb": session.memory_mb(),
            }
            return self._measured(0, figures)

    def _at_rate(self, rate: float) -> Measured:
        jobs = min(self._most, round(rate * 10))
        work = msgspec.structs.replace(self._work, kind="stream", rate=rate, jobs=jobs)
        at_rate = _Repetition(
            self._peer, work, self._place, self._directory, self._environ, replace(self._limits, jobs=jobs), self._sizes
        )
        return at_rate.stream()

    def _session(self) -> AbstractContextManager[Session]:
        return _opened(self._peer, self._place, self._directory, self._environ)

    @property
    def _way(self) -> str:
        """How jobs are created when that is not what is measured."""
        return next(way for way in ("bulk", "callers", "single") if way in self._peer.ways)

    @property
    def _create_per_s(self) -> float:
        return self._sizes.create_per_s[self._peer.name]

    def _jobs(self, choose: Callable[[], int]) -> int:
        key = (self._peer.name, self._work.name)
        if key not in self._sizes.chosen:
            self._sizes.chosen[key] = choose()
        return self._sizes.chosen[key]

    def _warm_up(self, session: Session, jobs: int = WARM_UP_JOBS) -> float:
        """Throw away a burst, or two. Returns how many jobs were done in a second."""
        small = min(jobs, self._most or jobs)
        done_per_s = self._throw_away(session, range(small))
        chosen = self._sizes.chosen.get((self._peer.name, self._work.name))
        if self._work.kind != "burst" or chosen:
            return done_per_s
        expected = jobs_for_a_round(self._create_per_s, done_per_s, self._most, self._limits.round_sec)
        if expected < WARM_UP_AGAIN_FROM * small:
            return done_per_s
        return self._throw_away(session, range(small, small + expected // WARM_UP_AGAIN_FROM))

    def _throw_away(self, session: Session, numbers: range) -> float:
        head_ms = 1_500 if numbers.start == 0 else 1_500 + round(1500 * len(numbers) / self._create_per_s)
        due_ms = now_ms() + head_ms
        sec = session.create(self._way, numbers, due_ms)
        self._sizes.create_per_s[self._peer.name] = len(numbers) / sec
        sleep_until(due_ms)
        begun_ms = max(due_ms, now_ms())
        waited = await_recorded(session, numbers.stop, due_ms)
        if not waited.complete:
            raise BenchFailed(
                f"{self._peer.title} did not finish a warm-up of {len(numbers)} jobs in {waited.sec:.0f} s"
            )
        return len(numbers) / max(0.001, (waited.at_ms - begun_ms) / 1000)

    def _timed(self, session: Session, jobs: int, loaded: dict[str, float | None]) -> Measured:
        """Create, let fall due, and wait until all is recorded."""
        numbers, step_us = range(FIRST, FIRST + jobs), self._work.step_us
        begin_ms = now_ms() + HEAD_MS + round(1_700 * jobs / self._create_per_s)
        last_ms = begin_ms + self._work.lasts_ms(jobs)
        started = session.started()
        sec = session.create(self._way, numbers, begin_ms, step_us=step_us)
        self._sizes.create_per_s[self._peer.name] = jobs / sec
        if now_ms() > begin_ms - MARGIN_MS:
            raise _CreatedLate(
                f"{self._peer.title} did not create {jobs} jobs before the first was due: took {sec:.1f} s"
            )
        sleep_until(begin_ms - MARGIN_MS)
        used = session.used_sec()
        sleep_until(last_ms)
        waited = await_recorded(session, None if started is None else started + jobs, last_ms)
        cpu = _cpu(used, session.used_sec(), jobs)
        rss_mb = session.memory_mb()
        counted = session.count(numbers, begin_ms, last_ms)
        # The store's own time of an end is that of the handler, which is before the end was committed.
        end_ms, error_ms = waited.at_ms, None if counted.last_ms is None else float(waited.at_ms - counted.last_ms)
        verdict = judge_calls(
            session.finish(), lambda number: begin_ms + (number - FIRST) * step_us // 1000, numbers, counted.recorded
        )
        figures = {
            # Who starts early is wrong, not fast.
            "per_s": None if verdict.early else counted.recorded / max(0.001, (end_ms - begin_ms) / 1000),
            **_late(verdict.lateness_ms),
            **cpu,
            "rss_mb": rss_mb,
            "created_per_s": jobs / sec,
            "end_error_ms": error_ms,
            "looks": float(waited.looks),
            "looks_percent": _looks_percent(waited, begin_ms),
            **loaded,
        }
        return self._measured(jobs, figures, verdict.lost, verdict.duplicated, verdict.early)

    def _load(self, session: Session) -> dict[str, float | None]:
        """Jobs at rest: due in one to eleven months."""
        jobs = self._limits.at_rest or self._work.at_rest
        begun, due_ms = time.monotonic(), now_ms() + 30 * DAY_MS
        step_us = 300 * DAY_MS * 1000 // jobs
        for at in range(0, jobs, LOAD_PAGE):
            left = self._limits.load_sec - (time.monotonic() - begun)
            numbers = range(AT_REST + at, AT_REST + min(at + LOAD_PAGE, jobs))
            if left <= 0:
                raise TooSlowToLoad(f"takes longer than {self._limits.load_sec / 60:g} minutes to load {jobs:,} jobs")
            session.create(self._way, numbers, due_ms + at * step_us // 1000, step_us=step_us, within_sec=left + 60)
        return {"at_rest": float(jobs), "load_sec": time.monotonic() - begun}

    def _measured(
        self, jobs: int, figures: Mapping[str, float | None], lost: int = 0, duplicated: int = 0, early: int = 0
    ) -> Measured:
        rounded = {name: None if value is None else round(value, 3) for name, value in figures.items()}
        return Measured(self._peer.name, self._work.name, jobs, rounded, lost, duplicated, early)


@contextmanager
def _opened(peer: Peer, place: Path, directory: Path, environ: Mapping[str, str]) -> Iterator[Session]:
    """A session in a directory of its own."""
    with (
        TemporaryDirectory(prefix=f"{peer.name}-", dir=directory, ignore_cleanup_errors=True) as own,
        open_session(peer, place, Path(own), environ) as session,
    ):
        yield session


def _keeps_up(found: Measured) -> bool:
    p95 = found.figures["p95_ms"]
    return p95 is not None and p95 < 1000 and not found.lost


def _cpu(before: Mapping[str, float], after: Mapping[str, float], jobs: int) -> dict[str, float | None]:
    used = used_between(before, after)
    each = {f"cpu_us_{name}": sec / max(1, jobs) * 1e6 for name, sec in used.items()}
    return {"cpu_us": sum(each.values()), **each}


def _late(late: Lateness) -> dict[str, float | None]:
    return {"p50_ms": late.p50, "p95_ms": late.p95, "p99_ms": late.p99, "max_ms": late.max}


def _looks_percent(waited: Waited, begin_ms: int) -> float:
    """The share of the time in which an answer was awaited: looks cost less than that, for busy programs let them wait."""
    return 100 * waited.looking_sec / max(0.001, (waited.at_ms - begin_ms) / 1000)
