"""JSON Schema: constraints on generated schemas, and choices between them."""

from collections.abc import Iterable
from typing import Any

Schema = dict[str, Any]


def constrain(schema: Schema, types: tuple[str, ...], **constraints: Any) -> None:
    """Add constraints to a schema, or to its options, of these types."""
    for option in schema.get("anyOf", [schema]):
        if option.get("type") in types:
            option |= constraints


def choice(whole: Schema, titles: Iterable[str], ref: str, *, keyword: str = "oneOf") -> Schema:
    """Return the schema that replaces `whole` by a choice of the components with these titles.

    `ref` is the template of a reference. `keyword` is `oneOf`, or `anyOf` if a value may match several.
    """
    options = [{"$ref": ref.format(name=title)} for title in titles]
    return {"title": whole["title"], "description": whole.get("description", ""), keyword: options}
