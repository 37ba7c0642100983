"""JSON Schema: constraints on generated schemas, and choices between them."""

from collections.abc import Iterable
from typing import Any

Schema = dict[str, Any]


_TYPES = {bool: "boolean", int: "integer", str: "string"}


def only(value: bool | int | str) -> Schema:
    """Return the schema of one value. It is an `enum` with a type: generators of clients do not understand a bare `const`."""
    return {"type": _TYPES[type(value)], "enum": [value]}


def drop_empty_defaults(components: dict[str, Schema]) -> None:
    """Remove the default `{}` beside references: generators of clients copy it into code that does not compile."""
    for component in components.values():
        for field in component.get("properties", {}).values():
            if "$ref" in field and field.get("default") == {}:
                del field["default"]


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
