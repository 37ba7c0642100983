"""The application whose handler notes its calls. Workers of a cluster find the file of their notes in the environment."""

import asyncio
import atexit
import mmap
import os
import struct
from pathlib import Path

from bench.peers.contract.speak import Notes
from noonday import Context, Noonday

HANDLER = "peers.note"
POOL = "peers"
NOTES = "BENCH_NOTES"
EACH = "BENCH_NOTES_EACH"

_COUNT = struct.Struct("q")

app = Noonday()
_notes: list[Notes] = []


class CountedNotes(Notes):
    """Notes whose number of starts other processes can see."""

    def __init__(self, path: str, each: bool) -> None:
        super().__init__(path, each)
        with Path(f"{path}.{os.getpid()}.started").open("w+b") as file:
            file.truncate(_COUNT.size)
            self._shared = mmap.mmap(file.fileno(), _COUNT.size)

    def start(self, number: int) -> None:
        super().start(number)
        _COUNT.pack_into(self._shared, 0, self.started)


def started_by(path: str) -> int:
    """How many handlers were called by all processes whose notes are in that file."""
    counters = Path(path).parent.glob(f"{Path(path).name}.*.started")
    return sum(_COUNT.unpack(counter.read_bytes())[0] for counter in counters)


def keep_notes(notes: Notes) -> Notes:
    """The handler of this process writes these notes from now on."""
    _notes[:] = [notes]
    return notes


@app.handler(HANDLER, pool=POOL)
async def note(_: Context, payload: dict[str, int]) -> None:
    (notes,) = _notes
    number = payload["n"]
    notes.start(number)
    if wait_ms := payload.get("w"):
        await asyncio.sleep(wait_ms / 1000)
        notes.end(number)


if NOTES in os.environ:
    atexit.register(keep_notes(CountedNotes(os.environ[NOTES], bool(os.environ.get(EACH)))).write)
