"""The name, variable, type and description of every setting."""

from dataclasses import dataclass
from typing import Any

import msgspec

from noonday.wiring.settings import Settings
from noonday.wiring.settings.section import Section, SettingType

PREFIX = "NOONDAY_"
SHORT_VARIABLES = {"NOONDAY_KEYS": "encryption.keys"}
"""Short names of variables that are often set by hand."""


@dataclass(frozen=True)
class SettingDoc:
    """Description of one setting, for `docs/settings.md` and `noonday settings`."""

    key: str
    env: str
    type: str
    default: Any
    help: str
    secret: bool = False


def describe_settings() -> list[SettingDoc]:
    """Return all settings, in the order of their declaration."""
    return [
        SettingDoc(key, variable_of(key), kind.name, kind.default, kind.help, kind.secret)
        for key, kind in TYPES.items()
    ]


def variable_of(key: str) -> str:
    return PREFIX + key.replace(".", "_").upper()


def _sections() -> dict[str, type[Section]]:
    return {info.name: info.type for info in msgspec.structs.fields(Settings) if _is_section(info.type)}


def _is_section(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, Section)


def _types() -> dict[str, SettingType]:
    types = {}
    for info in msgspec.structs.fields(Settings):
        if not _is_section(info.type):
            types[info.name] = SettingType.of(info.type, info.default)
    for section, section_type in SECTIONS.items():
        for info in msgspec.structs.fields(section_type):
            types[f"{section}.{info.name}"] = SettingType.of(info.type, info.default)
    return types


SECTIONS = _sections()
TYPES = _types()
BY_VARIABLE = {variable_of(key): key for key in TYPES} | SHORT_VARIABLES
BY_FLAG = {key.replace(".", "_"): key for key in TYPES}
