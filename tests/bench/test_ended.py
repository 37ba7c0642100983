"""A benchmark that somebody ends cleans up."""

import signal
import subprocess
import sys

import pytest
from bench.engine import environment

from bench import ROOT

PROGRAM = """
import os, signal, sys
from bench.ended import ended_by_signals
with ended_by_signals():
    try:
        os.kill(os.getpid(), signal.SIGTERM)
        signal.pause()
    finally:
        os.kill(os.getpid(), signal.SIGTERM)
        print("cleaned up", flush=True)
"""


@pytest.mark.slow
def test_cleaning_up_is_not_interrupted_by_a_second_signal() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        capture_output=True,
        text=True,
        env=environment(),
        cwd=ROOT,
        timeout=60,
        check=False,
    )
    assert ended.stdout == "cleaned up\n"
    assert ended.returncode == 128 + signal.SIGTERM
