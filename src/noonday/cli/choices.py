"""Option types that accept one of several words, in any case."""

from collections.abc import Iterable

import click


def choice(words: Iterable[str]) -> click.Choice[str]:
    return click.Choice([str(word) for word in words], case_sensitive=False)


def names_of(words: Iterable[str]) -> str:
    """Return the words in upper case, as the API has them. Click alone would show them in lower case."""
    return "|".join(str(word) for word in words)
