"""The log of events: one topic, of which each partition is read by itself."""

import random
from concurrent.futures import Future

from noonday.drivers.kafka.codec import Codec
from noonday.drivers.kafka.names import Names
from noonday.drivers.kafka.options import KafkaOptions
from noonday.drivers.kafka.reader import SCALE, LogReader
from noonday.drivers.kafka.thread import real_clock, wait_for_items
from noonday.drivers.kafka.topics import Topics
from noonday.model.errors import BusUnavailable, StaleEpoch
from noonday.model.message import LogBatch
from noonday.ports.clock import Clock

_RECENT_MS = 60_000
_REFRESH_SEC = 1.0


class Log:
    """Reads the log with one reader for each partition, and notices when the topic was recreated."""

    def __init__(self, options: KafkaOptions, names: Names, codec: Codec, topics: Topics, clock: Clock) -> None:
        self._options = options
        self._topic = names.log
        self._codec = codec
        self._topics = topics
        self._clock = clock
        self._readers: dict[int, LogReader] = {}
        self._generations: dict[int, str] = {}
        """The generation that `generation` last returned for each partition."""
        self._request: Future[str] | None = None
        self._requested_at = 0.0
        self._generation: str | None = None
        """The generation that the broker last answered."""

    @property
    def readers(self) -> list[LogReader]:
        return list(self._readers.values())

    async def choose_partition(self) -> int:
        """Return a partition with the fewest messages in the last minute, or any one if the broker does not answer."""
        await self._topics.ensure_log()
        try:
            written = await self._topics.count_written_since(self._topic, self._clock.now_ms() - _RECENT_MS)
        except BusUnavailable:
            return random.randrange(self._topics.partitions_of(self._topic))
        return random.choice([partition for partition, count in enumerate(written) if count == min(written)])

    async def generation(self, partition: int) -> str:
        found = self._generations[partition] = self._generation = await self._topics.log_id()
        # An earlier request may be answered with an earlier generation.
        self._request = None
        return found

    async def read(self, partition: int, offset: int, limit: int, wait_sec: float) -> LogBatch:
        self._check_generation(partition)
        reader = await self._reader_of(partition)
        batches = await wait_for_items(lambda: reader.find(offset, limit), reader.arrived, self._clock, wait_sec)
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

    def _check_generation(self, partition: int) -> None:
        """Raise StaleEpoch if the log was recreated: offsets of the former log mean nothing. `generation` clears this."""
        self._refresh_generation()
        expected = self._generations.get(partition)
        if expected is not None and self._generation is not None and expected != self._generation:
            raise StaleEpoch(
                "kafka: the log topic was recreated and its offsets start over: read the generation again",
                generation=self._generation,
            )

    def _refresh_generation(self) -> None:
        now = real_clock.monotonic()
        if now - self._requested_at < _REFRESH_SEC or (self._request is not None and not self._request.done()):
            return
        if self._request is not None:
            if self._request.exception() is None:
                self._generation = self._request.result()
            else:
                self._topics.replace_client()
        self._requested_at = now
        self._request = self._topics.find_log_id()
