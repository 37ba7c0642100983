"""Settings with their values and sources."""

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from noonday.cli.screen import show, show_json
from noonday.cli.server.local import read_settings
from noonday.cli.tables import ListTable
from noonday.model.errors import NotFound, nearest
from noonday.wiring.settings import Settings
from noonday.wiring.settings.loading import CONFIG_VARIABLE, DEFAULT_FILE
from noonday.wiring.settings.reference import SHORT_VARIABLES, SettingDoc, describe_settings


def list_settings(part: str | None, config: Path | None, *, as_json: bool) -> None:
    """Print the settings whose names contain `part`."""
    values = read_settings(config)
    sources = _Sources(os.environ, config)
    docs = [doc for doc in describe_settings() if part is None or part.lower() in doc.key]
    if not docs:
        keys = [doc.key for doc in describe_settings()]
        guess = nearest(part or "", [*keys, *(key.rpartition(".")[2] for key in keys)])
        hint = f"did you mean {guess}?" if guess else "`noonday settings` lists all settings"
        raise NotFound(f"no such setting: {part}; {hint}")
    if as_json:
        return show_json([_as_json(doc, values, sources) for doc in docs])
    grid = ListTable("SETTING", "VALUE", "FROM", "MEANING", fold=("VALUE", "FROM", "MEANING"))
    for doc in docs:
        grid.add(doc.key, _shown(doc, values), sources.of(doc), doc.help)
    return show(grid)


class _Sources:
    """Sources of setting values."""

    def __init__(self, environ: Mapping[str, str], config: Path | None) -> None:
        self._environ = environ
        named = config or environ.get(CONFIG_VARIABLE)
        self._file = Path(named) if named else DEFAULT_FILE
        self._in_file = tomllib.loads(self._file.read_text("utf-8")) if named or self._file.is_file() else {}

    def of(self, doc: SettingDoc) -> str:
        short = [name for name, key in SHORT_VARIABLES.items() if key == doc.key]
        for name in (doc.env, *short):
            if self._environ.get(name, "").strip():
                return name
        section, _, name = doc.key.rpartition(".")
        members = self._in_file.get(section, {}) if section else self._in_file
        return str(self._file) if name in members else "default"


def _value(doc: SettingDoc, values: Settings) -> Any:
    section, _, name = doc.key.rpartition(".")
    value = getattr(getattr(values, section) if section else values, name)
    return "(hidden)" if doc.secret and value is not None else value


def _shown(doc: SettingDoc, values: Settings) -> str:
    value = _value(doc, values)
    if value is None:
        return "-"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _as_json(doc: SettingDoc, values: Settings, sources: _Sources) -> dict[str, Any]:
    return {
        "key": doc.key,
        "value": _value(doc, values),
        "source": sources.of(doc),
        "env": doc.env,
        "type": doc.type,
        "default": doc.default,
        "help": doc.help,
    }
