"""Resent calls, with a server that may call this machine, and a receiver that fails until it is mended."""

import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from noonday.cli import exits
from tests.cli.conftest import Run
from tests.cli.serving import Up, eventually
from tests.cli.test_tasks import create, ended, name

Answer = Callable[..., Any]
__all__ = ["name"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    environ = {"NOONDAY_WEBHOOKS_ALLOW_NETWORKS": "127.0.0.0/8"}
    with Up(tmp_path_factory.mktemp("up"), "--port", "0", environ=environ) as up:
        yield up


class Mendable(ThreadingHTTPServer):
    """A receiver that refuses every call until it is mended.

    Each test has an endpoint of its own, so that it finds its own calls.
    """

    request_queue_size = 100

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answering)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.status = 400
        self.calls: list[tuple[str, int]] = []
        """(path, status)."""

    def __enter__(self) -> "Mendable":
        self._thread = threading.Thread(target=self.serve_forever, args=(0.01,))
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.shutdown()
        self._thread.join()
        self.server_close()


class _Answering(BaseHTTPRequestHandler):
    server: Mendable

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        status = self.server.status
        self.server.calls.append((self.path, status))
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def receiver() -> Iterator[Mendable]:
    with Mendable() as receiving:
        yield receiving


def fail(ask_json: Answer, receiver: Mendable, name: str, count: int) -> None:
    """Create so many tasks, each of which is called once and becomes a dead letter."""
    for number in range(count):
        create(ask_json, f"{name}-{number}", f"{receiver.url}/{number}")
    eventually(lambda: len(dead(ask_json, receiver)) == count)


def dead(ask_json: Answer, receiver: Mendable, *flags: str) -> list[dict[str, Any]]:
    words = ("task", "dead", "list", "--endpoint", receiver.url, "--all", "--json", *flags)
    found: list[dict[str, Any]] = ask_json(*words)["dead_letters"]
    return found


def replay(receiver: Mendable, *flags: str) -> tuple[str, ...]:
    return ("task", "replay", "--endpoint", receiver.url, *flags)


@pytest.mark.slow
def test_dead_calls_are_resent_once_after_their_receiver_was_mended(
    ask: Run, ask_json: Answer, receiver: Mendable, name: str
) -> None:
    fail(ask_json, receiver, name, 20)
    receiver.status = 200
    words = replay(receiver, "--sample", "3", "--rate", "1000", "--id", name[:40])
    result = ask(*words, input="y\ny\n")
    assert result.exit_code == 0, result.output
    assert "Resend 3 calls?" in result.stderr
    assert "Continue with the other 17" in result.stderr
    assert result.stdout.count("SUCCEEDED") == 3
    assert "resent 20, of which 0 failed so far" in result.stdout
    assert dead(ask_json, receiver) == []
    sent_again = eventually(
        lambda: (good := [call for call in receiver.calls if call[1] == 200]) and len(good) == 20 and good
    )
    assert {path for path, _ in sent_again} == {f"/{number}" for number in range(20)}
    assert all(ended(ask_json, f"{name}-{number}")["status"] == "COMPLETED" for number in range(20))

    again = ask_json(*words, "--yes", "--json")
    assert (again["calls"], again["dealt_with"]) == (0, 20)
    everything = ask_json(*words, "--status", "all", "--yes", "--json")
    assert (everything["resent"], everything["there_already"]) == (0, 20)
    assert len(receiver.calls) == 40


@pytest.mark.slow
def test_dry_run_shows_the_failed_calls_and_sends_nothing(
    ask: Run, ask_json: Answer, receiver: Mendable, name: str
) -> None:
    fail(ask_json, receiver, name, 6)
    found = ask_json(*replay(receiver, "--dry-run", "--json"))
    assert (found["calls"], found["endpoints"]) == (6, {receiver.url: 6})
    assert found["tasks"] == {f"{name}-{number}": 1 for number in range(6)}
    assert len(found["examples"]) == 5
    assert found["first"] <= found["last"]
    output = ask(*replay(receiver, "--dry-run")).stdout
    assert "answered 400" in output
    assert f"6 {receiver.url}" in output
    assert ask_json(*replay(receiver, "--until", "-1h", "--dry-run", "--json"))["calls"] == 0
    assert ask_json(*replay(receiver, "--task", f"{name}-3", "--dry-run", "--json"))["calls"] == 1
    assert len(receiver.calls) == 6


@pytest.mark.slow
def test_a_sample_that_fails_stops_a_replay(ask: Run, ask_json: Answer, receiver: Mendable, name: str) -> None:
    fail(ask_json, receiver, name, 5)
    result = ask(*replay(receiver, "--sample", "2", "--stop-after-failures", "1", "--yes"))
    assert result.exit_code == exits.FAILED
    assert "stopped: resent 2, of which 2 failed so far" in result.stderr
    assert len(receiver.calls) == 7


@pytest.mark.slow
def test_a_replay_stops_when_too_many_fail(ask: Run, ask_json: Answer, receiver: Mendable, name: str) -> None:
    fail(ask_json, receiver, name, 8)
    result = ask(*replay(receiver, "--rate", "1", "--stop-after-failures", "0", "--yes"))
    assert result.exit_code == exits.FAILED
    assert "stopped:" in result.stderr
    assert len(receiver.calls) < 16


