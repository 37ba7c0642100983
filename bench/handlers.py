"""The application of a cluster's workers: what its handlers saw is written down when the process ends in good order."""

import atexit
from pathlib import Path

from bench.notes import Notes

NOTES = "notes"
"""In the directory that the worker was started in."""

_notes = Notes()
app = _notes.registry
atexit.register(_notes.write, Path(NOTES).absolute())
