"""The schedule of Celery beat as jobs of handlers with the names of the tasks."""

import importlib
import sys
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec

from noonday.cli.importing.imported import Imported
from noonday.cli.job_files import read_text
from noonday.model.errors import InvalidInput, NotFound
from noonday.model.job import Target, is_target_name

_FIELDS = ("minute", "hour", "day_of_month", "month_of_year", "day_of_week")
_SETTINGS = ("beat_schedule", "CELERY_BEAT_SCHEDULE", "CELERYBEAT_SCHEDULE")
_ZONES = ("timezone", "CELERY_TIMEZONE")
_OPTIONS = {"queue", "expires"}


def load_beat(source: str) -> tuple[Mapping[str, Any], str | None]:
    """Return the schedule and the time zone of a JSON file, or of a module (`shop.celery`, `shop.celery:app`)."""
    if source.endswith(".json") or source == "-":
        try:
            found = msgspec.json.decode(read_text(Path(source)))
        except msgspec.DecodeError as bad:
            raise InvalidInput(f"{source} is not JSON: {bad}") from bad
        return _schedule_in(found if isinstance(found, dict) else None, source), None
    module, _, attribute = source.partition(":")
    sys.path.insert(0, str(Path.cwd()))
    try:
        loaded: Any = importlib.import_module(module)
    except ImportError as missing:
        raise NotFound(f"cannot import {module}: {missing}; name a module of this folder, or a .json file") from missing
    app = getattr(loaded, attribute, None) if attribute else _app_in(loaded)
    settings = getattr(app, "conf", app)
    schedule = next((getattr(settings, name) for name in _SETTINGS if getattr(settings, name, None)), None)
    zones = (getattr(settings, name, None) for name in _ZONES)
    timezone = next((each for each in zones if isinstance(each, str)), None)
    return _schedule_in(schedule, source), timezone


def _app_in(module: Any) -> Any:
    """Return the application in a module, or else the module itself, which may have the settings."""
    apps = (getattr(module, name, None) for name in ("app", "celery"))
    return next((app for app in apps if hasattr(app, "conf")), module)


def _schedule_in(found: Any, source: str) -> Mapping[str, Any]:
    if isinstance(found, dict) and isinstance(found.get("beat_schedule"), dict):
        found = found["beat_schedule"]
    if not isinstance(found, Mapping):
        raise InvalidInput(f"{source} has no beat_schedule: an object of entries with task and schedule")
    return found


def read_beat(entries: Mapping[str, Any], timezone: str, pool: str) -> Imported:
    """Return the entries as jobs. A queue becomes the pool of the same name."""
    imported = Imported()
    for name, entry in entries.items():
        _Entry(imported, str(name), entry if isinstance(entry, Mapping) else {}, timezone, pool).add()
    return imported


class _Entry:
    """One entry of the schedule, while it is translated."""

    def __init__(self, imported: Imported, name: str, entry: Mapping[str, Any], timezone: str, pool: str) -> None:
        self._imported = imported
        self._name = name
        self._entry = entry
        self._timezone = timezone
        self._pool = pool
        self._options = entry.get("options") or {}

    def add(self) -> None:
        task, pool = str(self._entry.get("task")), str(self._options.get("queue") or self._pool)
        if not is_target_name(task) or not is_target_name(pool):
            self._note(f"not carried over: task {task!r} in queue {pool!r} cannot name a handler and a pool")
            return
        more = self._more()
        schedule = self._entry.get("schedule")
        seconds = _seconds(schedule)
        if seconds is not None and seconds >= 1:
            self._imported.add_interval(self._name, seconds, Target(pool, task), self._payload(), **more)
            return
        expression = _crontab(schedule)
        if expression is None:
            self._note(f"not carried over: schedule {schedule!r} is neither an interval of at least 1 s nor a crontab")
            return
        fields = expression.split()
        if not fields[2].startswith("*") and not fields[4].startswith("*"):
            self._note(
                f"not carried over: {expression}: Celery runs if both day fields match, cron expressions if either does"
            )
            return
        self._imported.add_cron(
            self._name, self._name, expression, self._timezone, Target(pool, task), self._payload(), **more
        )

    def _more(self) -> dict[str, Any]:
        for name in sorted(set(self._options) - _OPTIONS):
            self._note(f"options.{name}: not carried over")
        if self._entry.get("relative"):
            self._note("relative: not carried over")
        expires = _seconds(self._options.get("expires"))
        if self._options.get("expires") is not None and expires is None:
            self._note("options.expires: not carried over: it is not a number of seconds")
        return {} if expires is None else {"start_deadline_sec": expires}

    def _payload(self) -> Any:
        args, kwargs = list(self._entry.get("args") or ()), dict(self._entry.get("kwargs") or {})
        if args:
            self._note("args: a handler has one payload, here an object with args and kwargs")
            return {"args": args, "kwargs": kwargs}
        return kwargs or None

    def _note(self, text: str) -> None:
        self._imported.note(self._name, text)


def _seconds(value: Any) -> float | None:
    """Return a number, a timedelta, or an object with `run_every`, as seconds."""
    value = value if isinstance(value, timedelta) else getattr(value, "run_every", value)
    if isinstance(value, timedelta):
        return value.total_seconds()
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _crontab(value: Any) -> str | None:
    """Return a crontab of Celery, or an object or text of its fields, as a cron expression."""
    if isinstance(value, str):
        return value if len(value.split()) == 5 else None
    if isinstance(value, Mapping):
        found = {name: value.get(name) for name in _FIELDS}
    else:
        found = {name: getattr(value, f"_orig_{name}", None) for name in _FIELDS}
    if all(each is None for each in found.values()):
        return None
    return " ".join("*" if each is None else _field(each) for each in found.values())


def _field(value: Any) -> str:
    values = value if isinstance(value, list | tuple | set | frozenset) else [value]
    return ",".join(str(each).replace(" ", "") for each in values)
