"""The CPU time of processes, and the owners of ports."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from bench.machine import cpu_sec, has_ended, listeners

BUSY = "import time\nwhile time.process_time() < 0.3: pass\n"
"""The kernel counts user and system time in ticks, of which several may be left out."""


@pytest.mark.slow
@pytest.mark.parametrize("child", [BUSY, f"{BUSY}print(flush=True); input()"], ids=["ended", "running"])
def test_cpu_time_of_a_child_counts_while_it_runs_and_after_its_end(child: str) -> None:
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}]); print(flush=True); input()"
    with running(parent) as process:
        assert process.stdout
        process.stdout.readline()
        assert cpu_sec({"both": [process.pid]})["both"] >= 0.2


def test_a_process_that_is_not_there_used_nothing() -> None:
    assert cpu_sec({"nobody": [2**22 + 1], "none": []}) == {"nobody": 0, "none": 0}


def test_process_that_listens_on_a_port_is_found() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        assert listeners(port) == [os.getpid()]
    assert listeners(port) == []


def test_a_process_has_ended_before_anybody_notices() -> None:
    with running("input()") as process:
        assert not has_ended(process.pid)
        process.send_signal(signal.SIGKILL)
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert has_ended(process.pid)


@contextmanager
def running(code: str) -> Iterator["subprocess.Popen[bytes]"]:
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            process.communicate(b"\n\n")
