"""Merge patches: the examples of RFC 7396, and the patch between two values."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noonday.model.merge_patch import merged, patch_between

# Appendix A of RFC 7396.
EXAMPLES: list[tuple[Any, Any, Any]] = [
    ({"a": "b"}, {"a": "c"}, {"a": "c"}),
    ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
    ({"a": "b"}, {"a": None}, {}),
    ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
    ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
    ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
    ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
    ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
    (["a", "b"], ["c", "d"], ["c", "d"]),
    ({"a": "b"}, ["c"], ["c"]),
    ({"a": "foo"}, None, None),
    ({"a": "foo"}, "bar", "bar"),
    ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
    ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
    ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
]
SCALARS = st.booleans() | st.integers() | st.text(max_size=3)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
)


@pytest.mark.parametrize(("target", "patch", "result"), EXAMPLES)
def test_patch_is_merged_as_the_rfc_shows(target: Any, patch: Any, result: Any) -> None:
    assert merged(target, patch) == result


@given(VALUES, VALUES)
def test_patch_between_two_values_turns_one_into_the_other(old: Any, new: Any) -> None:
    assert merged(old, patch_between(old, new)) == new


def test_no_patch_sets_a_member_to_null() -> None:
    with pytest.raises(ValueError, match="cannot set a member to null"):
        patch_between({}, {"a": {"b": None}})
