"""What an import found: jobs, and notes about everything that was not carried over."""

import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from noonday.model.cron_parsing import parse
from noonday.model.errors import InvalidInput
from noonday.model.job import CatchUp, CatchUpPolicy, JobSpec, JobType, Target
from noonday.model.retry import RetryPolicy
from noonday.model.shell import HANDLER, POOL, ShellCommand

DAY_SEC = 86_400.0
LONGEST_NAME = 100
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._-]+")
_ZONES = "/zoneinfo/"


@dataclass
class Imported:
    """The jobs of an import, in order, and its notes."""

    jobs: list[JobSpec] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    paused: list[str] = field(default_factory=list)
    """Names of the jobs that were suspended."""

    def note(self, place: str, text: str) -> None:
        self.notes.append(f"{place}: {text}")

    def add_cron(
        self, place: str, name: str, schedule: str, timezone: str, target: Target, payload: Any, **more: Any
    ) -> str | None:
        """Add a cron job under a unique name, and return that name. A schedule that is not valid becomes a note."""
        try:
            parse(schedule)
        except InvalidInput as bad:
            self.note(place, f"not carried over: schedule {schedule!r}: {bad.detail}")
            return None
        timing: dict[str, Any] = {"schedule": schedule, "timezone": timezone}
        return self._add(name, JobSpec(type=JobType.CRON, target=target, payload=payload, **timing, **more))

    def add_interval(self, name: str, seconds: float, target: Target, payload: Any, **more: Any) -> str:
        return self._add(
            name, JobSpec(type=JobType.INTERVAL, target=target, payload=payload, every_sec=seconds, **more)
        )

    def _add(self, name: str, spec: JobSpec) -> str:
        base = _NOT_IN_NAMES.sub("-", name).strip("-")[:LONGEST_NAME] or "job"
        taken, number, unique = {job.name for job in self.jobs}, 2, base
        while unique in taken:
            unique, number = f"{base}-{number}", number + 1
        self.jobs.append(msgspec.structs.replace(spec, name=unique))
        return unique


SHELL_TARGET = Target(POOL, HANDLER)
AS_CRON: dict[str, Any] = {
    "catch_up": CatchUp(policy=CatchUpPolicy.NONE),
    "retry_policy": RetryPolicy(max_attempts=1),
    "timeout_sec": DAY_SEC,
}
"""How cron treats a command: missed runs are skipped, nothing is retried, and nothing ends a run (a job needs a timeout)."""


def payload_of(command: ShellCommand) -> Any:
    return msgspec.json.decode(msgspec.json.encode(command))


def zone_of_machine() -> str | None:
    """Return the name of this machine's time zone, if it can be told."""
    named = os.environ.get("TZ", "").lstrip(":")
    if named and not named.startswith("/"):
        return named
    try:
        return Path("/etc/localtime").resolve(strict=True).as_posix().partition(_ZONES)[2] or None
    except OSError:
        return None
