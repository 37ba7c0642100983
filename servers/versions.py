"""Pinned versions of the servers, from `versions.toml`."""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

PINNED = Path(__file__).with_name("versions.toml")


@dataclass(frozen=True)
class Pin:
    version: str
    packages: tuple[str, ...]
    ports: tuple[int, ...] = ()
    artifacts: tuple[str, ...] = ()
    fetcher: str = ""
    java: str = ""
    jars: Mapping[str, str] = field(default_factory=dict)


@cache
def pins() -> Mapping[str, Pin]:
    """Return the pin of each server, by name."""
    return {name: _pin(entry) for name, entry in tomllib.loads(PINNED.read_text()).items()}


def at_least(version: str, minimum: str) -> bool:
    return _numbers(version) >= _numbers(minimum)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version))


def _pin(entry: dict[str, object]) -> Pin:
    values = {key: tuple(value) if isinstance(value, list) else value for key, value in entry.items()}
    return Pin(**values)  # type: ignore[arg-type]
