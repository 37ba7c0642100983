"""Kafka's jars: fetched once a machine with Maven, checked against `versions.toml`, shared by every clone.

`python3 -m servers.jars` prints the table of a new version for that file.
"""

import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from servers.errors import CannotInstall
from servers.run import run_aloud
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
    """The folder of a whole set of jars: this project's, or this user's."""
    return next((folder for folder in (project_folder(), user_folder()) if is_whole(folder)), None)


def get() -> Path:
    folder = find()
    if folder is None:
        raise CannotInstall("Kafka's jars are not there: scripts/servers install")
    return folder


def install(say: Callable[[str], None]) -> str:
    """Put the jars into the project, from the user's folder when they are there. Tells where they came from."""
    pin, ours, shared = pins()["kafka"], project_folder(), user_folder()
    if is_intact(ours, pin):
        return "there already"
    if is_intact(shared, pin):
        _copy(shared, ours, pin)
        return f"from {shared}"
    with _beside(ours) as scratch:
        fetched = fetch(pin, Path(scratch), say)
        if flaws := _flaws(fetched, pin):
            raise CannotInstall(f"Maven brought other jars than versions.toml names: {', '.join(flaws)}")
        _copy(fetched, ours, pin)
    try:
        _copy(ours, shared, pin)
    except OSError as error:
        return f"fetched; not kept for other clones ({error})"
    return "fetched"


def fetch(pin: Pin, scratch: Path, say: Callable[[str], None]) -> Path:
    """Ask Maven, as this machine has it configured, for the artifacts and all they need."""
    dependencies = "".join(DEPENDENCY.format(*artifact.split(":")) for artifact in pin.artifacts)
    (scratch / "pom.xml").write_text(POM.format(dependencies=dependencies))
    files = 0

    def progress(line: str) -> None:
        nonlocal files
        files += line.startswith(("[INFO] Downloaded ", "Downloaded "))
        say(f"{files} files")

    goal = [f"{pin.fetcher}:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={scratch / 'jars'}"]
    words = ["mvn", "-B", *MAVEN, "-f", str(scratch / "pom.xml"), *goal]
    try:
        run_aloud(words, progress)
    except CannotInstall:  # a hiccup of the network; Maven keeps what it has
        run_aloud(words, progress)
    return scratch / "jars"


def is_whole(folder: Path) -> bool:
    """Every jar is there. A folder gets its name only when it is whole, so this is enough to start from."""
    return all((folder / name).is_file() for name in pins()["kafka"].jars)


def is_intact(folder: Path, pin: Pin) -> bool:
    """Every jar is there and is the one that was pinned."""
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
    there = {path.name: path for path in folder.glob("*.jar")}
    unknown = sorted(set(there) - set(pin.jars))
    return unknown + [name for name, digest in pin.jars.items() if name not in there or _digest(there[name]) != digest]


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _copy(source: Path, target: Path, pin: Pin) -> None:
    """By way of a folder beside it, so that nobody ever sees half of it."""
    with _beside(target) as scratch:
        whole = Path(scratch) / target.name
        whole.mkdir()
        for name in pin.jars:
            _link(source / name, whole / name)
        shutil.rmtree(target, ignore_errors=True)
        whole.rename(target)


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


def _beside(folder: Path) -> tempfile.TemporaryDirectory[str]:
    folder.parent.mkdir(parents=True, exist_ok=True)
    return tempfile.TemporaryDirectory(dir=folder.parent, prefix=".part-", ignore_cleanup_errors=True)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        for jar in sorted(fetch(pins()["kafka"], Path(scratch), lambda line: None).glob("*.jar")):
            print(f'"{jar.name}" = "{_digest(jar)}"')
