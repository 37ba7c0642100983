"""Running a program whose lines are listened to while it runs."""

import os
import subprocess
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence

from servers.errors import CannotInstall

LIMIT = 900.0  # seconds after which a download is taken for hung


def run_aloud(words: Sequence[str], listen: Callable[[str], None], env: Mapping[str, str] | None = None) -> None:
    """Call `listen` with each line that the program prints; when it fails, its last lines are the error."""
    last: deque[str] = deque(maxlen=15)
    process = _open(words, {**os.environ, **(env or {})})
    hung = threading.Timer(LIMIT, process.kill)
    hung.start()
    with process:
        for line in process.stdout or ():
            last.append(line.rstrip())
            listen(line.rstrip())
    hung.cancel()
    if process.returncode:
        raise CannotInstall(f"{' '.join(words[:3])} ... ended with {process.returncode}:\n" + "\n".join(last))


def _open(words: Sequence[str], env: Mapping[str, str]) -> subprocess.Popen[str]:
    try:
        return subprocess.Popen(
            list(words),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env=dict(env),
        )
    except FileNotFoundError:
        raise CannotInstall(f"{words[0]} is not installed") from None
