"""Installs missing programs: packages with apt and Kafka's jars with Maven, in parallel."""

import os
import re
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from servers import jars, postgres
from servers.errors import CannotInstall
from servers.run import run_with_output
from servers.versions import at_least, pins

SERVERS = ("postgres", "redis", "etcd", "kafka")
TOOLS = ("prometheus",)
PROGRAMS = {"postgres": "postgres", "redis": "redis-server", "etcd": "etcd", "prometheus": "promtool"}
EXAMPLES = {
    "postgres": "NOONDAY_POSTGRES_URL=postgresql://USER:PASSWORD@HOST:5432/DATABASE",
    "redis": "NOONDAY_REDIS_URL=redis://:PASSWORD@HOST:6379/0",
    "etcd": "NOONDAY_ETCD_URLS=http://HOST:2379",
    "kafka": "NOONDAY_KAFKA_SERVERS=HOST:9092",
}
APT = ["apt-get", "-y", "-q", "-o", "DPkg::Lock::Timeout=300", "-o", "Acquire::Retries=3"]
PROGRESS_SEC = 5.0  # interval of progress messages

Say = Callable[[str], None]


def install(names: Sequence[str], say: Say) -> None:
    """Install the missing programs of the named servers. Raises CannotInstall, with the next step, if that is not possible."""
    missing = _missing(names)
    if missing and not _may_install():
        missing = _without_tools(missing, say)
        if missing:
            raise CannotInstall(_advice(missing))
    try:
        _run(_steps(names, missing), say)
    except CannotInstall as error:
        raise CannotInstall(f"{error}\n\n{_advice(missing)}" if missing else str(error)) from None
    if still := _missing(list(missing)):
        raise CannotInstall(_advice(still))


def missing_packages(name: str) -> list[str]:
    """Return the packages that the server still needs; none if its programs are installed in the right version."""
    pin = pins()[name]
    if name == "kafka":
        java, maven = pin.packages
        no_maven = jars.find() is None and shutil.which("mvn") is None
        return [java] * (not _has("java", "-version", pin.java)) + [maven] * no_maven
    return [] if _has(_program(name), "--version", pin.version) else list(pin.packages)


def installed_version(name: str) -> str | None:
    """Return the version on this machine, or None if the server is not installed."""
    if name == "kafka":
        return pins()[name].version if jars.find() else None
    return _version(_program(name), "--version")


def _missing(names: Sequence[str]) -> dict[str, list[str]]:
    return {name: packages for name in names if (packages := missing_packages(name))}


def _without_tools(missing: dict[str, list[str]], say: Say) -> dict[str, list[str]]:
    """Return the missing servers without the optional tools."""
    for name in missing.keys() & set(TOOLS):
        say(f"{name} is missing and cannot be installed here: alert rules are not checked")
    return {name: packages for name, packages in missing.items() if name not in TOOLS}


def _steps(names: Sequence[str], missing: dict[str, list[str]]) -> "list[Step]":
    steps: list[Step] = []
    if packages := [package for each in missing.values() for package in each]:
        steps.append(Step("packages", lambda say: _install_packages(packages, say)))
    if "kafka" in names:
        first = list(steps) if "kafka" in missing else []  # Maven may be one of the packages
        steps.append(Step("Kafka's jars", jars.install, after=first))
    return steps


def _has(program: str, option: str, minimum: str) -> bool:
    version = _version(program, option)
    return version is not None and at_least(version, minimum)


def _version(program: str, option: str) -> str | None:
    with suppress(OSError):
        output = subprocess.run([program, option], capture_output=True, text=True, check=False)
        if found := re.search(r"\d+(\.\d+)+", output.stdout + output.stderr):
            return found.group()
    return None


def _program(name: str) -> str:
    if name == "postgres":
        with suppress(CannotInstall):
            return str(postgres.tool("postgres"))
    return PROGRAMS[name]


def _may_install() -> bool:
    return os.geteuid() == 0 and shutil.which("apt-get") is not None


def _install_packages(packages: Sequence[str], say: Say) -> str:
    env = {"DEBIAN_FRONTEND": "noninteractive"}
    with suppress(CannotInstall):  # old package lists may suffice; if not, the installation fails
        run_with_output([*APT, "update"], say, env)
    run_with_output([*APT, "install", "--no-install-recommends", *packages], say, env)
    return " ".join(packages)


def _advice(missing: dict[str, list[str]]) -> str:
    lines = [f"some programs are missing and cannot be installed here ({_obstacle()}):"]
    for name, packages in missing.items():
        pin = pins()[name]
        programs = f"Java {pin.java} or later, and Maven" if name == "kafka" else f"{name} {pin.version} or later"
        lines.append(f"  {name}: install {programs} (Debian 12: apt-get install {' '.join(packages)})")
        if name in EXAMPLES:
            lines.append(f"    or use a running server: export {EXAMPLES[name]}")
    return "\n".join(lines)


def _obstacle() -> str:
    if shutil.which("apt-get") is None:
        return "this system has no apt-get"
    return "apt-get did not install them" if os.geteuid() == 0 else "installing needs root"


class Step(threading.Thread):
    """One step of the installation, in its own thread. It starts after the steps in `after`."""

    def __init__(self, title: str, work: Callable[[Say], str], after: "Sequence[Step]" = ()) -> None:
        super().__init__(name=title, daemon=True)
        self.work = work
        self.after = after
        self.status = ""
        self.result = ""
        self.error: BaseException | None = None
        self.began = time.monotonic()
        self.reported_at = self.began

    def run(self) -> None:
        try:
            for step in self.after:
                self.status = f"waiting for {step.name}"
                step.join()
            self.result = self.work(self._set_status)
        except BaseException as error:
            self.error = error

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.began

    def _set_status(self, line: str) -> None:
        self.status = line[:70]


def _run(steps: Sequence[Step], say: Say) -> None:
    for step in steps:
        say(f"{step.name}: started")
        step.start()
    waiting = list(steps)
    while waiting:
        waiting[0].join(0.1)
        for step in list(waiting):
            if not step.is_alive():
                waiting.remove(step)
                say(f"{step.name}: {'failed' if step.error else 'done'} after {step.seconds:.1f} s {step.result}")
            elif time.monotonic() - step.reported_at > PROGRESS_SEC:
                step.reported_at = time.monotonic()
                say(f"{step.name}: {step.seconds:.0f} s so far  {step.status}")
    for step in steps:
        if step.error:
            raise step.error
