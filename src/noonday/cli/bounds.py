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


count = _or_none(click.INT, "integer")
number = _or_none(click.FLOAT, "number")
seconds = _or_none(lambda text: duration(text).total_seconds(), "duration")
