"""The log of events: one topic, whose partitions are read one by one."""

import random
from concurrent.futures import Future

from noonday.drivers.kafka.codec import Codec
from noonday.drivers.kafka.names import Names
from noonday.drivers.kafka.options import KafkaOptions
from noonday.drivers.kafka.reader import SCALE, LogReader
from noonday.drivers.kafka.thread import first_of, pace
from noonday.drivers.kafka.topics import Topics
from noonday.model.errors import BusUnavailable, StaleEpoch
from noonday.ports.bus import LogBatch
from noonday.ports.clock import Clock

_LATELY_MS = 60_000
_LOOK_SEC = 1.0


class Log:
    """Who reads it, and whether it is still the log it was."""

    def __init__(self, options: KafkaOptions, names: Names, codec: Codec, topics: Topics, clock: Clock) -> None:
        self._options = options
        self._topic = names.log
        self._codec = codec
        self._topics = topics
        self._clock = clock
        self._readers: dict[int, LogReader] = {}
        self._generations: dict[int, str] = {}
        """What we said the generation of a partition is."""
        self._asked: Future[str] | None = None
        self._asked_at = 0.0
        self._generation: str | None = None
        """What the generation was when we last looked."""

    @property
    def readers(self) -> list[LogReader]:
        return list(self._readers.values())

    async def choose_partition(self) -> int:
        """The one that was written to least in the last minute, as far as the broker can tell."""
        await self._topics.ensure_log()
        try:
            written = await self._topics.recently_written(self._topic, self._clock.now_ms() - _LATELY_MS)
        except BusUnavailable:
            return random.randrange(self._topics.partitions_of(self._topic))
        return random.choice([partition for partition, count in enumerate(written) if count == min(written)])

    async def generation(self, partition: int) -> str:
        found = self._generations[partition] = self._generation = await self._topics.log_id()
        # What was asked before may be answered with what was before.
        self._asked = None
        return found

    async def read(self, partition: int, offset: int, limit: int, wait_sec: float) -> LogBatch:
        self._check_era(partition)
        reader = await self._reader_of(partition)
        batches = await first_of(lambda: reader.find(offset, limit), reader.arrived, self._clock, wait_sec)
        return batches[0] if batches else LogBatch(offset, offset, ())

    async def offset_since(self, partition: int, since_ms: int) -> int | None:
        await self._topics.ensure_log()
        found = await self._topics.offset_since(self._topic, partition, since_ms)
        return None if found is None else found * SCALE

    async def _reader_of(self, partition: int) -> LogReader:
        reader = self._readers.get(partition)
        if reader is not None and reader.running and reader.generation == self._generations.get(partition):
            return reader
        if reader is not None:
            await reader.stop(self._options.end_within_sec)
        await self._topics.ensure_log()
        reader = self._readers[partition] = LogReader(self._options, self._codec, self._topic, partition)
        reader.generation = self._generations.get(partition)
        reader.start()
        return reader

    def _check_era(self, partition: int) -> None:
        """Offsets of another log say nothing. Whoever asks for the generation again, knows."""
        self._look_again()
        said = self._generations.get(partition)
        if said is not None and self._generation is not None and said != self._generation:
            raise StaleEpoch("kafka: the log was made anew, and its offsets begin again", generation=self._generation)

    def _look_again(self) -> None:
        now = pace.monotonic()
        if now - self._asked_at < _LOOK_SEC or (self._asked is not None and not self._asked.done()):
            return
        if self._asked is not None:
            if self._asked.exception() is None:
                self._generation = self._asked.result()
            else:
                self._topics.mistrust()
        self._asked_at = now
        self._asked = self._topics.find_log_id()
