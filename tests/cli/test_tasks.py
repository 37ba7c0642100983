"""`noonday task` and `noonday secret`, with a server that may call this machine, and a receiver."""

import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from noonday.cli import exits
from tests.cli.conftest import Run
from tests.cli.serving import Up, eventually
from tests.docs.pages import DOCS, blocks
from tests.docs.test_howto import _commands_in

Answer = Callable[..., Any]
FAR = "2099-01-01T00:00:00Z"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    environ = {"NOONDAY_WEBHOOKS_ALLOW_NETWORKS": "127.0.0.0/8"}
    with Up(tmp_path_factory.mktemp("up"), "--port", "0", environ=environ) as up:
        yield up


class Receiving(ThreadingHTTPServer):
    """A receiver that answers with the status in the path, and keeps the headers of its requests."""

    def __init__(self, handler: type[BaseHTTPRequestHandler]) -> None:
        super().__init__(("127.0.0.1", 0), handler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.headers: list[dict[str, str]] = []

    def __enter__(self) -> "Receiving":
        self._thread = threading.Thread(target=self.serve_forever, args=(0.01,))
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.shutdown()
        self._thread.join()
        self.server_close()


class _Answering(BaseHTTPRequestHandler):
    server: Receiving

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.headers.append(dict(self.headers.items()))
        self.send_response(int(self.path[1:]))
        self.send_header("Content-Length", "6")
        self.end_headers()
        self.wfile.write(b"thanks")

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiving]:
    with Receiving(_Answering) as receiving:
        yield receiving


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A name that no other test uses."""
    return str(request.node.name)


def create(ask_json: Answer, name: str, url: str, *flags: str) -> Any:
    return ask_json("task", "create", url, "--name", name, "--json", *flags)


def ended(ask_json: Answer, task: str) -> Any:
    """Wait until a task has ended, and return it."""

    def look() -> Any:
        shown = ask_json("task", "show", task, "--json")
        return shown["status"] in ("COMPLETED", "FAILED") and shown

    return eventually(look)


@pytest.mark.slow
def test_a_task_is_called_and_its_call_is_shown(ask: Run, ask_json: Answer, receiver: Receiving, name: str) -> None:
    url = f"{receiver.url}/200"
    result = ask("task", "create", url, "--name", name, "--body", '{"a": 1}', "--header", "Authorization: Bearer x")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.startswith(f"created {name} (")
    assert ended(ask_json, name)["status"] == "COMPLETED"
    shown = ask("task", "show", name).stdout
    assert f"POST {url}" in shown
    assert "Authorization: [redacted]" in shown
    calls = ask("task", "calls", name).stdout
    assert "answered 200" in calls
    assert '{"a":1}' in calls
    assert "webhook-signature: [redacted]" in calls
    assert "thanks" in calls
    assert all(f"{part} " in calls for part in ("dns", "connect", "first byte"))


@pytest.mark.slow
def test_task_that_its_receiver_halted_is_shown_as_halted(
    ask: Run, ask_json: Answer, receiver: Receiving, name: str
) -> None:
    create(ask_json, name, f"{receiver.url}/410", "--every", "1 second")
    assert ended(ask_json, name)["status"] == "FAILED"
    shown = ask("task", "show", name).stdout
    assert "stopped  answered 410: the receiver wants no more calls" in shown


@pytest.mark.slow
def test_every_attempt_of_a_failed_call_is_shown(ask: Run, ask_json: Answer, receiver: Receiving, name: str) -> None:
    create(ask_json, name, f"{receiver.url}/503", "--attempts", "2", "--initial-delay", "1ms")
    assert ended(ask_json, name)["status"] == "FAILED"
    (execution,) = ask_json("task", "executions", name, "--status", "failed", "--json")["executions"]
    calls = ask_json("task", "calls", name, execution["id"], "--json")
    assert [(one["attempt_number"], one["response"]["status"]) for one in calls["exchanges"]] == [(1, 503), (2, 503)]
    assert ask("task", "calls", name).stdout.count("answered 503") == 2
    assert "answered 503" in ask("task", "executions", name).stdout


def test_address_that_may_not_be_called_is_refused_at_once(ask: Run, name: str) -> None:
    result = ask("task", "create", "http://[::1]:9/", "--name", name)
    assert result.exit_code == exits.FAILED
    assert "::1 is not a public address; to call it, add its network to webhooks.allow_networks" in result.stderr


def test_task_has_the_values_of_the_flags(ask: Run, ask_json: Answer, tmp_path: Path, name: str) -> None:
    (tmp_path / "body.json").write_text('{"b": 2}')
    made = create(
        ask_json, name, "https://api.example.com/x", "--cron", "0 8 * * *", "--timezone", "Europe/Berlin", "--until",
        "2098-12-31 18:00", "--method", "put", "--header", "X-A: 1", "--header", "X-B: a:b", "--body", "@body.json",
        "--delays", "1s,5m", "--timeout", "10s",
    )  # fmt: skip
    assert (made["type"], made["cron_expression"], made["timezone"]) == ("RECURRING", "0 8 * * *", "Europe/Berlin")
    assert made["end_date"] == "2098-12-31T18:00:00+01:00"
    assert made["payload"] == {
        "webhook_url": "https://api.example.com/x",
        "method": "PUT",
        "headers": {"X-A": "1", "X-B": "a:b"},
        "body": {"b": 2},
    }
    assert made["retry"] == {"max_attempts": 5, "backoff": "LIST", "delays_ms": [1000, 300_000]}
    assert made["timeout_seconds"] == 10
    assert "0 8 * * * in Europe/Berlin" in ask("task", "show", name).stdout


@pytest.mark.parametrize(
    ("flags", "interval"),
    [
        (["--every", "15 minutes"], "every 15 minutes"),
        (["--every", "every 15 minutes"], "every 15 minutes"),
        (["--every", "90m"], "every 90 minutes"),
        (["--every", "2d"], "every 2 days"),
        (["--every", "1h"], "every 1 hour"),
        (["--every", "45"], "every 45 seconds"),
        (["--interval", "daily at 08:00"], "daily at 08:00"),
    ],
)
def test_interval_is_a_phrase_or_a_duration(ask_json: Answer, name: str, flags: list[str], interval: str) -> None:
    assert create(ask_json, name, "https://api.example.com/", *flags)["interval"] == interval


@pytest.mark.parametrize(
    ("flags", "instant"),
    [
        (["--at", "2030-01-31 09:00"], "2030-01-31T09:00:00Z"),
        (["--at", "2030-01-31 09:00", "--tz", "Asia/Tokyo"], "2030-01-31T00:00:00Z"),
        (["--at", "2030-01-31T09:00:00+02:00", "--tz", "Asia/Tokyo"], "2030-01-31T07:00:00Z"),
    ],
)
def test_a_time_without_an_offset_is_meant_in_the_zone_of_the_task(
    ask_json: Answer, name: str, flags: list[str], instant: str
) -> None:
    assert create(ask_json, name, "https://api.example.com/", *flags)["next_execution"] == instant


@pytest.mark.slow
def test_a_change_keeps_what_no_flag_names(ask: Run, ask_json: Answer, receiver: Receiving, name: str) -> None:
    headers = ("--header", f"Authorization: Bearer {name}", "--header", "X-Team: a", "--header", "X-Gone: b")
    create(ask_json, name, f"{receiver.url}/200", "--at", FAR, "--attempts", "3", *headers)
    changed = ask_json(
        "task", "change", name, "--header", "x-team: c", "--header", "x-gone:", "--body", "5", "--initial-delay", "7s",
        "--json",
    )  # fmt: skip
    assert changed["payload"]["headers"] == {"Authorization": "[redacted]", "x-team": "c"}
    assert (changed["payload"]["body"], changed["scheduled_at"]) == (5, FAR)
    assert changed["retry"] == {"max_attempts": 3, "backoff": "EXPONENTIAL", "initial_delay_ms": 7000}
    assert ask("task", "change", name, "--at", "now").stdout.startswith(f"changed {name} (")
    ended(ask_json, name)
    assert receiver.headers[-1]["Authorization"] == f"Bearer {name}"


def test_a_secret_header_does_not_follow_to_another_receiver(ask: Run, ask_json: Answer, name: str) -> None:
    create(ask_json, name, "https://a.example/", "--at", FAR, "--header", "Authorization: Bearer x")
    result = ask("task", "change", name, "https://b.example/")
    assert result.exit_code == exits.FAILED
    assert "at: --header Authorization" in result.stderr


@pytest.mark.slow
def test_a_paused_task_can_be_resumed_and_deleted(ask: Run, ask_json: Answer, name: str) -> None:
    task = create(ask_json, name, "https://api.example.com/", "--every", "30d")["id"]
    assert ask("task", "pause", name).stdout.startswith(f"paused {name}")
    assert [one["id"] for one in ask_json("task", "list", "--status", "paused", "--json")["tasks"]] == [task]
    assert ", next call " in ask("task", "resume", name).stdout
    assert ask_json("task", "delete", name, "--json") == {"deleted": task}
    assert ask("task", "show", task).exit_code == exits.NOT_FOUND


def test_tasks_are_listed_in_pages(ask: Run, ask_json: Answer, name: str) -> None:
    tasks = [create(ask_json, name, "https://api.example.com/", "--at", FAR)["id"] for _ in range(2)]
    first = ask("task", "list", "--limit", "1")
    assert tasks[1] in first.stdout
    assert "--page 2 shows more" in first.stderr
    assert tasks[0] in ask("task", "list", "--limit", "1", "--page", "2").stdout


def test_the_same_idempotency_key_creates_one_task(ask_json: Answer, name: str) -> None:
    flags = ("--at", FAR, "--idempotency-key", name)
    made = [create(ask_json, name, "https://api.example.com/", *flags)["id"] for _ in range(2)]
    assert made[0] == made[1]


def test_every_invalid_value_is_reported_with_its_flag(ask: Run) -> None:
    result = ask(
        "task", "create", "ftp://a.example/", "--every", "some minutes", "--tz", "Europe/Berln", "--header", "Host: x",
        "--delays", "1s", "--backoff", "fixed", "--attempts", "0",
    )  # fmt: skip
    assert (result.exit_code, result.stdout) == (exits.FAILED, "")
    named = [line.strip().partition(": ")[0] for line in result.stderr.splitlines()]
    assert {"URL", "--every", "--timezone", "--header Host", "--delays", "--attempts"} <= set(named)
    assert "--delays is not allowed with backoff FIXED, which takes --initial-delay" in result.stderr
    assert "did you mean Europe/Berlin?" in result.stderr


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        (["--at", FAR, "--in", "1m"], "--at and --in are mutually exclusive"),
        (["--every", "1h", "--cron", "@daily"], "--cron and --every are mutually exclusive"),
        (["--in", "1m", "--until", FAR], "--until requires --cron, --every or --interval"),
        (["--header", "nonsense"], "'nonsense' is not a header"),
        (["--header", "X-A:"], "'X-A' has no value"),
        (["--body", "nonsense"], "a text needs quotes"),
        (["--at", "nonsense"], "'nonsense' is not a time"),
        (["--delays", "1s,x"], "'x' is not a duration"),
    ],
)
def test_flags_that_make_no_sense_are_refused_without_asking(run: Run, flags: list[str], complaint: str) -> None:
    result = run("task", "create", "https://api.example.com/", *flags)
    assert result.exit_code == exits.USAGE
    assert complaint in result.stderr


def test_a_change_of_nothing_is_refused(ask: Run, ask_json: Answer, name: str) -> None:
    create(ask_json, name, "https://api.example.com/", "--at", FAR)
    result = ask("task", "change", name)
    assert (result.exit_code, "nothing to change" in result.stderr) == (exits.USAGE, True)


def test_a_task_that_does_not_exist_is_not_found(ask: Run, name: str) -> None:
    result = ask("task", "show", name)
    assert result.exit_code == exits.NOT_FOUND
    assert "no task has the id or name" in result.stderr


def test_a_task_that_was_not_called_yet_has_no_calls(ask: Run, ask_json: Answer, name: str) -> None:
    create(ask_json, name, "https://api.example.com/", "--at", FAR)
    result = ask("task", "calls", name)
    assert (result.exit_code, "has made no call yet" in result.stderr) == (exits.NOT_FOUND, True)


def test_a_secret_is_printed_once_and_alone(ask: Run, ask_json: Answer) -> None:
    made = ask("secret", "make", "--endpoint", "https://once.example")
    assert made.stdout.startswith("whsec_")
    assert len(made.stdout.splitlines()) == 1
    assert "It is not shown again" in made.stderr
    assert made.stdout.strip() not in ask("secret", "list", "--json").stdout
    latest = ask_json("secret", "list", "--json")["secrets"][0]
    assert latest["endpoint"] == "https://once.example:443"
    assert ask("secret", "end", latest["id"]).stdout == f"ended {latest['id']}\n"
    assert ask("secret", "end", latest["id"]).exit_code == exits.NOT_FOUND


def test_public_key_of_a_key_pair_is_printed(ask: Run, ask_json: Answer) -> None:
    made = ask_json("secret", "make", "--endpoint", "https://pair.example", "--kind", "ed25519", "--json")
    assert (made["kind"], made["secret"][:5]) == ("ED25519", "whpk_")
    assert "https://pair.example:443" in ask("secret", "list").stdout


def test_the_last_secret_is_replaced_and_not_ended(ask: Run, ask_json: Answer) -> None:
    last = ask_json("secret", "make", "--overlap", "0", "--json")["id"]
    refused = ask("secret", "end", last)
    assert (refused.exit_code, "--overlap 0" in refused.stderr) == (exits.FAILED, True)


def test_invalid_secret_values_are_reported_with_their_flags(ask: Run) -> None:
    assert "error: --endpoint must begin" in ask("secret", "make", "--endpoint", "ftp://a.example").stderr
    assert "error: --overlap: 2678400 s is not allowed" in ask("secret", "make", "--overlap", "31d").stderr


@pytest.mark.slow
def test_the_page_about_webhooks_leads_to_a_signed_call(
    ask: Run, ask_json: Answer, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = DOCS / "howto" / "call-a-webhook.md"
    scripts = [block.text for block in blocks(page, "bash") if not block.not_run]
    assert "WEBHOOK_SECRET=$(noonday secret make)" in scripts[0]
    monkeypatch.setenv("WEBHOOK_SECRET", ask("secret", "make").stdout.strip())
    printed: list[tuple[str, ...]] = []
    # Commands run in this process with a stdout of their own, into which the receiver must not write.
    names: dict[str, Any] = {"__name__": "receiver", "print": lambda *words, flush: printed.append(words)}
    exec(compile(blocks(page, "python")[0].text, str(page), "exec"), names)
    with Receiving(names["Receiver"]) as receiving:
        for words in (words for script in scripts[1:] for words in _commands_in(script)):
            if words[1] == "calls":
                assert ended(ask_json, words[2])["status"] == "COMPLETED"
            result = ask(*(word.replace("http://127.0.0.1:9000", receiving.url) for word in words))
            assert result.exit_code == 0, result.output
    assert ("signed:", '{"hello":"world"}') in printed
