"""A worker's end of the channel to its parent process."""

import asyncio
import os
import signal
import socket

from noonday.worker.lifeline import end_with
from noonday.worker.parent import LISTENS, RETIRE, WORKS, WORN_OUT


class ParentLink:
    """Exchanges messages with the parent process of a worker."""

    def __init__(self, channel_fd: int, lifeline_fd: int, listener_fd: int) -> None:
        """Tie this process to its parent, with which it ends. `listener_fd` is -1 if there is no socket to take over."""
        self._lifeline_fd = lifeline_fd
        if not end_with(lifeline_fd, os.getpid()):
            _kill_self()
        self._channel = socket.socket(fileno=channel_fd)
        self._channel.set_inheritable(False)
        self._listener = socket.socket(fileno=listener_fd) if listener_fd >= 0 else None
        self.retire_requested = asyncio.Event()
        """Set when the parent asks this worker to retire."""

    def inherited(self) -> socket.socket | None:
        """Return the listening socket of the predecessor, once; None if there is none."""
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.set_inheritable(False)
        return listener

    def share_listener(self, listener: socket.socket) -> None:
        """Pass the listening socket to the parent, for successors."""
        socket.send_fds(self._channel, [LISTENS], [listener.fileno()])

    def report_working(self) -> None:
        """Report to the parent that this worker works, and receive its messages from now on. Must be called on the loop."""
        self._channel.setblocking(False)
        asyncio.get_running_loop().add_reader(self._channel.fileno(), self._receive)
        self._channel.send(WORKS)

    def ask_for_successor(self) -> None:
        """Ask the parent to start a successor."""
        self._channel.send(WORN_OUT)

    def _receive(self) -> None:
        try:
            message = self._channel.recv(1)
        except BlockingIOError:
            return
        if not message:
            _kill_self()  # on platforms where the kernel does not do it
        if message == RETIRE:
            self.retire_requested.set()


def _kill_self() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
