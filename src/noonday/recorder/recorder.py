"""Settles the reports of one log partition, and judges which workers are lost."""

import asyncio
import contextlib
import math
from collections.abc import Awaitable, Callable, Sequence

import msgspec
import structlog
import uuid_utils

from noonday.model.errors import SignalsUnavailable, StaleEpoch, StoreFailed, Unavailable, is_bad_data
from noonday.model.execution import Failure, Outcome
from noonday.model.ids import InstanceId
from noonday.model.liveness import TICKS_TO_JUDGE, Liveness
from noonday.model.message import Beat, Bye, Hello, LogBatch, LogEntry, Report, Tick
from noonday.model.recent import Recent
from noonday.model.recording import Checkpoint, SettleResult
from noonday.ports.bus import Bus
from noonday.ports.clock import Clock
from noonday.ports.endpoints import Endpoints
from noonday.ports.executions import Executions
from noonday.ports.hot_index import HotIndex
from noonday.ports.signals import Signals
from noonday.recorder.health import HealthKeeper
from noonday.recorder.last_reports import LastReports
from noonday.runtime.metrics import Metrics
from noonday.runtime.tracing import Tracing

log = structlog.get_logger("noonday.recorder")
TICK_SEC = 5.0
"""Wait between the acknowledgement of a tick and the next tick."""
BATCH = 5_000
"""Maximum number of log entries per batch."""
SMALL_BATCH = 1_000
"""A batch with fewer entries is settled PACE_SEC after the former batch: a commit costs the same for one report as for many."""
PACE_SEC = 0.03
"""Time between two small batches. A report that comes after a pause is settled at once."""
READ_BACK_SEC = 10.0
"""Time limit for reading back what the former recorder of a partition settled."""
STALE = "STALE"


