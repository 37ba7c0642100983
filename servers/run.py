"""Runs a program and passes on its output line by line."""

import os
import subprocess
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence

from servers.errors import CannotInstall

TIMEOUT_SEC = 900.0  # after this time a download counts as hung


def run_with_output(
    arguments: Sequence[str], on_line: Callable[[str], None], env: Mapping[str, str] | None = None
) -> None:
    """Run a program and call `on_line` with each line of its output.

    Raises CannotInstall, with the last lines of the output, if the program fails or is not installed.
    """
    last: deque[str] = deque(maxlen=15)
    process = _open(arguments, {**os.environ, **(env or {})})
    timeout = threading.Timer(TIMEOUT_SEC, process.kill)
    timeout.start()
    with process:
        for line in process.stdout or ():
            last.append(line.rstrip())
            on_line(line.rstrip())
    timeout.cancel()
    if process.returncode:
        raise CannotInstall(f"{' '.join(arguments[:3])} ... exited with {process.returncode}:\n" + "\n".join(last))


def _open(arguments: Sequence[str], env: Mapping[str, str]) -> subprocess.Popen[str]:
    try:
        return subprocess.Popen(
            list(arguments),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env=dict(env),
        )
    except FileNotFoundError:
        raise CannotInstall(f"{arguments[0]} is not installed") from None
