"""Cleaning up when somebody ends a benchmark."""

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

TERMINATED = 128 + signal.SIGTERM


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Told to end, clean up first: there are processes and large files."""
    former = signal.signal(signal.SIGTERM, lambda *_: sys.exit(TERMINATED))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, former)
