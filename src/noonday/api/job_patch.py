"""The type of a merge patch of a job, derived from the type of its definition. Only the OpenAPI document uses it."""

from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import msgspec

from noonday.model.job import JobSpec


def _patch_of(whole: type[msgspec.Struct]) -> type[msgspec.Struct]:
    """Return a struct with the fields of another, none of which is required and all of which may be null."""
    hints = get_type_hints(whole, include_extras=True)
    fields = [
        (field.name, Union[_member(hints[field.name]), None, msgspec.UnsetType], msgspec.UNSET)  # noqa: UP007 - built from a value
        for field in msgspec.structs.fields(whole)
    ]
    name = f"{whole.__name__.removesuffix('Spec')}Patch"
    return msgspec.defstruct(name, fields, rename="camel", forbid_unknown_fields=True, kw_only=True)


def _member(kind: Any) -> Any:
    """Return the type of a member of a patch: objects are patches too."""
    if get_origin(kind) in (Union, UnionType):
        return Union[tuple(map(_member, get_args(kind)))]  # noqa: UP007 - built from a value
    return _patch_of(kind) if isinstance(kind, type) and issubclass(kind, msgspec.Struct) else kind


JobPatch: Any = _patch_of(JobSpec)
