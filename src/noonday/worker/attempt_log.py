"""The last log lines of an attempt, which travel with its report."""

import logging
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

NOTE_BYTES = 80
"""Bytes that are reserved for the note of how much was dropped."""

_CUT = b" [cut]"


@dataclass(frozen=True)
class LogRetention:
    """What is kept of the log lines of each attempt."""

    limit_bytes: int
    level: int
    now_ms: Callable[[], int]

    def new_log(self) -> "AttemptLog | None":
        """Return a new log, or None if nothing is kept."""
        return AttemptLog(self) if self.limit_bytes else None


class AttemptLog:
    """The last log lines of one attempt, within a size. Older lines are dropped whole, and counted. Safe in any thread."""

    def __init__(self, retention: LogRetention) -> None:
        self.level = retention.level
        self._room = max(0, retention.limit_bytes - NOTE_BYTES)
        self._now_ms = retention.now_ms
        self._lines: deque[bytes] = deque()
        self._size = 0
        self._dropped_lines = 0
        self._dropped_bytes = 0
        self._lock = threading.Lock()

    def add(self, level: int, text: str) -> None:
        """Add a record: a line of time, level and text. A text of several lines is added as such."""
        time = (
            datetime.fromtimestamp(self._now_ms() / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        )
        record = f"{time} {logging.getLevelName(level):<8} {text}".replace("\x00", "\ufffd").encode("utf-8", "replace")
        with self._lock:
            for line in record.split(b"\n"):
                self._append(self._cut(line) + b"\n")

    def text(self) -> bytes | None:
        """Return the kept lines, after a note of what was dropped. None if there was no record."""
        with self._lock:
            kept = b"".join(self._lines)
            if not self._dropped_lines:
                return kept or None
            return f"[{self._dropped_lines} earlier lines ({self._dropped_bytes} bytes) were dropped]\n".encode() + kept

    def _cut(self, line: bytes) -> bytes:
        """Return a line that alone fits into the log: the beginning of one that does not."""
        most = max(0, self._room - 1)
        if len(line) <= most:
            return line
        kept = line[: max(0, most - len(_CUT))].decode("utf-8", "ignore").encode() + _CUT
        self._dropped_bytes += len(line) - len(kept)
        return kept

    def _append(self, line: bytes) -> None:
        self._lines.append(line)
        self._size += len(line)
        while self._size > self._room:
            dropped = self._lines.popleft()
            self._size -= len(dropped)
            self._dropped_lines += 1
            self._dropped_bytes += len(dropped)
