"""Valid URLs of webhooks."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from yarl import URL

from noonday.model.errors import InvalidInput
from noonday.model.url import MAX_LENGTH, Endpoint, read_url


@pytest.mark.parametrize(
    ("text", "endpoint"),
    [
        ("https://example.com/hook?a=b#c", Endpoint("https", "example.com", 443)),
        ("http://example.com", Endpoint("http", "example.com", 80)),
        ("HTTPS://Example.COM:8443/", Endpoint("https", "example.com", 8443)),
        ("https://example.com./", Endpoint("https", "example.com", 443)),
        ("https://bücher.example/", Endpoint("https", "xn--bcher-kva.example", 443)),
        ("http://192.0.2.1:81/", Endpoint("http", "192.0.2.1", 81)),
        ("http://[2001:DB8::1]/", Endpoint("http", "2001:db8::1", 80)),
        ("http://localhost/", Endpoint("http", "localhost", 80)),
        ("http://my_service/", Endpoint("http", "my_service", 80)),
        ("http://127。0。0。1/", Endpoint("http", "127.0.0.1", 80)),
        ("http://[::ffff:127.0.0.1]/", Endpoint("http", "::ffff:7f00:1", 80)),
    ],
)
def test_endpoint_is_scheme_host_and_port(text: str, endpoint: Endpoint) -> None:
    assert read_url(text) == endpoint


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "characters"),
        ("https://example.com/" + "a" * MAX_LENGTH, "characters"),
        ("ftp://example.com/", "http://"),
        ("file:///etc/passwd", "http://"),
        ("gopher://127.0.0.1:6379/_x", "http://"),
        ("example.com/hook", "http://"),
        ("//example.com/hook", "http://"),
        ("http:///hook", ""),
        ("http://", ""),
        ("https://user:secret@example.com/", "credentials"),
        ("https://example.com@127.0.0.1/", "credentials"),
        ("https://@example.com/", "credentials"),
        ("https://example.com\\@127.0.0.1/", "backslashes"),
        ("https://example.com/\r\nHost: other", "control"),
        (" https://example.com/", "spaces"),
        ("http://2130706433/", "four decimal numbers"),
        ("http://0x7f.1/", "four decimal numbers"),
        ("http://0x7f000001/", "four decimal numbers"),
        ("http://0177.0.0.1/", "four decimal numbers"),
        ("http://127.1/", "four decimal numbers"),
        ("http://127.0.0.1./", "four decimal numbers"),
        ("http://127.0.0.1.1/", "four decimal numbers"),
        ("http://256.256.256.256/", "four decimal numbers"),
        ("http://%31%32%37.0.0.1/", ""),
        ("http://127.0.0.1%2f@example.com/", ""),
        ("http://127.0.0.1%00.example.com/", ""),
        ("http://exa mple.com/", "spaces"),
        ("http://a..b/", "host"),
        ("http://-a/", "host"),
        ("http://" + "a" * 64 + ".com/", ""),
        ("http://[fe80::1%25eth0]/", "interface"),
        ("http://[::1/", "not a URL"),
        ("http://example.com:0/", "port"),
        ("http://example.com:65536/", ""),
        ("http://example.com:port/", ""),
    ],
)
def test_invalid_url_is_refused_with_its_pointer(text: str, words: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        read_url(text)
    assert caught.value.flaws[0].pointer == "/payload/webhook_url"
    assert words in caught.value.flaws[0].detail


@pytest.mark.parametrize(
    "text", ["https://user:secret@example.com/", "ftp://user:secret@a/", "http://user:secret@[::1/"]
)
def test_refusal_does_not_repeat_credentials(text: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        read_url(text)
    assert "secret" not in repr((caught.value.flaws, caught.value.detail))


def test_misspelt_scheme_gets_a_suggestion() -> None:
    with pytest.raises(InvalidInput) as caught:
        read_url("htps://example.com/")
    assert caught.value.flaws[0].nearest == "https"


HOSTILE = st.text(st.sampled_from("abh:/@\\.[]%0127fx#?。．\t\u200b\xad ①é"), max_size=30)


@pytest.mark.slow
@given(st.one_of(st.text(max_size=60), HOSTILE, HOSTILE.map("http://{}".format), HOSTILE.map("http://a.b{}/".format)))
def test_any_text_is_refused_or_dials_its_own_host(text: str) -> None:
    try:
        endpoint = read_url(text)
    except InvalidInput:
        return
    again = read_url(f"{endpoint}/")
    assert again == endpoint
    assert URL(text).port == endpoint.port
    assert (URL(text).raw_host or "").lower().removesuffix(".") == (URL(str(endpoint)).raw_host or "")
