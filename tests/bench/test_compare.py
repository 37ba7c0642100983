"""Two revisions in turn."""

import subprocess
from pathlib import Path

import pytest
from bench.compare import checked_out, figures_of, turns
from bench.peers.spread import Spread

from bench import BenchFailed


def test_revisions_are_measured_in_turn_after_a_warm_up() -> None:
    assert list(turns(2)) == [
        (-1, "base"),
        (-1, "present"),
        (0, "present"),
        (0, "base"),
        (1, "base"),
        (1, "present"),
    ]


def test_ratios_are_those_of_pairs() -> None:
    found = figures_of([of(100, 50), of(200, 100)], [of(200, 50), of(100, 50)])
    assert found["recorded_per_s"].ratio == Spread(1.25, 0.5, 2, 2)
    assert found["recorded_per_s"].base == Spread(150, 100, 200, 2)
    assert found["cpu_us_per_job"].ratio == Spread(0.75, 0.5, 1, 2)
    assert "p99_ms" not in found


@pytest.mark.slow
def test_a_revision_is_checked_out_beside_the_tree_and_removed(tmp_path: Path) -> None:
    root = repository(tmp_path / "clone")
    messages: list[str] = []
    with checked_out("HEAD~1", tmp_path / "base", root, messages.append) as (commit, place):
        assert (place / "version").read_text() == "1"
        assert (place / ".venv" / ".ready").exists()
        assert messages == [f"setting up {commit[:12]}"]
    assert not (tmp_path / "base").exists()
    assert "base" not in git(root, "worktree", "list")
    assert (root / "version").read_text() == "2"


@pytest.mark.slow
def test_a_revision_that_cannot_be_set_up_leaves_nothing_behind(tmp_path: Path) -> None:
    root = repository(tmp_path / "clone")
    (root / "Makefile").write_text(".venv/.ready:\n\t@echo no network >&2; exit 1\n")
    git(root, "commit", "-aqm", "broken")
    with (
        pytest.raises(BenchFailed, match=r"failed with code 2: no network"),
        checked_out("HEAD", tmp_path / "base", root, lambda _: None),
    ):
        pass
    assert not (tmp_path / "base").exists()


@pytest.mark.slow
def test_an_unknown_revision_is_refused(tmp_path: Path) -> None:
    root = repository(tmp_path / "clone")
    with (
        pytest.raises(BenchFailed, match="'nowhere' is not a revision of"),
        checked_out("nowhere", tmp_path / "base", root, lambda _: None),
    ):
        pass


def repository(root: Path) -> Path:
    root.mkdir()
    git(root, "init", "-q")
    (root / "Makefile").write_text(".venv/.ready:\n\tmkdir -p .venv && touch .venv/.ready\n")
    for version in ("1", "2"):
        (root / "version").write_text(version)
        git(root, "add", "-A")
        git(root, "commit", "-qm", version)
    return root


def git(root: Path, *words: str) -> str:
    identity = ["-c", "user.name=Somebody", "-c", "user.email=somebody@example.com"]
    command = ["git", "-C", str(root), *identity, *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def of(per_s: float, cpu_us: float) -> dict[str, object]:
    return {"recorded_per_s": per_s, "cpu_us_per_job": cpu_us, "lateness_ms": {"p99": None}}
