"""Every size limit, and how they depend on each other.

Data is limited where it enters: payloads at the API, progress and results where a handler hands them over. The sizes of what
carries them (dispatch, report, beat) follow from those limits, and settings whose sizes do not fit into one message of the bus
are refused at start-up. A value stored under other settings can still be too large later: then the bus returns that entry, and
it fails alone.
"""

from collections.abc import Iterator
from dataclasses import dataclass

KIB = 1024
MIB = 1024 * KIB

MESSAGE_BYTES = 1 * MIB
"""Largest message of a Kafka broker that was not told otherwise."""

FRAMING_BYTES = 16 * KIB
"""Part of a message that is kept free for headers, signature and the broker's own framing."""

SEALED_BYTES = 128
"""Most bytes that encryption adds to a value."""

HEAD_BYTES = 48 * KIB
"""Most bytes of ids, names, limits, secrets and trace in one dispatch or report."""

FAILURE_CHARS = 8_000
"""Longest message of a failure, in characters."""

TRACEBACK_CHARS = 16_000
"""Longest traceback of a failure, in characters; its end is kept."""

ATTEMPT_RECORD_BYTES = 192 * KIB
"""Largest record of one webhook call: 64 KiB of the answer's body and 16 KiB of its headers as text, and the request's head."""

PROGRESS_BYTES = 64 * KIB
"""Largest progress of a run, unless the settings say otherwise."""

BEAT_BYTES = 256 * KIB
"""Most progress in one beat, unless the progress of a single run is larger. What is more is split."""

STUCK_NAMED = 1_000
"""Most runs that one beat names as ignoring their cancellation."""

BODY_BYTES = 1 * MIB
"""Least size that the body of any request may have."""

BATCH_BODY_BYTES = 64 * MIB
"""Least size that the body of a batch request may have."""

JSON_BYTES_PER_BYTE = 4
"""How much larger a payload may be as a client writes it (escapes, spaces) than as it is stored."""

_UTF8_BYTES = 4


@dataclass(frozen=True)
class Sizes:
    """The limits that can be set, and those that follow from them."""

    payload_bytes: int = 256 * KIB
    progress_bytes: int = PROGRESS_BYTES
    result_bytes: int = 64 * KIB
    batch_jobs: int = 10_000
    message_bytes: int = MESSAGE_BYTES

    @property
    def pack_bytes(self) -> int:
        """Largest value of a message: what is left when framing is taken off."""
        return self.message_bytes - FRAMING_BYTES

    @property
    def dispatch_bytes(self) -> int:
        """Largest dispatch: a payload, the last progress, and its head."""
        return self.payload_bytes + self.progress_bytes + 2 * SEALED_BYTES + HEAD_BYTES

    @property
    def report_bytes(self) -> int:
        """Largest report: a result, the last progress, a failure, the record of a call, and its head."""
        failure = _UTF8_BYTES * (FAILURE_CHARS + TRACEBACK_CHARS)
        return self.result_bytes + self.progress_bytes + failure + ATTEMPT_RECORD_BYTES + 3 * SEALED_BYTES + HEAD_BYTES

    @property
    def body_bytes(self) -> int:
        """Largest body of a request that is no batch."""
        return max(BODY_BYTES, JSON_BYTES_PER_BYTE * self.payload_bytes)

    @property
    def batch_body_bytes(self) -> int:
        return max(BATCH_BODY_BYTES, self.body_bytes)

    def misfits(self) -> Iterator[tuple[str, int]]:
        """Each kind of entry that may be larger than a message, with the bytes that a message would need."""
        for kind, size in (("dispatch", self.dispatch_bytes), ("report", self.report_bytes)):
            if size > self.pack_bytes:
                yield kind, size + FRAMING_BYTES
