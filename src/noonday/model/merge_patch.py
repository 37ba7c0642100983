"""JSON merge patches (RFC 7396)."""

from typing import Any


def merged(target: Any, patch: Any) -> Any:
    """Return a JSON value with a merge patch applied. Null removes a member; an array replaces the whole array."""
    if not isinstance(patch, dict):
        return patch
    members = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            members.pop(name, None)
        else:
            members[name] = merged(members.get(name), value)
    return members


def patch_between(old: Any, new: Any) -> Any:
    """Return the merge patch that turns one JSON value into another. Raises ValueError if `new` has a null inside an object.

    A merge patch cannot set a member to null.
    """
    if not isinstance(new, dict):
        return new
    if any(value is None for value in new.values()):
        raise ValueError("a merge patch cannot set a member to null")
    former = old if isinstance(old, dict) else {}
    removed = {name: None for name in former if name not in new}
    return removed | {name: patch_between(former.get(name), value) for name, value in new.items()}
