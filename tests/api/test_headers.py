import pytest
from hypothesis import given
from hypothesis import strategies as st

from noonday.api.errors import BadHeader
from noonday.api.headers import idempotency_key, version_to_match


@pytest.mark.parametrize(
    ("header", "key"),
    [
        ('"8e03978e-40d5"', "8e03978e-40d5"),
        ("8e03978e-40d5", "8e03978e-40d5"),
        (r'"a \"quoted\" \\ key"', 'a "quoted" \\ key'),
        ("two words", "two words"),
        ("k" * 255, "k" * 255),
        ('"' + "k" * 255 + '"', "k" * 255),
    ],
)
def test_idempotency_key_may_be_quoted_or_bare(header: str, key: str):
    assert idempotency_key(header) == key


@pytest.mark.parametrize("header", ["", '""', '"open', '"a"b"', r'"\x"', "k" * 256, '"' + "k" * 256 + '"', "ü", "a\tb"])
def test_invalid_idempotency_key_is_rejected(header: str):
    with pytest.raises(BadHeader):
        idempotency_key(header)


@pytest.mark.slow
@given(st.text(st.characters(min_codepoint=32, max_codepoint=126), min_size=1, max_size=255))
def test_any_printable_idempotency_key_round_trips_quoted(key: str):
    escaped = key.replace("\\", r"\\").replace('"', r"\"")
    assert idempotency_key(f'"{escaped}"') == key


@pytest.mark.parametrize(("header", "version"), [(None, None), ("*", None), ('"3"', 3), ("3", 3), ('"007"', 7)])
def test_if_match_names_a_version_or_any(header: str | None, version: int | None):
    assert version_to_match(header) == version


@pytest.mark.parametrize("header", ["", '"', '"a"', 'W/"3"', '"1", "2"', "3\n", "²", "9" * 19])
def test_invalid_if_match_is_rejected(header: str):
    with pytest.raises(BadHeader):
        version_to_match(header)
