"""Loads settings from flags, the environment and a file.

A value comes from a flag, else from the environment, else from `noonday.toml`, else from the default. No unknown name is
ignored: a misspelt name is an error that names the nearest valid one. An empty variable counts as not set.
"""

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from noonday.model.errors import BadSettings, Flaw, nearest
from noonday.wiring.settings import Settings
from noonday.wiring.settings.checks import check, raise_flaws
from noonday.wiring.settings.reference import (
    BY_FLAG,
    BY_VARIABLE,
    PREFIX,
    SECTIONS,
    SHORT_VARIABLES,
    TYPES,
    variable_of,
)
from noonday.wiring.settings.section import HIDDEN, SettingType

CONFIG_VARIABLE = "NOONDAY_CONFIG"
DEFAULT_FILE = Path("noonday.toml")
OTHER_VARIABLES = frozenset({CONFIG_VARIABLE, "NOONDAY_URL", "NOONDAY_TOKEN"})
"""Variables with our prefix that are no settings: the path of the settings file, and the variables of the client."""


def load_settings(flags: Mapping[str, Any], environ: Mapping[str, str], file: Path | None = None) -> Settings:
    """Load and check settings from flags, else `NOONDAY_*`, else the file, else defaults.

    `flags` are by key (`scheduler.lead_ms` or `scheduler_lead_ms`); None means not given. `file` is the argument of
    --config; without it, the file is NOONDAY_CONFIG, else `noonday.toml` in the working directory. Raises BadSettings, which
    lists every invalid value with its key, its source and the allowed values.
    """
    found: dict[str, _RawValue] = {}
    flaws = list(_flaws_of_short_variables(environ))
    for each in (*_values_in_file(file, environ), *_values_in_environment(environ), *_values_in_flags(flags)):
        if each.key in TYPES:
            found[each.key] = each
        else:
            flaws.append(each.as_unknown())
    values: dict[str, Any] = {}
    for key, each in found.items():
        try:
            values[key] = TYPES[key].read(each.value, is_text=each.is_text)
        except ValueError:
            flaws.append(each.as_invalid(TYPES[key]))
    raise_flaws(flaws)
    settings = _build(values)
    check(settings)
    return settings


@dataclass(frozen=True)
class _RawValue:
    """A value from one source, before validation."""

    key: str
    value: Any
    source: str
    name: str
    known: tuple[str, ...]
    is_text: bool
    """True if numbers and booleans may be text, as in the environment."""

    def as_unknown(self) -> Flaw:
        if self.name in SECTIONS:
            return Flaw(
                _pointer(self.key), f"{self.key} is a section, not a setting ({self.source}): write [{self.key}]"
            )
        guess = nearest(self.name, self.known)
        hint = f"; did you mean {guess}?" if guess else ""
        detail = f"{self.name} is not a setting ({self.source}){hint}"
        return Flaw(_pointer(self.key), detail, nearest=guess)

    def as_invalid(self, kind: SettingType) -> Flaw:
        shown = HIDDEN if kind.secret else _shortened(repr(self.value))
        detail = f"{self.key} is {shown} ({self.source}): must be {kind.allowed}"
        return Flaw(_pointer(self.key), detail, None if kind.secret else self.value, kind.allowed)


def _values_in_file(file: Path | None, environ: Mapping[str, str]) -> Iterator[_RawValue]:
    path = _find_file(file, environ)
    if path is None:
        return
    for key, value in _flattened(_read_toml(path)):
        yield _RawValue(key, value, f"file {path}", key, tuple(TYPES), is_text=False)


def _find_file(file: Path | None, environ: Mapping[str, str]) -> Path | None:
    if file is not None:
        return file
    if named := environ.get(CONFIG_VARIABLE):
        return Path(named)
    return DEFAULT_FILE if DEFAULT_FILE.is_file() else None


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadSettings(f"cannot read the settings file {path}: {error.strerror}", path=str(path)) from error
    except ValueError as error:
        raise BadSettings(f"the settings file {path} is not TOML: {error}", path=str(path)) from error


def _flattened(content: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in content.items():
        if isinstance(value, dict) and value:
            yield from ((f"{name}.{inner}", inner_value) for inner, inner_value in value.items())
        elif not (value == {} and name in SECTIONS):
            yield name, value


def _values_in_environment(environ: Mapping[str, str]) -> Iterator[_RawValue]:
    known = (*BY_VARIABLE, *OTHER_VARIABLES)
    for name in sorted(environ):
        if not name.startswith(PREFIX) or name in OTHER_VARIABLES or not environ[name].strip():
            continue
        key = BY_VARIABLE.get(name, name)
        yield _RawValue(key, environ[name].strip(), f"environment variable {name}", name, known, is_text=True)


def _flaws_of_short_variables(environ: Mapping[str, str]) -> Iterator[Flaw]:
    for short, key in SHORT_VARIABLES.items():
        if environ.get(short) and environ.get(variable_of(key)):
            yield Flaw(_pointer(key), f"{short} and {variable_of(key)} are both set and mean the same: remove one")


def _values_in_flags(flags: Mapping[str, Any]) -> Iterator[_RawValue]:
    for name, value in flags.items():
        if value is not None:
            key = BY_FLAG.get(name, name)
            yield _RawValue(key, value, f"flag {name}", name, tuple(TYPES), is_text=True)


def _build(values: Mapping[str, Any]) -> Settings:
    top = {key: value for key, value in values.items() if "." not in key}
    for section, section_type in SECTIONS.items():
        prefix = f"{section}."
        top[section] = section_type(
            **{key.removeprefix(prefix): v for key, v in values.items() if key.startswith(prefix)}
        )
    return Settings(**top)


def _pointer(key: str) -> str:
    return "/" + key.replace(".", "/")


def _shortened(text: str) -> str:
    return text if len(text) <= 80 else f"{text[:77]}..."
