"""The application whose handler notes its calls. Workers of a cluster find the file of their notes in the environment."""

import asyncio
import atexit
import os

from bench.peers.contract.speak import Notes
from noonday import Context, Noonday

HANDLER = "peers.note"
POOL = "peers"
NOTES = "BENCH_NOTES"
EACH = "BENCH_NOTES_EACH"

app = Noonday()
_notes: list[Notes] = []


def keep_notes(path: str, each: bool) -> Notes:
    """Returns the notes that the handler of this process writes from now on."""
    _notes[:] = [Notes(path, each)]
    return _notes[0]


@app.handler(HANDLER, pool=POOL)
async def note(_: Context, payload: dict[str, int]) -> None:
    (notes,) = _notes
    number = payload["n"]
    notes.start(number)
    if wait_ms := payload.get("w"):
        await asyncio.sleep(wait_ms / 1000)
        notes.end(number)


if NOTES in os.environ:
    atexit.register(keep_notes(os.environ[NOTES], bool(os.environ.get(EACH))).write)
