"""Generators of clients, which are installed on first use, with pinned versions, under `var/clients/`.

They are no development dependencies: the Python generator alone would bring a dozen packages into `requirements.lock`, and the
others need node or Java. Without its registry or its runtime, a generator is skipped, visibly.
"""

import json
import os
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import pytest

from noonday.api.app import ROUTES
from noonday.api.openapi import document

ROOT = Path(__file__).parents[2]
CACHE = ROOT / "var" / "clients"
REQUIREMENTS = Path(__file__).with_name("openapi-python-client.txt")
OPENAPI_GENERATOR = "7.25.0"
OPENAPI_TYPESCRIPT, TYPESCRIPT = "7.13.0", "5.9.3"
_JAR = "https://repo1.maven.org/maven2/org/openapitools/openapi-generator-cli/{0}/openapi-generator-cli-{0}.jar"
_INSTALL_SEC = 300


def write_document(folder: Path) -> Path:
    """Write the OpenAPI document into a folder, as the server sends it."""
    path = folder / "openapi.json"
    path.write_text(json.dumps(msgspec.to_builtins(document(ROUTES))))
    return path


def run(command: Sequence[str | Path], folder: Path, **environment: str) -> str:
    """Run a command to its end. Returns all that it wrote, and fails with that if the command fails."""
    variables = {**os.environ, "NO_COLOR": "1", **environment}
    ended = subprocess.run(
        list(map(str, command)), cwd=folder, env=variables, capture_output=True, text=True, timeout=_INSTALL_SEC
    )
    text = ended.stdout + ended.stderr
    assert ended.returncode == 0, f"{' '.join(map(str, command))} failed:\n{text}"
    return text


def needs(*programs: str) -> None:
    """Skip the test unless all these programs are installed."""
    if missing := [program for program in programs if shutil.which(program) is None]:
        pytest.skip(f"{', '.join(missing)} not installed")


def python_generator() -> Path:
    """Return the interpreter of an environment with openapi-python-client and all that a generated client needs."""

    def install(folder: Path) -> None:
        run([sys.executable, "-m", "venv", folder], ROOT)
        run([folder / "bin" / "python", "-m", "pip", "install", "--quiet", "-r", REQUIREMENTS], ROOT)

    return _cached("openapi-python-client", REQUIREMENTS.read_text(), install) / "bin" / "python"


def openapi_generator() -> Path:
    """Return the jar of openapi-generator."""
    needs("java")

    def install(folder: Path) -> None:
        folder.mkdir()
        with urllib.request.urlopen(_JAR.format(OPENAPI_GENERATOR), timeout=60) as found:
            (folder / "generator.jar").write_bytes(found.read())

    return _cached("openapi-generator", OPENAPI_GENERATOR, install) / "generator.jar"


def typescript_tools() -> Path:
    """Return the folder with the programs openapi-typescript and tsc."""
    needs("node", "npm")
    packages = [f"openapi-typescript@{OPENAPI_TYPESCRIPT}", f"typescript@{TYPESCRIPT}"]

    def install(folder: Path) -> None:
        folder.mkdir()
        (folder / "package.json").write_text('{"private": true}')
        run(["npm", "install", "--no-audit", "--no-fund", *packages], folder)

    return _cached("typescript", " ".join(packages), install) / "node_modules" / ".bin"


def _cached(name: str, version: str, install: Callable[[Path], None]) -> Path:
    """Return the folder of a tool. A folder of another version, or one that was not completed, is made anew."""
    folder, mark = CACHE / name, CACHE / name / "installed.txt"
    if mark.exists() and mark.read_text() == version:
        return folder
    CACHE.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(folder, ignore_errors=True)
    try:
        install(folder)
    except (OSError, AssertionError, subprocess.TimeoutExpired) as error:
        shutil.rmtree(folder, ignore_errors=True)
        pytest.skip(f"{name} cannot be installed: {str(error)[-300:]}")
    mark.write_text(version)
    return folder
