"""Free ports on 127.0.0.1, reserved against other test processes."""

import fcntl
import os
import random
import socket
import tempfile
from pathlib import Path

HOST = "127.0.0.1"
RANGE = range(12000, 22000)  # below the ephemeral ports of the kernel, and apart from our pinned ports


def free_ports(count: int) -> list[int]:
    """Return free ports. No other process gets them from this function while the current process lives."""
    found: list[int] = []
    for port in random.sample(RANGE, len(RANGE)):
        if len(found) == count:
            break
        if is_free(port) and _claim(port):
            found.append(port)
    return found


def free_port() -> int:
    return free_ports(1)[0]


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def _claim(port: int) -> bool:
    """Lock a port until this process ends, because several test processes look for ports at the same time."""
    folder = Path(tempfile.gettempdir()) / f"noonday-ports-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    lock = os.open(folder / str(port), os.O_CREAT | os.O_RDWR, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        return False
    return True
