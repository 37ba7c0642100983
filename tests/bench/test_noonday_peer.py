"""Noonday as a peer."""

import multiprocessing
from pathlib import Path

import pytest
from bench.peers.noonday.handlers import CountedNotes, started_by


@pytest.mark.slow
def test_calls_of_several_processes_are_counted_while_they_run(tmp_path: Path) -> None:
    path = str(tmp_path / "notes")
    assert started_by(path) == 0
    notes = CountedNotes(path, each=False)
    notes.start(1)
    notes.start(2)
    assert started_by(path) == 2
    other = multiprocessing.get_context("spawn").Process(target=_note_once, args=(path,))
    other.start()
    other.join(60)
    assert started_by(path) == 3
    notes.write()
    assert sorted(line.split()[0] for line in (tmp_path / "notes").read_text().splitlines()) == ["1", "2", "3"]


def _note_once(path: str) -> None:
    notes = CountedNotes(path, each=True)
    notes.start(3)
