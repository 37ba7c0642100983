"""YAML files of people who write jobs."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noonday.cli.yaml_text import DEEPEST, dump, load_all
from noonday.model.errors import InvalidInput

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**60), 2**60)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a: on", "on"),
        ("a: no", "no"),
        ("a: 12:30", "12:30"),
        ("a: 2030-01-31", "2030-01-31"),
        ("a: 010", "010"),
        ("a: 0x1f", "0x1f"),
        ("a: 1_000", "1_000"),
        ("a: 0 3 * * *", "0 3 * * *"),
        ("a: true", True),
        ("a: 7", 7),
        ("a: -0.5", -0.5),
        ("a:", None),
        ("a: ~", None),
        ('a: "7"', "7"),
    ],
)
def test_only_plain_json_values_are_not_text(text: str, value: Any) -> None:
    assert load_all(text, "jobs.yaml") == [{"a": value}]


@given(JSON)
def test_written_values_are_read_again(value: Any) -> None:
    assert load_all(dump({"value": value}), "jobs.yaml") == [{"value": value}]


def test_documents_are_separated_by_lines() -> None:
    assert load_all("---\na: 1\n---\n---\nb: 2\n", "jobs.yaml") == [{"a": 1}, {"b": 2}]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "a: *b",
            "jobs.yaml, line 1, column 4: *b is an alias, which is not supported; put text that begins with * in quotes",
        ),
        ("a:\n  s: */5 * * * *", "line 2, column 7: .* put text that begins with * in quotes"),
        ("a: 1\na: 2", "line 2, column 1: 'a' is repeated"),
        ("1: a", "a key must be text; put it in quotes"),
        ("a: !!python/object:os.system x", "line 1, column 4"),
        ("a: [", "line 1, column"),
        ("\0", "jobs.yaml"),
        ("[" * 20_000, "nested"),
        ("a: " + "[" * (DEEPEST + 1) + "]" * (DEEPEST + 1), f"more than {DEEPEST} nested values"),
    ],
)
def test_a_flaw_is_named_with_its_place(text: str, message: str) -> None:
    with pytest.raises(InvalidInput, match=message.replace("*", r"\*").replace(r".\*", ".*")):
        load_all(text, "jobs.yaml")