@pytest.mark.slow
def test_nothing_is_sent_unless_it_was_agreed_to(ask: Run, ask_json: Answer, receiver: Mendable, name: str) -> None:
    fail(ask_json, receiver, name, 1)
    assert ask(*replay(receiver), input="n\n").exit_code == exits.FAILED
    assert len(receiver.calls) == 1


@pytest.mark.parametrize("flags", [("--id", "x" * 41), ("--id", "a b"), ("--since", "-1h", "--until", "-2h")])
def test_invalid_replay_flags_are_refused(ask: Run, flags: tuple[str, ...]) -> None:
    result = ask("task", "replay", *flags, "--yes")
    assert result.exit_code == exits.FAILED
    assert flags[-2] in result.stderr


@pytest.mark.slow
def test_a_call_is_made_once_more(ask: Run, ask_json: Answer, receiver: Mendable, name: str) -> None:
    fail(ask_json, receiver, name, 1)
    receiver.status = 200
    result = ask("task", "resend", f"{name}-0")
    assert result.exit_code == 0, result.output
    assert "is repeated as execution" in result.stdout
    assert ended(ask_json, f"{name}-0")["status"] == "COMPLETED"
    (first, _) = (one["id"] for one in ask_json("task", "executions", f"{name}-0", "--json")["executions"])
    made = ask_json("task", "resend", f"{name}-0", first, "--json")
    assert made["retry_of"] == first


def test_a_task_that_was_not_called_cannot_be_called_once_more(
    ask: Run, ask_json: Answer, receiver: Mendable, name: str
) -> None:
    create(ask_json, name, receiver.url, "--in", "1h")
    assert ask("task", "resend", name).exit_code == exits.NOT_FOUND


@pytest.mark.slow
def test_calls_that_were_given_up_are_listed_retried_and_archived(
    ask: Run, ask_json: Answer, receiver: Mendable, name: str
) -> None:
    fail(ask_json, receiver, name, 3)
    output = ask("task", "dead", "list", "--endpoint", receiver.url).stdout
    assert output.count("HTTP_400: answered 400") == 3
    assert f"{name}-1" in output
    assert len(dead(ask_json, receiver, "--error", "http_400", "--since", "-1h")) == 3
    assert dead(ask_json, receiver, "--error", "TIMEOUT") == []
    receiver.status = 200
    first, *_ = dead(ask_json, receiver)
    result = ask("task", "dead", "retry", first["id"])
    assert (result.exit_code, "retried as execution" in result.stdout) == (0, True)
    (second,) = dead(ask_json, receiver, "--task", dead(ask_json, receiver)[0]["task_name"])
    assert ask("task", "dead", "archive", second["id"]).stdout == f"archived {second['id']}\n"
    assert [letter["id"] for letter in dead(ask_json, receiver, "--archived")] == [second["id"]]
    assert ask_json("task", "dead", "retry", "--endpoint", receiver.url, "--json") == {"changed": 1}
    assert dead(ask_json, receiver) == []
    assert ask_json("task", "dead", "archive", "--endpoint", receiver.url, "--json") == {"changed": 0}


@pytest.mark.parametrize("words", [(), ("019a3f2e-0000-8000-a000-000000000000", "--all")])
def test_retry_of_dead_calls_needs_a_filter(ask: Run, words: tuple[str, ...]) -> None:
    assert ask("task", "dead", "retry", *words).exit_code == exits.USAGE


@pytest.mark.slow
def test_statuses_and_order_are_flags_of_a_task(ask: Run, ask_json: Answer, receiver: Mendable, name: str) -> None:
    flags = ("--every", "1h", "--ordered", "--retry-status", "409", "--retry-status", "5xx")
    made = create(ask_json, name, receiver.url, *flags)
    assert (made["ordered"], made["retry"]["statuses"]) == (True, [409, *range(500, 600)])
    shown = ask("task", "show", name).stdout
    assert "after 409, 500-599" in shown
    assert "one call at a time" in shown
    changed = ask_json("task", "change", name, "--not-ordered", "--attempts", "2", "--json")
    assert (changed["ordered"], changed["retry"]["statuses"][0]) == (False, 409)
    none = ask_json("task", "change", name, "--retry-status", "none", "--json")
    assert none["retry"]["statuses"] == []
    assert "after no status" in ask("task", "show", name).stdout


@pytest.mark.slow
def test_an_ordering_key_is_a_flag_of_a_task(ask: Run, ask_json: Answer, receiver: Mendable, name: str) -> None:
    made = create(ask_json, name, receiver.url, "--in", "1h", "--ordering-key", "customer-42")
    assert made["ordering_key"] == "customer-42"
    assert "customer-42" in ask("task", "show", name).stdout
    assert ask_json("task", "change", name, "--ordering-key", "another", "--json")["ordering_key"] == "another"
    assert ask_json("task", "change", name, "--ordering-key", "", "--json")["ordering_key"] is None


@pytest.mark.parametrize(
    ("flags", "flag"),
    [
        (("--ordered",), "--ordered"),
        (("--ordering-key", ""), "--ordering-key"),
        (("--retry-status", "410"), "--retry-status"),
        (("--retry-status", "x"), "x"),
    ],
)
def test_invalid_flag_is_named(ask: Run, receiver: Mendable, flags: tuple[str, ...], flag: str) -> None:
    result = ask("task", "create", receiver.url, *flags)
    assert result.exit_code in (exits.FAILED, exits.USAGE)
    assert flag in result.stderr
