"""Headers that a user may set, and headers that are stored without their value."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noonday.model.redaction import REDACTED, redacted
from noonday.webhooks.headers import flaws_of


def test_ordinary_headers_may_be_set() -> None:
    headers = {"Content-Type": "application/json", "Authorization": "Bearer abc", "X-Team": "a\tb", "Cookie": "a=b"}
    assert not flaws_of(headers)


@pytest.mark.parametrize(
    "name",
    [
        "Host",
        "content-length",
        "Transfer-Encoding",
        "CONNECTION",
        "Keep-Alive",
        "TE",
        "Trailer",
        "Upgrade",
        "Expect",
        "Proxy-Authorization",
        "Proxy-Connection",
        "X-Forwarded-For",
        "Forwarded",
        "Via",
        "X-Real-IP",
        "webhook-id",
        "Webhook-Signature",
        "Noonday-Attempt",
        "x-idempotency-key",
        "traceparent",
        "",
        "X Y",
        "X:",
        "X\r\nHost",
        "Höst",
    ],
)
def test_reserved_or_invalid_header_name_is_refused(name: str) -> None:
    assert [flaw.pointer for flaw in flaws_of({name: "x", "X-Fine": "y"})] == [f"/payload/headers/{name}"]


@pytest.mark.parametrize("value", ["a\r\nHost: b", "a\nb", "a\rb", "a\0b", "a\x7fb", "é", "\u560a"])
def test_value_with_control_characters_is_refused_and_not_repeated(value: str) -> None:
    flaw = flaws_of({"X-Fine": "x", "Authorization": value})[0]
    assert flaw.pointer == "/payload/headers/Authorization"
    assert value not in repr(flaw)


def test_all_flaws_are_reported() -> None:
    assert len(flaws_of({"Host": "a", "Via": "b", "X-Fine": "c"})) == 2


def test_pointer_escapes_a_slash_in_a_header_name() -> None:
    assert flaws_of({"a/b": ""})[0].pointer == "/payload/headers/a~1b"


def test_too_many_and_too_long_headers_are_refused() -> None:
    assert "at most 64" in flaws_of({f"X-{number}": "" for number in range(65)})[0].detail
    assert "at most 16384" in flaws_of({"X-Long": "x" * 16_384})[0].detail


@pytest.mark.slow
@given(st.dictionaries(st.text(max_size=10), st.text(max_size=10), max_size=5))
def test_accepted_headers_have_one_line_each(headers: dict[str, str]) -> None:
    if not flaws_of(headers):
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        assert len(lines.splitlines()) == len(headers)


def test_redaction_ignores_case_and_keeps_other_headers() -> None:
    secret = ("authorization", "COOKIE", "Set-Cookie", "X-Api-Key", "Proxy-Authorization", "X-Mine")
    kept = redacted([*((name, "secret") for name in secret), ("Content-Type", "text/plain")], also=["x-mine"])
    assert kept == (*((name, REDACTED) for name in secret), ("Content-Type", "text/plain"))
