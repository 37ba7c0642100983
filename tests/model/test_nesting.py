import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from noonday.model.nesting import MOST_LEVELS, is_too_deep, levels_of


def levels(value: object) -> int:
    """Count the levels by examining each value."""
    if isinstance(value, dict):
        return 1 + max(map(levels, value.values()), default=0)
    return 1 + max(map(levels, value), default=0) if isinstance(value, list) else 0


tricky = st.text(alphabet='[]{}"\\\u00e9a', max_size=8)
values = st.recursive(
    tricky | st.none() | st.integers(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(tricky, inner, max_size=4),
    max_leaves=30,
)


@pytest.mark.slow
@given(values)
def test_levels_are_counted_as_by_looking_at_each_value(value: object) -> None:
    assert levels_of(msgspec.json.encode(value)) == levels(value)
    assert levels_of(json.dumps(value).encode()) == levels(value)


@pytest.mark.parametrize(("opening", "closing"), [(b"[", b"]"), (b'{"a":', b"}")])
def test_so_many_levels_are_the_most(opening: bytes, closing: bytes) -> None:
    assert not is_too_deep(opening * MOST_LEVELS + b"1" + closing * MOST_LEVELS)
    assert is_too_deep(opening * (MOST_LEVELS + 1) + b"1" + closing * (MOST_LEVELS + 1))


def test_many_shallow_values_are_not_deep() -> None:
    assert not is_too_deep(msgspec.json.encode([{"a": "[[[["}] * 10_000))
