"""Cleaning up when somebody ends a benchmark."""

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

TERMINATED = 128 + signal.SIGTERM


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Told to end, clean up first: there are processes and large files. Being told again does not interrupt that."""

    def end(*_: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        sys.exit(TERMINATED)

    former = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, former)
