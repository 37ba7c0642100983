"""Shell completion, as a shell asks for it: the words of a command line are in variables, and the answer is on stdout."""

import socket

import pytest

from tests.cli.conftest import Run
from tests.cli.serving import eventually

pytestmark = pytest.mark.slow


def completed(run: Run, *words: str, **environ: str) -> list[str]:
    """Return the words that the shell would offer for the last word. Nothing may be on stderr."""
    variables = {
        "_MAIN_COMPLETE": "bash_complete",
        "COMP_WORDS": " ".join(["main", *words]),
        "COMP_CWORD": str(len(words)),
    }
    result = run(env={**variables, **environ})
    assert result.stderr == ""
    return [line.partition(",")[2] for line in result.stdout.splitlines() if line]


def test_commands_are_completed(run: Run) -> None:
    assert completed(run, "job", "occ") == ["occurrences"]


@pytest.mark.parametrize("command", [("job", "show"), ("why",), ("execution", "wait")], ids=" ".join)
def test_names_of_jobs_are_completed(ask: Run, command: tuple[str, ...]) -> None:
    # On a busy machine, a server may take longer than the shell waits.
    eventually(lambda: completed(ask, *command, "shop.ni") == ["shop.nightly"])


def test_names_that_a_shell_would_split_are_left_out(ask: Run) -> None:
    ask("job", "create", "--handler", "demo.echo", "--at", "2099-01-01T00:00Z", "--name", "completion a b")
    ask("job", "create", "--handler", "demo.echo", "--at", "2099-01-01T00:00Z", "--name", "completion-c")
    eventually(lambda: completed(ask, "job", "show", "completion") == ["completion-c"])


def test_without_a_server_there_are_no_names_and_no_error(run: Run) -> None:
    assert completed(run, "job", "show", "x", NOONDAY_TOKEN="x") == []


def test_a_server_that_does_not_answer_is_given_up(run: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        assert completed(run, "job", "show", "x", NOONDAY_URL=url, NOONDAY_TOKEN="x") == []
