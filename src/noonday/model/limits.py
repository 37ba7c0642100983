"""Every size limit, and how they depend on each other.

Data is limited where it enters: payloads at the API, progress and results where a handler returns them. The sizes of the
entries that carry them (dispatch, report, beat) follow from those limits. Settings whose sizes do not fit into one message of
the bus are refused at start-up. A value that was stored under other settings can still be too large later. The bus then
returns that entry, and it fails alone.
"""

from collections.abc import Iterator
from dataclasses import dataclass

KIB = 1024
MIB = 1024 * KIB

MESSAGE_BYTES = 1 * MIB
"""Default size limit of a message in a Kafka broker."""

FRAMING_BYTES = 16 * KIB
"""Bytes of a message that are reserved for headers, signature and the broker's own framing."""

SEALED_BYTES = 128
"""Maximum number of bytes that encryption adds to a value."""

HEAD_BYTES = 48 * KIB
"""Maximum size of ids, names, limits, secrets and trace in one dispatch or report."""

FAILURE_CHARS = 8_000
"""Maximum length of a failure's message, in characters."""

TRACEBACK_CHARS = 16_000
"""Maximum length of a failure's traceback, in characters. Its end is kept."""

ATTEMPT_RECORD_BYTES = 192 * KIB
"""Maximum size of one attempt record: 64 KiB of the response body and 16 KiB of its headers as text, and the request's head."""

PROGRESS_BYTES = 64 * KIB
"""Default maximum size of a run's progress."""

LOG_BYTES = 64 * KIB
"""Default maximum size of the log lines that are kept of an attempt."""

ENQUEUED_JOBS = 1_000
"""Default maximum number of jobs that an attempt enqueues."""

ENQUEUED_BYTES = 256 * KIB
"""Default maximum size of all jobs that an attempt enqueues, with their payloads."""

LOGGED_DISPATCHES = 10
"""Number of dispatches of an execution, the last ones, whose log lines are kept."""

BEAT_BYTES = 256 * KIB
"""Maximum size of all progress in one beat, unless the progress of a single run is larger. More is split into several beats."""

STUCK_NAMED = 1_000
"""Maximum number of runs that one beat names as ignoring their cancellation."""

BODY_BYTES = 1 * MIB
"""Smallest value of the size limit of a request body."""

BATCH_BODY_BYTES = 64 * MIB
"""Smallest value of the size limit of a batch request's body."""

JSON_BYTES_PER_BYTE = 4
"""Maximum ratio of a payload's size as a client writes it (escapes, spaces) to its stored size."""

_UTF8_BYTES = 4


@dataclass(frozen=True)
class Sizes:
    """The limits that can be configured, and those that follow from them."""

    payload_bytes: int = 256 * KIB
    progress_bytes: int = PROGRESS_BYTES
    result_bytes: int = 64 * KIB
    batch_jobs: int = 10_000
    message_bytes: int = MESSAGE_BYTES
    log_bytes: int = LOG_BYTES
    enqueued_bytes: int = ENQUEUED_BYTES

    @property
    def pack_bytes(self) -> int:
        """Maximum size of a message's value: the message without framing."""
        return self.message_bytes - FRAMING_BYTES

    @property
    def dispatch_bytes(self) -> int:
        """Maximum size of a dispatch: a payload, the last progress, and its head."""
        return self.payload_bytes + self.progress_bytes + 2 * SEALED_BYTES + HEAD_BYTES

    @property
    def report_bytes(self) -> int:
        """Maximum size of a report: a result, the last progress, log lines, a failure, an attempt record, enqueued jobs, and its
        head.
        """
        failure = _UTF8_BYTES * (FAILURE_CHARS + TRACEBACK_CHARS)
        values = (self.result_bytes, self.progress_bytes, self.log_bytes, ATTEMPT_RECORD_BYTES, self.enqueued_bytes)
        return sum(values) + len(values) * SEALED_BYTES + failure + HEAD_BYTES

    @property
    def body_bytes(self) -> int:
        """Maximum size of the body of a request that is not a batch."""
        return max(BODY_BYTES, JSON_BYTES_PER_BYTE * self.payload_bytes)

    @property
    def batch_body_bytes(self) -> int:
        return max(BATCH_BODY_BYTES, self.body_bytes)

    def misfits(self) -> Iterator[tuple[str, int]]:
        """Yield each kind of entry that may be larger than a message, with the message size that it would need."""
        for kind, size in (("dispatch", self.dispatch_bytes), ("report", self.report_bytes)):
            if size > self.pack_bytes:
                yield kind, size + FRAMING_BYTES