class Recorder:
    """Settles the reports of one log partition and marks silent workers as lost."""

    def __init__(
        self,
        *,
        instance: InstanceId,
        partition: int,
        executions: Executions,
        endpoints: Endpoints,
        bus: Bus,
        index: HotIndex,
        signals: Signals,
        clock: Clock,
        metrics: Metrics,
        tracing: Tracing,
        hint_ahead_ms: int,
        on_settled: Callable[[SettleResult], None] = lambda settled: None,
        admit: Callable[[Sequence[Report]], Awaitable[Sequence[Report]]] | None = None,
    ) -> None:
        """`on_settled` is called after each commit of a batch. `admit` returns a failure in place of a report whose child jobs
        are refused."""
        self._partition = partition
        self._executions = executions
        self._health = HealthKeeper(endpoints, clock)
        self._bus = bus
        self._index = index
        self._signals = signals
        self._clock = clock
        self._metrics = metrics
        self._tracing = tracing
        self._hint_ahead_ms = hint_ahead_ms
        self._on_settled = on_settled
        self._admit = admit
        self._checkpoint: Checkpoint | None = None
        self._taken_over: Checkpoint | None = None
        """Checkpoint of the partition's former recorder, until the log before it is read back."""
        # Each recorder object counts only its own ticks: ticks of an earlier time, read late, must not count with the present
        # ones.
        self._author = InstanceId(f"{instance}/{uuid_utils.uuid4().hex[:8]}")
        self._ticks_acked = 0
        self._liveness = Liveness(self._author)
        self._last_reports = LastReports()
        self._judged_at = 0
        self._recent = Recent()
        self._in_progress: asyncio.Future[None] | None = None
        self._settled_at = -math.inf
        """Time when the last batch was settled, by the monotonic clock."""
        self.answered_at = clock.monotonic()
        """Time when the store last answered, even if with an error about one entry, by the monotonic clock."""

    @property
    def partition(self) -> int:
        return self._partition

    async def check_store(self) -> None:
        """Check that the store answers. Raises StoreUnavailable."""
        await self._executions.find_checkpoint(self._partition)

    async def open(self) -> None:
        """Load the checkpoint. A log of another generation has lost the dispatches in flight: recover them."""
        generation = await self._bus.generation(self._partition)
        former = await self._executions.find_checkpoint(self._partition)
        now_ms = self._clock.now_ms()
        if former is None or former.generation != generation:
            if former is not None:
                await self._follow_up(await self._executions.recover_log(self._partition, generation, now_ms))
            self._checkpoint = Checkpoint(self._partition, generation, 0, 0)
            await self._executions.settle([], [], was=former, now=self._checkpoint, now_ms=now_ms)
        else:
            self._checkpoint = former
            self._taken_over = former

    async def run_once(self, now_ms: int) -> int:
        assert self._checkpoint is not None
        if self._taken_over is not None:
            await self._read_back(self._taken_over, now_ms)
            self._taken_over = None
        batch = await self._bus.read(self._partition, self._checkpoint.offset, BATCH, wait_sec=0.5)
        rest_sec = self._settled_at + PACE_SEC - self._clock.monotonic()
        if 0 < len(batch.entries) < SMALL_BATCH and rest_sec > 0:
            await self._clock.sleep(rest_sec)
            batch = await self._bus.read(self._partition, self._checkpoint.offset, BATCH, wait_sec=0)
        with contextlib.suppress(SignalsUnavailable):
            await self._ack_for_silent_workers()
        if batch.entries:
            # Cancelling this round must not come between the store's commit and the update of our checkpoint.
            self._in_progress = asyncio.ensure_future(self._settle(batch))
            await asyncio.shield(self._in_progress)
            self._settled_at = self._clock.monotonic()
        return len(batch.entries)

    async def _read_back(self, former: Checkpoint, now_ms: int) -> None:
        """Learn the last reports that the partition's former recorder settled.

        The former recorder may have died together with a worker whose claims it had to ack. Those claims lapse `lapse_sec`
        after they were taken, so older reports do not matter.
        """
        if self._signals.lapse_sec == math.inf:
            return
        until = self._clock.monotonic() + READ_BACK_SEC
        offset = await self._bus.offset_since(self._partition, now_ms - round(self._signals.lapse_sec * 1000))
        while offset is not None and offset < former.offset:
            if self._clock.monotonic() > until:
                log.warning("read-back cut short", partition=self._partition, offset=offset, settled=former.offset)
                return
            batch = await self._bus.read(self._partition, offset, BATCH, wait_sec=0.5)
            if not batch.entries:
                return
            self._note_last_reports(batch.offset, [entry for entry in batch.entries if isinstance(entry, Report)])
            offset = batch.next_offset

    async def _settle(self, batch: LogBatch) -> None:
        await self._apply(batch)
        await self._judge()

    async def drain(self) -> int:
        """Settle what the log has, without waiting for more."""
        assert self._checkpoint is not None
        if self._in_progress is not None:
            await self._in_progress
        batch = await self._bus.read(self._partition, self._checkpoint.offset, BATCH, wait_sec=0)
        if batch.entries:
            await self._apply(batch)
        return len(batch.entries)

    async def finish_batch(self) -> None:
        """Wait for the batch in progress and ignore its error: the next recorder finds the checkpoint in the store."""
        if self._in_progress is not None:
            await asyncio.wait({self._in_progress})
            if not self._in_progress.cancelled():
                self._in_progress.exception()

    async def tick_forever(self) -> None:
        """Write ticks, each TICK_SEC after the former was acknowledged. A tick carries the store's time.

        A tick whose acknowledgement is lost is sent again under its number. The log may have it twice; it counts once.
        """
        while True:
            await self._bus.report(self._partition, [Tick(self._author, self._ticks_acked + 1, self._clock.now_ms())])
            self._ticks_acked += 1
            await self._clock.sleep(TICK_SEC)

    async def _apply(self, batch: LogBatch) -> None:
        """Settle a batch. A batch that fails is halved: what comes before the culprit is settled, and the culprit is alone.

        Only bad data is given up. Any other culprit is tried again, in its place in the log, for as long as it takes.
        """
        try:
            committed = await self._commit(batch, batch.entries)
        except StaleEpoch:
            raise
        except Exception as error:
            if isinstance(error, Unavailable) and not isinstance(error, StoreFailed):
                raise
            self.answered_at = self._clock.monotonic()
            if len(batch.entries) > 1:
                for half in _halves(batch):
                    await self._apply(half)
            elif is_bad_data(error):
                await self._keep_dead_letter(batch, error)
            else:
                raise _unsettled(batch, error) from error
        else:
            await self._finish(*committed)

    async def _commit(self, batch: LogBatch, entries: Sequence[LogEntry]) -> tuple[SettleResult, Sequence[Report]]:
        """Settle these entries in place of a batch. Counters change only after the store has committed."""
        assert self._checkpoint is not None
        reports, signs, tick_ms = _by_kind(entries)
        if self._admit is not None and any(report.children is not None for report in reports):
            reports = list(await self._admit(reports))
        signs_of_life = self._liveness.read(batch.entries)
        recent = self._with_ended(reports)
        now = Checkpoint(
            self._partition,
            self._checkpoint.generation,
            batch.next_offset,
            tick_ms or self._checkpoint.tick_ms,
            msgspec.json.encode(recent.figures(self._clock.now_ms())).decode(),
        )
        self._note_last_reports(batch.offset, reports)
        spans = self._tracing.settling(reports)
        if any(report.details is not None for report in reports):
            await self._executions.keep_attempts(reports)
        if logged := [report for report in reports if report.logs is not None]:
            await self._executions.keep_logs(logged)
        settled = await self._executions.settle(
            reports, signs, was=self._checkpoint, now=now, now_ms=self._clock.now_ms()
        )
        self._checkpoint = now
        self._liveness.note(signs_of_life)
        self._recent = recent
        self._tracing.settled(spans, settled.refused)
        self.answered_at = self._clock.monotonic()
        return settled, reports

    async def _finish(self, settled: SettleResult, reports: Sequence[Report]) -> None:
        """Follow up a committed batch. The batch is not read again, so an error here does not count as its failure."""
        try:
            await self._follow_up(settled)
        finally:
            await self._health.note(reports)

    def _with_ended(self, reports: Sequence[Report]) -> Recent:
        ends = (report for report in reports if report.outcome != Outcome.STARTED)
        late = (report.late_ms if report.started_ms else None for report in ends)
        return self._recent.with_ended(late, self._clock.now_ms())

    def _note_last_reports(self, offset: int, reports: Sequence[Report]) -> None:
        """Note a batch by the age of its newest report, so that batches that are read back count as old as their reports."""
        if reports and self._signals.lapse_sec != math.inf:
            age_ms = self._clock.now_ms() - max(report.ended_ms or report.started_ms for report in reports)
            self._last_reports.add(offset, reports, self._clock.monotonic() - max(0, age_ms) / 1000)

    async def _ack_for_silent_workers(self) -> None:
        for worker in self._last_reports.silent_workers(self._clock.monotonic()):
            await self._signals.ack(self._last_reports.dispatches_of(worker))
            self._last_reports.remove(worker)

    async def _keep_dead_letter(self, batch: LogBatch, error: Exception) -> None:
        """Move an entry that the store refuses to the dead-letter topic, and continue.

        A report is settled as a failure instead. If the store refuses that too, the log continues without it: its execution is
        found by orphan recovery, or together with its lost worker.
        """
        culprit = batch.entries[0]
        log.error("unreadable report", entry=repr(culprit)[:500], error=repr(error)[:500])
        await self._bus.keep_dead_letter(culprit, repr(error)[:500])
        try:
            committed = await self._commit(batch, [_failed(culprit, error)] if isinstance(culprit, Report) else [])
        except Exception as second_error:
            if not is_bad_data(second_error):
                raise
            log.exception("report dropped", entry=repr(culprit)[:500])
            committed = await self._commit(batch, [])
        self._metrics.refused.labels("unreadable").inc()
        await self._finish(*committed)

    async def _judge(self) -> None:
        """Mark silent workers as lost.

        The store names the workers to judge: those taken for alive and those with RUNNING rows, even if this recorder never
        read anything of them.
        """
        ticks = self._liveness.ticks
        if ticks < TICKS_TO_JUDGE or self._judged_at == ticks:
            return
        lost = self._liveness.silent(await self._executions.workers_to_judge(self._partition))
        if lost:
            settled = await self._executions.lose_workers(lost, self._clock.now_ms())
            log.warning("workers lost", workers=lost)
            self._metrics.workers_lost.inc(len(lost))
            await self._follow_up(settled)
        self._judged_at = ticks

    async def _follow_up(self, settled: SettleResult) -> None:
        for state, count in settled.by_state.items():
            self._metrics.executions.labels(state).inc(count)
        self._metrics.count_usage(settled.usage)
        latest = self._clock.now_ms() + self._hint_ahead_ms
        try:
            await self._index.hint([entry for entry in settled.entries if entry.due_ms <= latest])
        finally:
            # Also if the index is unavailable: this batch is not read again, and the slots it freed are free.
            if settled.refused:
                await self._revoke_refused(settled.refused)
            self._on_settled(settled)

    async def _revoke_refused(self, refused: Sequence[Report]) -> None:
        """Count refused reports, and revoke runs that have just started: nothing that they report will be accepted."""
        self._metrics.refused.labels("report").inc(len(refused))
        with contextlib.suppress(SignalsUnavailable):
            for report in refused:
                if report.outcome == Outcome.STARTED:
                    await self._signals.revoke(report.pool, [(report.execution_id, report.dispatch, STALE)])


