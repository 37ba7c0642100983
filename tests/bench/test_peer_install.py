"""Installing peers, with a toolchain that only notes that it was called."""

import os
from pathlib import Path

import pytest
from bench.peers.catalog import load_peers
from bench.peers.install import TOOLCHAINS, command_of, install

from bench import ROOT, BenchFailed

RIVER = load_peers()["river"]


def test_a_missing_toolchain_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BenchFailed, match="River needs go, which is not on the PATH"):
        install(RIVER, tmp_path / "peers")


def test_a_peer_is_built_once_beside_the_part_that_programs_of_its_language_share(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool(tmp_path, monkeypatch, 'echo "$@" >> calls; touch program')
    place = install(RIVER, tmp_path / "peers")
    assert install(RIVER, tmp_path / "peers") == place == tmp_path / "peers" / "river"
    assert (place / "calls").read_text() == "build -o program .\n"
    assert {"main.go", "speak.go", "go.mod", "go.sum"} <= {path.name for path in place.iterdir()}
    assert (place / command_of(RIVER)[0]).exists()


def test_a_build_that_fails_says_why_and_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool(tmp_path, monkeypatch, "echo the network is away >&2; exit 1")
    with pytest.raises(BenchFailed, match=r"River: `go build -o program .` failed: the network is away"):
        install(RIVER, tmp_path / "peers")
    tool(tmp_path, monkeypatch, "touch program")
    assert (install(RIVER, tmp_path / "peers") / "program").exists()


def test_sources_are_where_their_build_looks_for_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("mvn", "java"):
        tool(tmp_path, monkeypatch, "", name)
    place = install(load_peers()["db-scheduler"], tmp_path / "peers")
    assert (place / "pom.xml").exists()
    assert sorted(path.name for path in (place / "src/main/java").iterdir()) == ["Program.java", "Speak.java"]


def test_noonday_needs_no_installation() -> None:
    assert install(load_peers()["noonday-embedded"]) == ROOT


def test_every_peer_has_a_program_that_its_toolchain_starts() -> None:
    programs = {"go": "main.go", "node": "program.mjs", "python": "program.py", "java": "Program.java"}
    assert set(programs) == set(TOOLCHAINS)
    for each in load_peers().values():
        if not each.is_noonday:
            assert (each.directory / programs[each.language]).exists()


def tool(directory: Path, monkeypatch: pytest.MonkeyPatch, does: str, name: str = "go") -> None:
    """A command that is found first."""
    tools = directory / "tools"
    tools.mkdir(exist_ok=True)
    (tools / name).write_text(f"#!/bin/sh\n{does}\n")
    (tools / name).chmod(0o755)
    if str(tools) not in os.environ["PATH"]:
        monkeypatch.setenv("PATH", f"{tools}{os.pathsep}{os.environ['PATH']}")
