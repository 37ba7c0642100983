"""`python -m bench compare REV`: a work on two revisions in turn, and the ratio of what they reach."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec

from bench import ROOT, BenchFailed
from bench.engine import EMBEDDED
from bench.peers.speed import Speed, machine_speed
from bench.peers.spread import Spread, ratios, spread
from bench.servers import find_servers

WORKS = ("burst", "stream", "crons", "waiting", "create")
BUILD_WITHIN_SEC = 600
WORK_WITHIN_SEC = 1_800
_COMPLAINTS = 1_000

Document = dict[str, Any]
Tell = Callable[[str], None]


class Figure(msgspec.Struct, frozen=True):
    """A figure of both revisions. The ratio is that of pairs: the present tree divided by the other revision."""

    base: Spread
    present: Spread
    ratio: Spread


class Compared(msgspec.Struct, frozen=True):
    base: str
    """The commit that the present tree is compared with."""
    work: str
    mode: str
    rounds: int
    machine: Speed
    figures: dict[str, Figure]
    documents: dict[str, list[Document]]
    """All that was measured, by `base` and `present`."""


def compare(
    revision: str, work: str, mode: str, rounds: int, options: Sequence[str], tell: Tell, root: Path = ROOT
) -> Compared:
    """Measure a work `rounds` times on each, in turn, after one repetition each that does not count. Raises BenchFailed."""
    environ = os.environ | (find_servers(os.environ, root) if mode != EMBEDDED else {})
    arguments = [work, *(["--mode", mode] if mode != EMBEDDED else []), *options, "--json"]
    with TemporaryDirectory(prefix="noonday-compare-") as own:
        speed = machine_speed(Path(own))
        with checked_out(revision, Path(own) / "base", root, tell) as (commit, base):
            pythons = {"base": base / ".venv" / "bin" / "python", "present": Path(sys.executable)}
            trees = {"base": base, "present": root}
            documents: dict[str, list[Document]] = {side: [] for side in trees}
            for number, side in turns(rounds):
                found = _measure(pythons[side], trees[side], arguments, environ)
                tell(f"{'warm-up' if number < 0 else f'round {number + 1}'}, {side}: {_line(found)}")
                if number >= 0:
                    documents[side].append(found)
    figures = figures_of(documents["base"], documents["present"])
    return Compared(commit, work, mode, rounds, speed, figures, documents)


def turns(rounds: int) -> Iterator[tuple[int, str]]:
    """The round and whose turn it is; round -1 is the warm-up. Who comes first changes from round to round."""
    for number in range(-1, rounds):
        for side in ("base", "present") if number % 2 else ("present", "base"):
            yield number, side


def figures_of(base: Sequence[Document], present: Sequence[Document]) -> dict[str, Figure]:
    """Rate, CPU time a job and the p99 of the lateness, as far as both revisions know them."""
    found = {}
    for name in ("recorded_per_s", "cpu_us_per_job", "p99_ms"):
        was, now = ([_value(each, name) for each in side] for side in (base, present))
        before, after, ratio = spread(was), spread(now), ratios(now, was)
        if before and after and ratio:
            found[name] = Figure(before, after, ratio)
    return found


@contextmanager
def checked_out(revision: str, place: Path, root: Path, tell: Tell) -> Iterator[tuple[str, Path]]:
    """A revision in a temporary worktree with an environment of its own, and its commit. Raises BenchFailed."""
    try:
        commit = _run(
            ["git", "-C", str(root), "rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}"], root
        ).strip()
    except BenchFailed as error:
        raise BenchFailed(f"{revision!r} is not a revision of {root}: name a commit, a branch or a tag") from error
    _run(["git", "-C", str(root), "worktree", "add", "--detach", str(place), commit], root)
    try:
        tell(f"setting up {commit[:12]}")
        _run(["make", "--no-print-directory", ".venv/.ready"], place, BUILD_WITHIN_SEC)
        yield commit, place
    finally:
        _run(["git", "-C", str(root), "worktree", "remove", "--force", str(place)], root)


def _measure(python: Path, tree: Path, arguments: Sequence[str], environ: Mapping[str, str]) -> Document:
    said = _run([str(python), "-m", "bench", *arguments], tree, WORK_WITHIN_SEC, environ)
    document: Document = json.loads(said)
    return document


def _run(
    command: Sequence[str], directory: Path, within_sec: float = 60, environ: Mapping[str, str] | None = None
) -> str:
    """What the command printed. Raises BenchFailed."""
    text = " ".join(command)
    try:
        ended = subprocess.run(
            command, cwd=directory, capture_output=True, text=True, timeout=within_sec, env=environ, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise BenchFailed(f"`{text}` took longer than {within_sec:g} s") from error
    if ended.returncode:
        said = (ended.stderr or ended.stdout).strip()[-_COMPLAINTS:] or "no message"
        raise BenchFailed(f"`{text}` failed with code {ended.returncode}: {said}")
    return ended.stdout


def _value(document: Document, name: str) -> float | None:
    value: float | None = document["lateness_ms"]["p99"] if name == "p99_ms" else document.get(name)
    return value


def _line(document: Document) -> str:
    return f"{document['recorded_per_s']:,.0f} recorded a second, {document['cpu_us_per_job']:.0f} us of CPU a job"