def _by_kind(entries: Sequence[LogEntry]) -> tuple[list[Report], list[Hello | Beat | Bye], int]:
    """Return reports, signs of life, and the store's time in the last tick (0 if there is none)."""
    reports: list[Report] = []
    signs: list[Hello | Beat | Bye] = []
    tick_ms = 0
    for entry in entries:
        if isinstance(entry, Report):
            reports.append(entry)
        elif isinstance(entry, Tick):
            tick_ms = entry.store_ms
        else:
            signs.append(entry)
    return reports, signs, tick_ms


def _halves(batch: LogBatch) -> tuple[LogBatch, LogBatch]:
    middle = len(batch.entries) // 2
    return (
        LogBatch(batch.offset, batch.offset + middle, batch.entries[:middle]),
        LogBatch(batch.offset + middle, batch.next_offset, batch.entries[middle:]),
    )


def _failed(unreadable: Report, error: Exception) -> Report:
    """Return the failure that is settled instead of a report that the store refuses."""
    return Report(
        unreadable.execution_id,
        unreadable.dispatch,
        unreadable.worker_id,
        Outcome.FAILED,
        unreadable.started_ms or unreadable.ended_ms,
        unreadable.ended_ms,
        Failure("UnreadableReport", f"the store refused the report of this run: {type(error).__name__}"),
        tenant=unreadable.tenant,
        payload_bytes=unreadable.payload_bytes,
    )


def _unsettled(batch: LogBatch, error: Exception) -> StoreFailed:
    culprit = batch.entries[0]
    name = f"{culprit.execution_id} dispatch {culprit.dispatch}" if isinstance(culprit, Report) else repr(culprit)[:200]
    return StoreFailed(f"cannot settle offset {batch.offset} ({name}): {error!r}"[:500])
