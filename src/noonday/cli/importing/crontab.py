"""Crontabs as jobs of `shell.run`."""

import re
from pathlib import PurePath
from typing import NamedTuple

from noonday.cli.importing.imported import AS_CRON, SHELL_TARGET, Imported, payload_of
from noonday.model.cron_parsing import ALIASES
from noonday.model.errors import InvalidInput
from noonday.model.shell import DEFAULT_SHELL, ShellCommand
from noonday.model.zones import zone

_VARIABLE = re.compile(r"\s*([A-Za-z_]\w*|\"[^\"]+\"|'[^']+')\s*=\s*(.*?)\s*")
_CHANGES_FOLDER = re.compile(r"^cd\s+\S+\s*(&&|;)\s*")
_INPUT_END = "END_OF_INPUT"
_WRAPPERS = {
    "nice",
    "ionice",
    "nohup",
    "env",
    "sudo",
    "exec",
    "cd",
    "test",
    "[",
    "/bin/sh",
    "sh",
    "bash",
    "flock",
    "timeout",
}


class _Line(NamedTuple):
    schedule: str
    user: str | None
    command: str


class CrontabReader:
    """Reads one crontab, line by line: a variable holds for the lines below it."""

    def __init__(self, timezone: str, *, has_users: bool) -> None:
        self._imported = Imported()
        self._timezone = timezone
        self._has_users = has_users
        self._env: dict[str, str] = {}
        self._shell = DEFAULT_SHELL
        self._spread_sec: float | None = None

    def read(self, text: str) -> Imported:
        for number, line in enumerate(text.splitlines(), 1):
            if line.strip() and not line.lstrip().startswith("#"):
                self._read_line(f"line {number}", line)
        return self._imported

    def _read_line(self, place: str, line: str) -> None:
        if variable := _VARIABLE.fullmatch(line):
            self._set(place, _unquoted(variable[1]), _unquoted(variable[2]))
            return
        entry = self._split(place, line)
        if entry is not None:
            self._add(place, entry)

    def _set(self, place: str, name: str, value: str) -> None:
        note = self._imported.note
        match name:
            case "MAILTO" | "MAILFROM":
                note(
                    place,
                    f"{name}={value}: cron's mail is not carried over; `noonday alert notify` sends mail about failures",
                )
            case "CRON_TZ":
                self._set_zone(place, value)
            case "SHELL":
                self._shell = value
            case "RANDOM_DELAY" if value.isdigit():
                self._spread_sec = 60.0 * int(value)
                note(
                    place,
                    "RANDOM_DELAY becomes spreadSec: each job has a constant delay, instead of a new one each time",
                )
            case "START_HOURS_RANGE" | "CONTENT_TYPE" | "CONTENT_TRANSFER_ENCODING":
                note(place, f"{name}={value}: not carried over")
            case "LOGNAME" | "USER":
                note(place, f"{name}={value}: not carried over; the command runs as the user of the worker")
            case _:
                self._env[name] = value

    def _set_zone(self, place: str, value: str) -> None:
        try:
            zone(value)
        except InvalidInput as bad:
            self._imported.note(place, f"CRON_TZ={value}: not carried over: {bad.detail}")
        else:
            self._timezone = value

    def _split(self, place: str, line: str) -> _Line | None:
        """Split a line into schedule, user and command. What has no equal becomes a note."""
        text = line.strip().removeprefix("-")  # SUSE: do not log
        count = 1 if text.startswith("@") else 5
        words = text.split(None, count + self._has_users)
        if len(words) < count + 1 + self._has_users:
            self._imported.note(place, f"not carried over: not a line of a crontab: {line.strip()!r}")
            return None
        schedule = " ".join(words[:count])
        if schedule.startswith("@") and schedule.lower() not in ALIASES:
            why = "nothing runs at boot; start the service by other means" if schedule == "@reboot" else "no such alias"
            self._imported.note(place, f"{schedule} {words[-1]!r}: not carried over: {why}")
            return None
        return _Line(schedule, words[count] if self._has_users else None, words[-1])

    def _add(self, place: str, line: _Line) -> None:
        command, stdin = _without_percent(line.command)
        script = command if stdin is None else f"{{ {command}\n}} <<'{_INPUT_END}'\n{stdin}\n{_INPUT_END}\n"
        payload = ShellCommand(script=script, env=dict(self._env), cwd=self._env.get("HOME"), shell=self._shell)
        name = self._imported.add_cron(
            place, _name_of(command), line.schedule, self._timezone, SHELL_TARGET, payload_of(payload),
            spread_sec=self._spread_sec, **AS_CRON,
        )  # fmt: skip
        if name is not None:
            self._note_differences(place, name, line, stdin)

    def _note_differences(self, place: str, name: str, line: _Line, stdin: str | None) -> None:
        note = self._imported.note
        if line.user is not None:
            note(place, f"{name}: user {line.user}: not carried over; the command runs as the user of the worker")
        if stdin is not None:
            note(place, f"{name}: the text after % is its standard input, here by a heredoc")
        fields = line.schedule.split()
        if len(fields) == 5 and not fields[2].startswith("*") and not fields[4].startswith("*"):
            note(place, f"{name}: runs if the day of month or the day of week matches, as in cron")


def _without_percent(command: str) -> tuple[str, str | None]:
    """Return the command and its standard input: an unescaped % ends the command, and further ones are line ends."""
    parts = re.split(r"(?<!\\)%", command)
    plain = [part.replace("\\%", "%") for part in parts]
    return plain[0].strip(), "\n".join(plain[1:]) if len(plain) > 1 else None


def _name_of(command: str) -> str:
    """Return the name of the program that a command runs."""
    for word in _CHANGES_FOLDER.sub("", command).split():
        if "=" not in word and word not in _WRAPPERS and not word.startswith(("-", "$", "(", "{")):
            return PurePath(word.rstrip(";")).name
    return "cron"


def _unquoted(text: str) -> str:
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'" else text
