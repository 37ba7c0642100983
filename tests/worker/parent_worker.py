"""A substitute for a worker that its parent starts: `python parent_worker.py FDS FOLDER WORDS...`.

It notes its pid in FOLDER, acts on the files there, and ends with 0 when it is stopped or retired.
"""

import os
import signal
import socket
import sys
import time
from pathlib import Path

from noonday.worker.lifeline import end_with
from noonday.worker.parent import LISTENS, RETIRE, WORKS, WORN_OUT

channel_fd, lifeline_fd, listener_fd = map(int, sys.argv[1].split(","))
folder = Path(sys.argv[2])


def note(what: str, text: str = "") -> None:
    (folder / f"{what}.{os.getpid()}").write_text(text)


def main() -> None:
    assert end_with(lifeline_fd, os.getpid())
    if listener_fd >= 0 and (folder / "fail").exists():
        note("failed")
        sys.exit(9)
    signals: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, frame: signals.append(number))
    channel = socket.socket(fileno=channel_fd)
    if listener_fd >= 0:
        listener = socket.socket(fileno=listener_fd)
    else:
        listener = socket.create_server(("127.0.0.1", 0))
        socket.send_fds(channel, [LISTENS], [listener.fileno()])
    note("port", str(listener.getsockname()[1]))
    channel.send(WORKS)
    channel.setblocking(False)
    note("works")
    asked = False
    while not signals or (folder / "stubborn").exists():
        if (folder / f"wear-out.{os.getpid()}").exists() and not asked:
            asked = True
            channel.send(WORN_OUT)
        if (folder / "die").exists():
            os.kill(os.getpid(), int((folder / "die").read_text()))
        if (folder / "leave").exists():
            sys.exit(int((folder / "leave").read_text()))
        try:
            if channel.recv(1) == RETIRE:
                note("retired")
                return
        except BlockingIOError:
            time.sleep(0.005)
    note("told", str(signals[0]))


if __name__ == "__main__":
    main()
