import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog
from click.testing import CliRunner, Result

from noonday.cli.main import main
from servers import urls
from tests.cli.serving import APP, Up

Run = Callable[..., Result]


@pytest.fixture(autouse=True)
def _own_logging() -> Iterator[None]:
    """Restore the logging setup: each command configures it for its process, which must not outlive the test."""
    yield
    structlog.reset_defaults()


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command in an empty folder, without any server."""
    monkeypatch.chdir(tmp_path)
    return _runner({"NOONDAY_URL": "http://127.0.0.1:1"})


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """One server for all tests that need any server. Tests use names of their own for what they create."""
    folder = tmp_path_factory.mktemp("up")
    (folder / "shop.py").write_text(APP)
    with Up(folder, "shop:app", "--port", "0") as up:
        yield up


@pytest.fixture
def ask(server: Up, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command against the server."""
    monkeypatch.chdir(tmp_path)
    return _runner(server.environ)


@pytest.fixture
def ask_json(ask: Run) -> Callable[..., Any]:
    """Run a command that must succeed, and decode its output, which is pure JSON."""

    def answer(*words: str) -> Any:
        result = ask(*words)
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)

    return answer


def _runner(environ: dict[str, str]) -> Run:
    # The environment of the whole test run contains the servers' URLs.
    unset = dict.fromkeys(urls()) | {
        "NOONDAY_URL": None,
        "NOONDAY_TOKEN": None,
        "NOONDAY_DATA": None,
        "COLUMNS": "100",
        "TZ": "UTC",
    }

    def invoke(*words: str, env: dict[str, str] | None = None, input: str | None = None) -> Result:
        result = CliRunner().invoke(main, list(words), env={**unset, **environ, **(env or {})}, input=input)
        if result.exception and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    return invoke
