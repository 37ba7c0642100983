"""Commands send no token to a program that is not their server."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from urllib.request import urlopen

import pytest
from click.testing import CliRunner

from noonday.cli.main import main
from tests.cli.serving import Up

SECRET = "x" * 43


@contextmanager
def stranger(answer: Callable[[str], tuple[int, bytes]]) -> Iterator[tuple[str, list[str]]]:
    """A foreign program on a local port, and the tokens that it received."""
    tokens: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            tokens.extend(value for name, value in self.headers.items() if name.lower() == "authorization")
            status, body = answer(self.path)
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", tokens
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.slow
@pytest.mark.parametrize(
    "answer",
    [
        lambda path: (200, b'{"proof": "0000"}'),
        lambda path: (200, b'{"jobs": [], "next": null}'),
        lambda path: (404, b"{}"),
        lambda path: (500, b"oops"),
    ],
    ids=["wrong proof", "no proof", "not found", "broken"],
)
def test_no_token_is_sent_to_a_stranger(tmp_path: Path, answer: Callable[[str], tuple[int, bytes]]) -> None:
    with stranger(answer) as (url, tokens):
        environ = {"NOONDAY_URL": url, "NOONDAY_AUTH_SECRET": SECRET, "NOONDAY_DATA": str(tmp_path / "noonday.db")}
        result = CliRunner().invoke(main, ["job", "list"], env=environ)
    assert result.exit_code == 1
    assert "does not know the secret of your server: no token was sent" in result.stderr
    assert tokens == []


@pytest.mark.slow
def test_a_stranger_that_asks_the_real_server_on_another_port_is_found_out(tmp_path: Path) -> None:
    with Up(tmp_path, "--port", "0") as up:

        def passed_on(path: str) -> tuple[int, bytes]:
            with urlopen(up.url + path, timeout=30) as response:
                return response.status, response.read()

        with stranger(passed_on) as (url, tokens):
            result = CliRunner().invoke(main, ["job", "list"], env={**up.environ, "NOONDAY_URL": url})
        assert result.exit_code == 1
        assert tokens == []
        assert CliRunner().invoke(main, ["job", "list"], env=up.environ).exit_code == 0


@pytest.mark.slow
def test_a_token_that_was_given_is_sent_wherever_it_was_meant_for() -> None:
    with stranger(lambda path: (200, b'{"jobs": [], "next": null}')) as (url, tokens):
        result = CliRunner().invoke(main, ["job", "list", "--token", "abc", "--url", url])
    assert result.exit_code == 0, result.output
    assert tokens == ["Bearer abc"]
