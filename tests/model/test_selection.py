"""Fingerprints of errors."""

import pytest

from noonday.model.selection import fingerprint_of, pattern_of


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("timeout after 30 s", "timeout after 4.5 s"),
        ("no customer 'ann'", "no customer 'bob'"),
        ('no file "/tmp/a b"', 'no file "/tmp/c"'),
        ("order 019a3f2e-4c00-7abc-8def-0123456789ab is gone", "order 019b0000-1111-7222-8333-444455556666 is gone"),
        ("10.0.0.1:5432 refused", "10.0.0.27:6543 refused"),
        ("at 0xdeadbeef1", "at 0x00ff1"),
    ],
)
def test_errors_that_differ_by_values_only_share_a_fingerprint(first: str, second: str) -> None:
    assert fingerprint_of("OSError", first) == fingerprint_of("OSError", second)


def test_other_errors_have_other_fingerprints() -> None:
    errors = {("OSError", "disk full"), ("OSError", "no route"), ("ValueError", "disk full")}
    assert len({fingerprint_of(*error) for error in errors}) == len(errors)


def test_a_pattern_shows_the_words() -> None:
    assert pattern_of("HTTP_503", "answered 503  from\n'https://a'") == "HTTP_503: answered # from '…'"
