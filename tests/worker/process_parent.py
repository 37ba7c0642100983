"""A program that runs one of its own handlers in a process: `python process_parent.py HANDLER [fork]`.

It prints the output of the handler, and the id of a fork of its own if requested; then the result of the handler.
"""

import asyncio
import os
import signal
import sys

from noonday.crypto.keyring import Keyring
from noonday.worker.context import Context
from noonday.worker.process import ProcessHost
from tests.worker import process_handlers
from tests.worker.runs import eventually, new_run

ARGUMENT = sys.argv[1]


def add_up(ctx: Context) -> list[str]:
    return [__name__, ARGUMENT]


async def main() -> None:
    keyring = Keyring.generate()
    host = ProcessHost(1, process_handlers.RESOLVER)
    handler = globals().get(ARGUMENT) or getattr(process_handlers, ARGUMENT)
    run = new_run(handler, keyring)
    task = asyncio.create_task(host.run(run, keyring, 1000))
    await eventually(lambda: run.context._reported_progress is not None or task.done())
    fork = _fork() if "fork" in sys.argv else 0
    print(run.context._reported_progress.decode() if run.context._reported_progress else None, fork, flush=True)
    print((await task).decode(), flush=True)
    host.close()


def _fork() -> int:
    forked = os.fork()
    if forked == 0:
        signal.pause()
    return forked


if __name__ == "__main__":
    asyncio.run(main())
