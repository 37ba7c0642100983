"""Makes mutants, and plays each until the checker reports it or gives up."""

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.mutants.changing import SOURCE, PlaceNotFound, copy_with
from tests.mutants.mutations import Mutant


@dataclass(frozen=True)
class Verdict:
    """What became of a mutant."""

    mutant: Mutant
    killed_by: str | None
    runs: int
    sec: float
    why: str
    """The problem that was reported, or why it survived."""

    def __str__(self) -> str:
        end = f"killed by {self.killed_by}" if self.killed_by else "SURVIVED"
        return f"{self.mutant.name:32} {end:26} {self.runs:4} runs {self.sec:6.1f} s  {self.why[:150]}"


def kill(mutant: Mutant) -> Verdict:
    """Apply a mutation to a copy of the source, and play runs of the copy."""
    with tempfile.TemporaryDirectory(prefix="noonday-mutant-") as folder:
        try:
            copy_with(mutant.changes, Path(folder))
        except PlaceNotFound as error:
            return Verdict(mutant, None, 0, 0.0, f"place not found: {error}")
        played = subprocess.run(
            [
                sys.executable,
                "-m",
                "tests.mutants.playing",
                mutant.kind,
                str(mutant.first),
                str(mutant.most),
                *mutant.by,
            ],
            cwd=SOURCE.parent,
            env={**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{SOURCE.parent}"},
            capture_output=True,
            text=True,
            check=False,
        )
        if played.returncode != 0:
            return Verdict(mutant, None, 0, 0.0, f"could not be played: {played.stderr[-400:]}")
        answer = json.loads(played.stdout.splitlines()[-1])
        if not answer["source"].startswith(folder):
            return Verdict(mutant, None, 0, 0.0, f"another source was played: {answer['source']}")
    why = answer["problem"] or "nothing was reported"
    if answer["by"] is None and answer["seen"]:
        why = f"only {answer['seen']} reported: {why}"
    return Verdict(mutant, answer["by"], answer["runs"], answer["sec"], why)
