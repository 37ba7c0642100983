"""Option types for limits: a number, or `none` to remove the limit."""

from collections.abc import Callable
from typing import Any

import click

from noonday.cli.instants import duration

NONE = object()
"""Value of an option that was given as `none`."""


def _or_none(read: Callable[[str], Any], name: str) -> Callable[[str], Any]:
    def convert(text: str) -> Any:
        return NONE if text == "none" else read(text)

    convert.__name__ = f"{name}|none"
    return convert


def put_limit(settings: dict[str, Any], name: str, value: Any) -> None:
    """Set a limit, remove it if the value is NONE, or keep it if the option was not given."""
    if value is NONE:
        settings.pop(name, None)
    elif value is not None:
        settings[name] = value


count = _or_none(click.INT, "integer")
number = _or_none(click.FLOAT, "number")
seconds = _or_none(lambda text: duration(text).total_seconds(), "duration")
