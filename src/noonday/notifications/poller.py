"""Publish the rows of scheduled notifications at their time.

Each round reads the unclosed buckets of the partitions that this poller owns, from the oldest unclosed minute on, and publishes
what is due within a second. A position in each bucket tells how far it has come. Some time after its minute a bucket is
examined once more and closed, if every row in it has been published or has ended.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby

import structlog
from msgspec.structs import replace

from noonday.model.ids import PARTITIONS, InstanceId
from noonday.model.notifications.identity import channel_of, lane_of
from noonday.model.notifications.notification import DAY_MS, MINUTE_MS, EventDetail, EventKind
from noonday.model.notifications.schedule import AnnouncedBucket, Bucket, BucketProgress, RowKey, ScheduledRow
from noonday.notifications.dispatching import (
    CLOSES_AFTER_MS,
    EXPIRED_UNSENT,
    POOLS,
    READ_AHEAD_MS,
    Sealer,
    dispatch_of,
    event_of,
)
from noonday.notifications.outcomes import Outcomes, key_of
from noonday.ports.bus import Bus
from noonday.ports.clock import Clock
from noonday.ports.notifications import NotificationEvents, ScheduledNotifications

log = structlog.get_logger("noonday.notifications")

PAGE = 500
UNSAVED_ROWS = 5_000
"""Rows of a bucket that may be published before its progress is stored. So many are published again after a take-over."""
EXAMINE_EVERY_MS = 5_000
"""How often a bucket that cannot be closed yet is examined again."""
LIST_OLD_EVERY_MS = 10_000
"""How often the buckets of minutes that are over are listed again."""
OLDEST_MS = 9 * DAY_MS
"""Age of the oldest minute that can have rows to publish: everything in older ones has expired."""
FLOOR_EVERY_MS = 600_000
KEPT_CLOSED_MS = DAY_MS
"""How long a closed bucket is kept."""


@dataclass
class _Reading:
    """A bucket that is being polled."""

    progress: BucketProgress
    unsaved: int = 0
    """Rows that were published since the progress was stored."""
    looks_up: bool = False
    """True if rows may have been published before, by this poller or another one: each is looked up first."""
    is_drained: bool = False
    """True if nothing is left to read up to the end of the minute."""
    examined_ms: int = 0
    again: set[RowKey] = field(default_factory=set)
    """Rows that were found behind the position and published again."""


class Poller:
    """The poller of some partitions. One round runs at a time."""

    def __init__(
        self,
        instance: InstanceId,
        scheduled: ScheduledNotifications,
        events: NotificationEvents,
        bus: Bus,
        clock: Clock,
        sealer: Sealer,
        *,
        is_durable: bool,
    ) -> None:
        """`is_durable`: whether the topics survive the end of this process. If not, a bucket is closed only when all of its
        rows have ended, and the rows that have not are published again at the next start."""
        self._instance = instance
        self._scheduled = scheduled
        self._events = events
        self._outcomes = Outcomes(events)
        self._bus = bus
        self._clock = clock
        self._sealer = sealer
        self._is_durable = is_durable
        self._epochs: dict[int, int] = {}
        self._floor = 0
        """The oldest minute that may have an unclosed bucket."""
        self._floor_stored_ms = 0
        self._reading: dict[Bucket, _Reading] = {}
        self._closed: set[Bucket] = set()
        """Closed buckets of minutes after the floor."""
        self._listed_ms = 0
        self._is_catching_up = False

    async def open(self) -> None:
        """Take over all partitions."""
        now_ms = self._clock.now_ms()
        taken = await self._scheduled.take_over(range(PARTITIONS), self._instance)
        self._epochs = {partition: each.epoch for partition, each in taken.items()}
        oldest = (now_ms - OLDEST_MS) // MINUTE_MS
        self._floor = min(
            oldest if each.floor_minute is None else max(oldest, each.floor_minute) for each in taken.values()
        )
        self._listed_ms = 0
        self._is_catching_up = True

    async def run_once(self, now_ms: int) -> int:
        """Publish what is due. Returns how many rows were published, or 0 if the rest has to wait for credit."""
        await self._list(now_ms)
        credit = dict(await self._bus.credit())
        recent, backlog = self._waiting(now_ms)
        # The backlog gets what is left, and at least half: a late notification waits for no stream of new ones, nor these for it.
        of_recent = {pool: (count + 1) // 2 for pool, count in credit.items()} if backlog else credit
        published = await self._publish_in_turn(recent, of_recent)
        if backlog:
            left = {pool: count - (count + 1) // 2 + of_recent[pool] for pool, count in credit.items()}
            published += await self._publish_in_turn(backlog, left)
            published += await self._publish_in_turn(recent, left)
        await self._close(now_ms)
        return published

    async def _list(self, now_ms: int) -> None:
        """Find the buckets of the unclosed minutes. Those of minutes that are long over are listed less often."""
        last = (now_ms + READ_AHEAD_MS) // MINUTE_MS
        first = max(self._floor, (now_ms - CLOSES_AFTER_MS) // MINUTE_MS - 1)
        if now_ms - self._listed_ms >= LIST_OLD_EVERY_MS or now_ms < self._listed_ms:
            first, self._listed_ms = self._floor, now_ms
        found = await self._scheduled.buckets(list(self._epochs), first, last)
        new = [each for each in found if each.bucket not in self._reading and each.bucket not in self._closed]
        if not new:
            self._is_catching_up = False
            return
        progress = await self._scheduled.progress([each.bucket for each in new])
        for each in new:
            former = progress.get(each.bucket)
            if former is not None and former.closed:
                self._closed.add(each.bucket)
            else:
                self._reading[each.bucket] = self._begin(each.bucket, former)
        if self._is_catching_up:
            self._log_catching_up([each for each in new if each.bucket in self._reading], now_ms)
            self._is_catching_up = False

    def _begin(self, bucket: Bucket, former: BucketProgress | None) -> _Reading:
        epoch = self._epochs[bucket.partition]
        if former is None:
            return _Reading(BucketProgress(bucket=bucket, epoch=epoch), looks_up=self._is_catching_up)
        if not self._is_durable:
            # What was published is gone with the former process.
            return _Reading(BucketProgress(bucket=bucket, epoch=epoch), looks_up=True)
        return _Reading(replace(former, epoch=epoch), looks_up=True)

    def _log_catching_up(self, buckets: Sequence[AnnouncedBucket], now_ms: int) -> None:
        old = [each for each in buckets if each.bucket.end_ms < now_ms]
        if old:
            minute = min(each.bucket.minute for each in old)
            log.info("catching up", rows=sum(each.rows for each in old), since_ms=minute * MINUTE_MS, until_ms=now_ms)

    def _waiting(self, now_ms: int) -> tuple[list[_Reading], list[_Reading]]:
        """Return the buckets of the last two minutes and those of older ones that are to be read: HIGH streams first."""
        waiting = [reading for reading in self._reading.values() if not reading.is_drained]
        waiting.sort(key=lambda each: _order(each.progress.bucket))
        since = now_ms // MINUTE_MS - 1
        recent = [each for each in waiting if each.progress.bucket.minute >= since]
        return recent, [each for each in waiting if each.progress.bucket.minute < since]

    async def _publish_in_turn(self, waiting: Sequence[_Reading], credit: dict[str, int]) -> int:
        """Publish a page of each bucket in turn, lane by lane, as far as the credit goes. Returns how many rows it went past."""
        passed = 0
        for _, lane in groupby(waiting, key=lambda each: lane_of(each.progress.bucket.stream)):
            turns = list(lane)
            while turns:
                more = []
                for reading in turns:
                    count, has_more = await self._publish_page(reading, credit)
                    passed += count
                    if has_more:
                        more.append(reading)
                turns = more
        return passed

    async def _publish_page(self, reading: _Reading, credit: dict[str, int]) -> tuple[int, bool]:
        """Publish a page of a bucket under the credit of its pool. Returns the number of rows, and whether more may follow."""
        bucket = reading.progress.bucket
        if bucket not in self._reading or credit.get(POOLS[channel_of(bucket.stream)], 0) <= 0:
            return 0, False
        stamp_ms = self._clock.now_ms()
        until_ms = min(stamp_ms + READ_AHEAD_MS, bucket.end_ms)
        rows = await self._scheduled.read(bucket, reading.progress.position, until_ms, PAGE)
        taken = _within(rows, credit)
        if taken:
            await self._publish(taken, stamp_ms, looks_up=reading.looks_up)
            reading.progress = _past(reading.progress, taken)
            reading.unsaved += len(taken)
        if reading.unsaved >= UNSAVED_ROWS:
            await self._save(reading)
        if len(rows) < PAGE and len(taken) == len(rows):
            reading.is_drained = stamp_ms > bucket.end_ms
        return len(taken), len(rows) == PAGE and len(taken) == PAGE

    async def _publish(self, rows: Sequence[ScheduledRow], stamp_ms: int, *, looks_up: bool) -> None:
        """Publish rows that have not ended, and end those that have expired."""
        unsure = rows if looks_up else [row for row in rows if row.verify]
        ended = await self._outcomes.ended(unsure) if unsure else set()
        left = [row for row in rows if key_of(row) not in ended]
        # What may have been published before is not ended here: a sender knows whether a provider may have it.
        expired = [row for row in left if row.expires_ms <= stamp_ms and not (looks_up or row.verify)]
        if expired:
            detail = EventDetail(reason=EXPIRED_UNSENT)
            await self._events.append(
                [event_of(self._sealer, row, EventKind.EXPIRED, stamp_ms, detail) for row in expired]
            )
        over = {key_of(row) for row in expired}
        for row in left:
            if row.verify and not await self._outcomes.publish_or_not(row):
                over.add(key_of(row))
        if going := [row for row in left if key_of(row) not in over]:
            await self._bus.publish([dispatch_of(row, stamp_ms) for row in going])

    async def _save(self, reading: _Reading) -> bool:
        """Store the progress of a bucket. Returns False if another poller has taken it over."""
        if await self._scheduled.advance(reading.progress):
            reading.unsaved = 0
            return True
        bucket = reading.progress.bucket
        log.warning("bucket taken over", partition=bucket.partition, minute=bucket.minute)
        self._epochs.pop(bucket.partition, None)
        self._reading = {key: each for key, each in self._reading.items() if key.partition != bucket.partition}
        return False

    async def _close(self, now_ms: int) -> None:
        """Examine the drained buckets whose minute has been over for long enough, and raise the floor."""
        for bucket, reading in list(self._reading.items()):
            is_over = reading.is_drained and now_ms > bucket.end_ms + CLOSES_AFTER_MS
            if is_over and bucket in self._reading and now_ms - reading.examined_ms >= EXAMINE_EVERY_MS:
                reading.examined_ms = now_ms
                await self._examine(reading)
        # Nothing is stored in a bucket any more once it may be closed, so an older minute without buckets stays without.
        oldest_open = (now_ms - CLOSES_AFTER_MS) // MINUTE_MS - 1
        self._floor = max(self._floor, min([oldest_open, *(bucket.minute for bucket in self._reading)]))
        self._closed = {bucket for bucket in self._closed if bucket.minute >= self._floor}
        if now_ms - self._floor_stored_ms >= FLOOR_EVERY_MS:
            self._floor_stored_ms = now_ms
            # Together, because transactions that wait for a disk share its syncs.
            await asyncio.gather(
                *(self._scheduled.set_floor(partition, epoch, self._floor) for partition, epoch in self._epochs.items())
            )

    async def _examine(self, reading: _Reading) -> None:
        """Close a bucket if all of its rows are accounted for. Rows behind the position are published first."""
        bucket = reading.progress.bucket
        keys = await self._scheduled.keys(bucket)
        is_complete = len(keys) == reading.progress.done and _xor(keys) == reading.progress.done_xor
        if not is_complete or not self._is_durable:
            rows = await self._rows_of(bucket)
            ended = await self._outcomes.ended(rows)
            left = [row for row in rows if key_of(row) not in ended]
            if not is_complete:
                missed = [row for row in left if row.key not in reading.again]
                reading.again |= {row.key for row in missed}
                await self._publish(missed, self._clock.now_ms(), looks_up=False)
                reading.progress = replace(reading.progress, done=len(keys), done_xor=_xor(keys))
            if left and not self._is_durable:
                return
        reading.progress = replace(reading.progress, closed=True)
        if await self._save(reading):
            self._reading.pop(bucket, None)
            self._closed.add(bucket)

    async def _rows_of(self, bucket: Bucket) -> list[ScheduledRow]:
        rows: list[ScheduledRow] = []
        while page := await self._scheduled.read(bucket, rows[-1].key if rows else None, bucket.end_ms, PAGE):
            rows += page
        return rows


def _order(bucket: Bucket) -> tuple[int, int, int, str]:
    return lane_of(bucket.stream), bucket.minute, bucket.shard, bucket.share


def _within(rows: Sequence[ScheduledRow], credit: dict[str, int]) -> list[ScheduledRow]:
    """Return the first rows that their pools have credit for, and use the credit up."""
    taken = []
    for row in rows:
        pool = POOLS[row.channel]
        if credit.get(pool, 0) <= 0:
            break
        credit[pool] -= 1
        taken.append(row)
    return taken


def _past(progress: BucketProgress, rows: Sequence[ScheduledRow]) -> BucketProgress:
    keys = [row.key for row in rows]
    return replace(progress, position=keys[-1], done=progress.done + len(keys), done_xor=progress.done_xor ^ _xor(keys))


def _xor(keys: Sequence[RowKey]) -> int:
    total = 0
    for key in keys:
        total ^= key.hash
    return total
