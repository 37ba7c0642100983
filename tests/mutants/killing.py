"""Make mutants, and play each until the checker reports it or gives up."""

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tests.mutants.changing import SOURCE, CodeNotFound, copy_with
from tests.mutants.mutations import Mutant


class NotPlayed(Exception):
    """The runs ended with an error, or another source was imported."""


@dataclass(frozen=True)
class Verdict:
    """The result of a mutant."""

    mutant: Mutant
    killed_by: str | None
    runs: int
    sec: float
    why: str
    """The reported problem, or why the mutant survived."""

    def __str__(self) -> str:
        end = f"killed by {self.killed_by}" if self.killed_by else "SURVIVED"
        return f"{self.mutant.name:34} {end:26} {self.runs:4} runs {self.sec:6.1f} s  {self.why[:150]}"


def kill(mutant: Mutant, *, compare: bool = False) -> Verdict:
    """Apply a mutation to a copy of the source, and play runs of the copy.

    `compare`: also play the run that reports the mutant with the unchanged source. If the checker reports anything for that
    run, it or the engine is wrong, and the mutant counts as a survivor.
    """
    with tempfile.TemporaryDirectory(prefix="noonday-mutant-") as folder:
        try:
            copy_with(mutant.changes, Path(folder))
            answer = _play(Path(folder), mutant.kind, mutant.first, mutant.most, mutant.by)
        except CodeNotFound as error:
            return Verdict(mutant, None, 0, 0.0, f"place not found: {error}")
        except NotPlayed as error:
            return Verdict(mutant, None, 0, 0.0, str(error))
    killed_by, why = answer["by"], answer["problem"] or "nothing was reported"
    if killed_by is None and answer["seen"]:
        why = f"only {answer['seen']} reported: {why}"
    elif killed_by is not None and compare and (problem := _problem_of_unchanged(mutant.kind, answer["seed"])):
        killed_by, why = None, f"seed {answer['seed']} of the unchanged engine is reported, too: {problem}"
    return Verdict(mutant, killed_by, answer["runs"], answer["sec"], why)


@cache
def _problem_of_unchanged(kind: str, seed: int) -> str:
    """Return the checker's report on a run of the unchanged engine; empty if there is no problem."""
    try:
        return str(_play(SOURCE, kind, seed, 1, ())["problem"])
    except NotPlayed as error:
        return str(error)


def _play(source: Path, kind: str, first: int, most: int, words: tuple[str, ...]) -> dict[str, Any]:
    """Play runs of the engine in a folder, in a separate process. Raises NotPlayed."""
    played = subprocess.run(
        [sys.executable, "-m", "tests.mutants.playing", kind, str(first), str(most), *words],
        cwd=SOURCE.parent,
        env={**os.environ, "PYTHONPATH": f"{source}{os.pathsep}{SOURCE.parent}"},
        capture_output=True,
        text=True,
        check=False,
    )
    if played.returncode != 0:
        raise NotPlayed(f"could not be played: {(played.stderr.splitlines() or ['no error'])[-1]}")
    answer: dict[str, Any] = json.loads(played.stdout.splitlines()[-1])
    if not answer["source"].startswith(str(source)):
        raise NotPlayed(f"another source was played: {answer['source']}")
    return answer
