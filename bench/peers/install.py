"""Installing a peer: its program is copied beside what all programs of its language share, and built there."""

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench import ROOT, BenchFailed
from bench.peers.catalog import PEERS, Language, Peer

INSTALLED = ROOT / "var" / "peers"
INSTALL_WITHIN_SEC = 900
_STAMP = ".installed"


@dataclass(frozen=True)
class Toolchain:
    needs: tuple[str, ...]
    shared: str
    sources: str
    """Where the sources are, below the directory in which they are built."""
    build: tuple[tuple[str, ...], ...]
    start: tuple[str, ...]


TOOLCHAINS: dict[Language, Toolchain] = {
    "go": Toolchain(("go",), "speak.go", ".", (("go", "build", "-o", "program", "."),), ("./program",)),
    "node": Toolchain(
        ("node", "npm"),
        "speak.mjs",
        ".",
        (("npm", "install", "--no-audit", "--no-fund", "--no-package-lock", "--ignore-scripts", "--loglevel=error"),),
        ("node", "program.mjs"),
    ),
    "python": Toolchain(
        ("python3",),
        "speak.py",
        ".",
        (("python3", "-m", "venv", "venv"), ("venv/bin/pip", "install", "--quiet", "-r", "requirements.txt")),
        ("venv/bin/python", "program.py"),
    ),
    "java": Toolchain(
        ("mvn", "java"),
        "Speak.java",
        "src/main/java",
        (("mvn", "-q", "-B", "package", "dependency:copy-dependencies", "-DoutputDirectory=target/lib"),),
        ("java", "-cp", "target/classes:target/lib/*", "Program"),
    ),
}


def install(peer: Peer, into: Path = INSTALLED) -> Path:
    """Install what is not installed yet. Returns the directory in which the program is started. Raises BenchFailed."""
    if peer.language == "noonday":
        return ROOT
    toolchain, directory = TOOLCHAINS[peer.language], into / peer.name
    if missing := [tool for tool in toolchain.needs if not shutil.which(tool)]:
        raise BenchFailed(f"{peer.title} needs {' and '.join(missing)}, which is not on the PATH")
    sources = _sources(peer, toolchain)
    digest = hashlib.sha256(b"".join(name.encode() + source.read_bytes() for name, source in sources.items()))
    stamp = directory / _STAMP
    if not stamp.exists() or stamp.read_text() != digest.hexdigest():
        shutil.rmtree(directory, ignore_errors=True)
        for name, source in sources.items():
            (directory / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, directory / name)
        for command in toolchain.build:
            _run(peer, command, directory)
        stamp.write_text(digest.hexdigest())
    return directory


def command_of(peer: Peer) -> list[str]:
    """The command that starts the program of a peer, in the directory in which it is installed."""
    start = (sys.executable,) if peer.language == "noonday" else TOOLCHAINS[peer.language].start
    return [*start, *peer.command]


def _sources(peer: Peer, toolchain: Toolchain) -> dict[str, Path]:
    """Source files by the place that they are copied to."""
    own = [path for path in sorted(peer.directory.iterdir()) if path.is_file()]
    return {_place(path, toolchain): path for path in (*own, PEERS / "contract" / toolchain.shared)}


def _place(path: Path, toolchain: Toolchain) -> str:
    return f"{toolchain.sources}/{path.name}" if path.suffix == Path(toolchain.shared).suffix else path.name


def _run(peer: Peer, command: Sequence[str], directory: Path) -> None:
    said = " ".join(command)
    try:
        ended = subprocess.run(
            command,
            cwd=directory,
            capture_output=True,
            text=True,
            timeout=INSTALL_WITHIN_SEC,
            env=os.environ,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise BenchFailed(f"{peer.title}: `{said}` took longer than {INSTALL_WITHIN_SEC} s") from error
    if ended.returncode:
        raise BenchFailed(f"{peer.title}: `{said}` failed: {(ended.stderr or ended.stdout).strip()[-800:]}")
