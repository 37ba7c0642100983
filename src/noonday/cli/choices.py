"""Options that are one of a few words, however they are capitalised."""

from collections.abc import Iterable

import click


def choice(words: Iterable[str]) -> click.Choice[str]:
    return click.Choice([str(word) for word in words], case_sensitive=False)


def names_of(words: Iterable[str]) -> str:
    """The words as they are written on the wire: click would show them in small letters."""
    return "|".join(str(word) for word in words)
