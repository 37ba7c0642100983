"""Kafka's jars are fetched once per machine, and the cached ones are checked."""

import hashlib
import re
import shutil
from pathlib import Path

import pytest

from tests.servers.clone import Clone

JARS = {"kafka_2.13-4.3.1.jar": b"broker", "log4j-core-2.25.1.jar": b"log"}
MAVEN = """#!/bin/sh
echo asked >> {asked}
for word; do case $word in -DoutputDirectory=*) out=${{word#*=}};; esac; done
mkdir -p "$out" && cp {store}/*.jar "$out"
"""


class Machine:
    """A clone that finds our Maven and Java, and a cache that other clones can share."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cache = folder / "cache"
        self.asked = folder / "asked"
        self.store = folder / "store"
        self.store.mkdir()
        for name, content in JARS.items():
            (self.store / name).write_bytes(content)
        self._program("mvn", MAVEN.format(asked=self.asked, store=self.store))
        self._program("java", "#!/bin/sh\necho 'openjdk version \"17.0.15\"' >&2\n")

    def clone(self, name: str) -> Clone:
        clone = Clone(self.folder / name)
        table = "".join(f'"{jar}" = "{hashlib.sha256(content).hexdigest()}"\n' for jar, content in JARS.items())
        clone.versions.write_text(
            re.sub(r"(\[kafka\.jars\]\n).*", rf"\g<1>{table}", clone.versions.read_text(), flags=re.S)
        )
        clone.env |= {"XDG_CACHE_HOME": str(self.cache), "PATH": f"{self.folder / 'bin'}:{clone.env['PATH']}"}
        return clone

    def times_asked(self) -> int:
        return len(self.asked.read_text().splitlines()) if self.asked.exists() else 0

    def _program(self, name: str, text: str) -> None:
        path = self.folder / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def install(clone: Clone) -> str:
    ran = clone.run("install", "--only", "kafka")
    assert ran.returncode == 0, ran.stderr
    return ran.stderr


def jars_of(clone: Clone) -> dict[str, bytes]:
    return {jar.name: jar.read_bytes() for jar in (clone.folder / "var/servers/jars/kafka-4.3.1").iterdir()}


def test_maven_is_asked_once_for_all_clones_of_a_machine(machine: Machine) -> None:
    first, second = machine.clone("first"), machine.clone("second")
    install(first)
    install(first)
    assert "from " in install(second)
    assert machine.times_asked() == 1
    assert jars_of(first) == jars_of(second) == JARS


@pytest.mark.parametrize("damage", ["truncated", "missing"])
def test_a_cache_that_is_not_whole_is_not_used(machine: Machine, damage: str) -> None:
    install(machine.clone("first"))
    jar = machine.cache / "noonday/kafka-4.3.1/kafka_2.13-4.3.1.jar"
    jar.unlink()
    if damage == "truncated":
        jar.write_bytes(b"brok")
    second = machine.clone("second")
    install(second)
    assert machine.times_asked() == 2
    assert jars_of(second) == JARS


def test_a_damaged_jar_of_the_project_is_replaced_from_the_cache(machine: Machine) -> None:
    clone = machine.clone("first")
    install(clone)
    jar = clone.folder / "var/servers/jars/kafka-4.3.1/kafka_2.13-4.3.1.jar"
    jar.unlink()
    jar.write_bytes(b"brok")
    install(clone)
    assert machine.times_asked() == 1
    assert jars_of(clone) == JARS


def test_a_jar_that_is_not_the_pinned_one_is_refused(machine: Machine) -> None:
    (machine.store / "log4j-core-2.25.1.jar").write_bytes(b"something else")
    clone = machine.clone("first")
    ran = clone.run("install", "--only", "kafka")
    assert ran.returncode == 1
    assert "differ from versions.toml: log4j-core-2.25.1.jar" in ran.stderr
    assert not machine.cache.exists()


def test_a_maven_that_fails_is_asked_again_and_then_quoted(machine: Machine) -> None:
    shutil.rmtree(machine.store)
    ran = machine.clone("first").run("install", "--only", "kafka")
    assert ran.returncode == 1
    assert "No such file" in ran.stderr
    assert machine.times_asked() == 2
