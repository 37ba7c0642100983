"""A worker's end of the line to its parent process."""

import asyncio
import os
import signal
import socket

from noonday.worker.lifeline import end_with
from noonday.worker.parent import LISTENS, RETIRE, WORKS, WORN_OUT


class ParentLink:
    """What a worker says to its parent, and hears from it."""

    def __init__(self, channel_fd: int, lifeline_fd: int, listener_fd: int) -> None:
        """From now on this process ends with its parent. `listener_fd` is -1 if there is no socket to take over."""
        self._lifeline_fd = lifeline_fd
        if not end_with(lifeline_fd, os.getpid()):
            _die()
        self._channel = socket.socket(fileno=channel_fd)
        self._channel.set_inheritable(False)
        self._listener = socket.socket(fileno=listener_fd) if listener_fd >= 0 else None
        self.told_to_retire = asyncio.Event()

    def inherited(self) -> socket.socket | None:
        """The socket that a predecessor listened on, for one use."""
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.set_inheritable(False)
        return listener

    def listens(self, listener: socket.socket) -> None:
        """Let successors have the socket."""
        socket.send_fds(self._channel, [LISTENS], [listener.fileno()])

    def works(self) -> None:
        """Say that the work has begun, and listen from now on. Must be called on the loop."""
        self._channel.setblocking(False)
        asyncio.get_running_loop().add_reader(self._channel.fileno(), self._hear)
        self._channel.send(WORKS)

    def ask_for_successor(self) -> None:
        self._channel.send(WORN_OUT)

    def _hear(self) -> None:
        try:
            word = self._channel.recv(1)
        except BlockingIOError:
            return
        if not word:
            _die()  # where the kernel does not do it
        if word == RETIRE:
            self.told_to_retire.set()


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
