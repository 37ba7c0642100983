"""Decoding of stored rows that another version wrote: unknown fields are ignored.

The API refuses an unknown field, because it is probably a mistake. A stored row was accepted once, so an unknown field in it
belongs to a newer version.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import inspect

T = TypeVar("T")


class StoredDecoder(Generic[T]):
    """Decodes one type from JSON and ignores fields that the type does not have. Raises msgspec.ValidationError."""

    def __init__(self, expected: type[T]) -> None:
        self._shape = inspect.type_info(expected)
        self._decoder = msgspec.json.Decoder(expected)

    def decode(self, text: str | bytes | msgspec.Raw) -> T:
        try:
            return self._decoder.decode(text)
        except msgspec.ValidationError:
            known = _known_part(msgspec.json.decode(text), self._shape)
            return self._decoder.decode(msgspec.json.encode(known))


def read_stored(text: str | bytes, expected: Any) -> Any:
    """Decode a type from JSON and ignore fields that the type does not have. Raises msgspec.ValidationError."""
    return _decoder_of(expected).decode(text)


def _known_part(data: Any, kind: inspect.Type) -> Any:
    """Return decoded JSON without the fields that a type does not have."""
    match kind:
        case inspect.Metadata():
            return _known_part(data, kind.type)
        case inspect.UnionType():
            return next((_known_part(data, each) for each in kind.types if _is_like(data, each)), data)
        case inspect.StructType() if isinstance(data, dict):
            known = {field.encode_name: field.type for field in kind.fields}
            return {name: _known_part(value, known[name]) for name, value in data.items() if name in known}
        case inspect.StructType() if isinstance(data, list):
            return _each(data, [field.type for field in kind.fields])
        case inspect.TupleType() if isinstance(data, list):
            return _each(data, kind.item_types)
        case inspect.ListType() | inspect.VarTupleType() if isinstance(data, list):
            return [_known_part(item, kind.item_type) for item in data]
        case inspect.DictType() if isinstance(data, dict):
            return {name: _known_part(value, kind.value_type) for name, value in data.items()}
    return data


def _each(items: list[Any], kinds: Sequence[inspect.Type]) -> list[Any]:
    known = [_known_part(item, kind) for item, kind in zip(items, kinds, strict=False)]
    return known + items[len(kinds) :]


def _is_like(data: Any, kind: inspect.Type) -> bool:
    if isinstance(kind, inspect.StructType):
        return isinstance(data, list if kind.array_like else dict)
    if isinstance(kind, inspect.ListType | inspect.VarTupleType | inspect.TupleType):
        return isinstance(data, list)
    return isinstance(kind, inspect.DictType) and isinstance(data, dict)


_decoder_of = lru_cache(maxsize=None)(StoredDecoder)
