"""Options that accept one of several words, in any case."""

from collections.abc import Callable, Iterable
from typing import Any

import click


def choice_option(name: str, words: Iterable[str], **more: Any) -> Callable[[Any], Any]:
    """Option of a command that accepts one of the words, and lists them in its help."""
    return click.option(name, type=choice(words), metavar=names_of(words), **more)


def choice(words: Iterable[str]) -> click.Choice[str]:
    return click.Choice([str(word) for word in words], case_sensitive=False)


def names_of(words: Iterable[str]) -> str:
    """Return the words in upper case, as the API has them. Click alone would show them in lower case."""
    return "|".join(str(word) for word in words)
