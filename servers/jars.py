"""Kafka's jars: downloaded once per machine with Maven, verified against `versions.toml`, shared by all clones.

`python3 -m servers.jars` prints the table of a new version for `versions.toml`.
"""

import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from servers.errors import CannotInstall
from servers.run import run_with_output
from servers.versions import Pin, pins

ROOT = Path(__file__).resolve().parent.parent

POM = """<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>noonday</groupId><artifactId>jars</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>{dependencies}</dependencies>
</project>
"""
MAVEN = ["-Dmaven.artifact.threads=16", "-Dmaven.wagon.http.retryHandler.count=3"]
DEPENDENCY = "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version></dependency>"


def find() -> Path | None:
    """Find a folder with all jars: that of the project, else that of the user."""
    return next((folder for folder in (project_folder(), user_folder()) if is_complete(folder)), None)


def get() -> Path:
    folder = find()
    if folder is None:
        raise CannotInstall("Kafka's jars are missing: run scripts/servers install")
    return folder


def install(say: Callable[[str], None]) -> str:
    """Copy the jars into the project, from the user's folder if it has them. Returns where they came from."""
    pin, local, shared = pins()["kafka"], project_folder(), user_folder()
    if is_intact(local, pin):
        return "(already installed)"
    if is_intact(shared, pin):
        _copy(shared, local, pin)
        return f"(copied from {shared})"
    with _temporary_beside(local) as scratch:
        fetched = fetch(pin, Path(scratch), say)
        if flaws := _flaws(fetched, pin):
            raise CannotInstall(f"the jars that Maven downloaded differ from versions.toml: {', '.join(flaws)}")
        _copy(fetched, local, pin)
    try:
        _copy(local, shared, pin)
    except OSError as error:
        return f"(downloaded, but not cached for other clones: {error})"
    return "(downloaded)"


def fetch(pin: Pin, scratch: Path, say: Callable[[str], None]) -> Path:
    """Download the artifacts and their dependencies with Maven, as configured on this machine."""
    dependencies = "".join(DEPENDENCY.format(*artifact.split(":")) for artifact in pin.artifacts)
    (scratch / "pom.xml").write_text(POM.format(dependencies=dependencies))
    files = 0

    def progress(line: str) -> None:
        nonlocal files
        files += line.startswith(("[INFO] Downloaded ", "Downloaded "))
        say(f"{files} files")

    goal = [f"{pin.fetcher}:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={scratch / 'jars'}"]
    arguments = ["mvn", "-B", *MAVEN, "-f", str(scratch / "pom.xml"), *goal]
    try:
        run_with_output(arguments, progress)
    except CannotInstall:  # probably a network error; Maven keeps the files that it has
        run_with_output(arguments, progress)
    return scratch / "jars"


def is_complete(folder: Path) -> bool:
    """Return whether every jar exists. A folder gets its final name only when it is complete, so names suffice."""
    return all((folder / name).is_file() for name in pins()["kafka"].jars)


def is_intact(folder: Path, pin: Pin) -> bool:
    """Return whether every jar exists and has the pinned digest."""
    return not _flaws(folder, pin)


def project_folder() -> Path:
    return ROOT / "var" / "servers" / "jars" / _folder_name()


def user_folder() -> Path:
    home = os.environ.get("XDG_CACHE_HOME")
    cache = Path(home) if home and os.path.isabs(home) else Path.home() / ".cache"
    return cache / "noonday" / _folder_name()


def _folder_name() -> str:
    return f"kafka-{pins()['kafka'].version}"


def _flaws(folder: Path, pin: Pin) -> list[str]:
    found = {path.name: path for path in folder.glob("*.jar")}
    unknown = sorted(set(found) - set(pin.jars))
    return unknown + [name for name, digest in pin.jars.items() if name not in found or _digest(found[name]) != digest]


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _copy(source: Path, target: Path, pin: Pin) -> None:
    """Copy jars into a temporary folder and rename it, so that `target` is never incomplete."""
    with _temporary_beside(target) as scratch:
        copy = Path(scratch) / target.name
        copy.mkdir()
        for name in pin.jars:
            _link(source / name, copy / name)
        shutil.rmtree(target, ignore_errors=True)
        copy.rename(target)


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


def _temporary_beside(folder: Path) -> tempfile.TemporaryDirectory[str]:
    folder.parent.mkdir(parents=True, exist_ok=True)
    return tempfile.TemporaryDirectory(dir=folder.parent, prefix=".part-", ignore_cleanup_errors=True)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        for jar in sorted(fetch(pins()["kafka"], Path(scratch), lambda line: None).glob("*.jar")):
            print(f'"{jar.name}" = "{_digest(jar)}"')
