"""Messages that people meet who mistype: each names the field, the value, what is allowed, and the next step."""

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from noonday.cli import exits
from noonday.cli.suggestions import DESTRUCTIVE, MEANT, suggestion
from tests.cli.conftest import Run
from tests.cli.serving import DEADLINE_SEC, Up, eventually, plain_environment

ESCAPES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")
UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
NARROW = 60
SHORT_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[78][0-9a-f]{3}[0-9a-f-]*")


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["run"], "up"),
        (["start"], "up"),
        (["status"], "top"),
        (["version"], "--version"),
        (["delete"], "job cancel"),
        (["job", "delete"], "cancel"),
        (["job", "start"], "trigger"),
        (["task", "edit"], "change"),
        (["task", "remove"], "delete"),
        (["secret", "delete"], "end"),
        (["ls"], "job list"),
    ],
)
def test_word_with_a_meaning_leads_to_the_command(run: Run, words: list[str], meant: str) -> None:
    path = " ".join(["main", *words[:-1]])
    result = run(*words)
    assert result.stderr == (
        f"error: unknown command {words[-1]!r}; did you mean `{path} {meant}`?\n  help: {path} --help\n"
    )


@pytest.mark.parametrize("word", ["change", "update", "edit", "modify"])
def test_change_of_a_job_leads_to_the_command_that_changes_it(word: str) -> None:
    def has(*commands: str) -> Callable[[str], bool]:
        return lambda path: path in commands

    assert suggestion(word, [], has("create", "change"), None) in ("change", "create --unique-key KEY")
    assert suggestion(word, [], has("create"), None) == "create --unique-key KEY"
    assert suggestion(word, [], has("job create"), None) == "job create --unique-key KEY"
    if word != "change":
        assert suggestion(word, [], has("create", "change"), None) == "change"


@pytest.mark.parametrize("name", sorted(DESTRUCTIVE))
def test_a_similar_word_never_suggests_a_destructive_command(name: str) -> None:
    assert suggestion(f"{name}x", [name], lambda path: True, None) is None


def test_each_word_means_commands_that_exist(run: Run) -> None:
    from tests.cli.test_main import ALL

    paths = {path for path, _ in ALL}
    known = {" ".join(path[start:]) for path in paths for start in range(len(path))} | {"--version"}
    expected = {"job change"}  # a command to come
    meant = {command.partition(" --")[0] for commands in MEANT.values() for command in commands}
    assert meant - known <= expected


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["job", "show"], "JOB is required"),
        (["job", "list", "--jsn"], "unknown option --jsn; did you mean --json?"),
        (["job", "list", "--limit", "x"], "--limit: 'x' is not a valid integer range"),
        (["job", "create", "--payload", "echo hi"], """--payload: a text needs quotes: --payload '"echo hi"'"""),
        (["job", "create", "--payload", "it's"], """--payload: a text needs quotes: --payload '"it'\\''s"'"""),
        (["job", "create", "--payload", "{x"], "--payload: not JSON: object keys must be strings (byte 1)"),
    ],
)
def test_invalid_command_line_is_one_error_and_the_help(run: Run, words: list[str], said: str) -> None:
    result = run(*words)
    assert result.stderr == f"error: {said}\n  help: main {' '.join(words[:2])} --help\n"
    assert result.exit_code == exits.USAGE


CREATE = ("job", "create", "--handler", "demo.echo", "--pool", "demo")


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--tz", "Europe/Berlin"], "--tz goes with --cron, or with --at without an offset"),
        (["--tz", "Europe/Berlin", "--delay", "5m"], "--tz goes with --cron, or with --at without an offset"),
        (["--tz", "Europe/Berlin", "--at", "2030-01-01T00:00Z"], "--tz goes with --cron, or with --at without"),
        (["--initial-delay", "1s"], "--initial-delay goes with --backoff FIXED or EXPONENTIAL; the backoff is LIST"),
        (["--backoff", "fixed", "--multiplier", "2"], "--multiplier goes with --backoff EXPONENTIAL"),
        (["--backoff", "fixed", "--retry-delays", "1s"], "--retry-delays goes with --backoff LIST"),
    ],
)
@pytest.mark.slow
def test_flag_without_its_companion_is_refused(ask: Run, flags: list[str], said: str) -> None:
    result = ask(*CREATE, *flags)
    assert result.stderr.startswith(f"error: {said}")
    assert result.exit_code == exits.USAGE


@pytest.mark.slow
def test_number_out_of_bounds_names_the_flag_and_the_bounds(ask: Run) -> None:
    result = ask(*CREATE, "--every", "0")
    assert result.stderr == "error: --every must be at least 1 s and at most 100 years\n  given: 0\n"


@pytest.mark.slow
def test_unknown_pool_names_the_command_that_creates_it(ask: Run) -> None:
    result = ask("job", "create", "--handler", "x", "--pool", "nope")
    assert result.stderr.splitlines()[0] == (
        "error: no pool nope: start a worker for it, or create it: `noonday pool set nope`"
    )
    assert "did you mean" not in result.stderr


@pytest.mark.slow
def test_words_of_an_enumeration_are_accepted_in_lower_case(ask_json: Callable[..., Any]) -> None:
    made = ask_json(*CREATE, "--every", "1h", "--overlap", "skip", "--name", "messages-lower", "--json")
    assert made["overlap"] == "SKIP"


@pytest.mark.slow
def test_time_that_is_refused_is_shown_as_it_was_typed_and_understood(ask: Run) -> None:
    result = ask("job", "occurrences", "shop.nightly", "--from", "+2d", "--to", "+1d")
    assert result.stderr.startswith("error: --to must not be before from")
    assert re.search(r"given: \+1d, which is \d{4}-\d\d-\d\d \d\d:\d\d:\d\d\+00:00 UTC", result.stderr)


@pytest.mark.slow
def test_time_without_an_offset_is_echoed_as_it_is_understood(ask: Run) -> None:
    result = ask("job", "occurrences", "shop.nightly", "--from", "yesterday 02:00", "--to", "tomorrow")
    assert re.search(r"--from: yesterday 02:00 is \d{4}-\d\d-\d\d 02:00:00\+00:00 UTC\n", result.stderr)
    assert re.search(r"--to: tomorrow is \d{4}-\d\d-\d\d 00:00:00\+00:00 UTC\n", result.stderr)


@pytest.mark.slow
def test_time_of_a_job_is_shown_in_its_own_zone(ask: Run) -> None:
    created = ask(*CREATE, "--cron", "15 2 1 1 *", "--tz", "Europe/Berlin", "--name", "messages-zone")
    assert re.search(r"fires (\d{4}-\d\d-\d\d|Jan 01) 02:15 Europe/Berlin in", created.stdout)
    shown = ask("job", "show", "messages-zone").stdout
    assert re.search(
        r"next +\d{4}-01-01 02:15:00\+01:00 Europe/Berlin \(in .*; \d{4}-01-01 01:15:00\+00:00 here\)", shown
    )
    assert "02:15 Europe/Berlin" in ask("job", "list", "--name", "messages-zone").stdout


@pytest.mark.slow
def test_at_is_in_the_zone_of_tz(ask: Run, ask_json: Callable[..., Any]) -> None:
    made = ask_json(*CREATE, "--at", "2099-07-01 09:00", "--tz", "Europe/Berlin", "--json")
    assert made["runAt"] == "2099-07-01T09:00:00+02:00"


@pytest.mark.slow
def test_unknown_tenant_and_setting_are_errors(ask: Run) -> None:
    tenant, setting = ask("tenant", "show", "nope"), ask("settings", "worker.concurency")
    assert tenant.stderr.startswith(
        "error: no such tenant: nope has no settings, and has run nothing in 400 days; `noonday"
    )
    assert setting.stderr == "error: no such setting: worker.concurency; did you mean worker.concurrency?\n"
    assert {tenant.exit_code, setting.exit_code} == {exits.NOT_FOUND}
    assert ask("tenant", "show", "default").exit_code == exits.OK


@pytest.mark.slow
def test_url_of_a_private_address_is_refused_at_creation(ask: Run) -> None:
    result = ask("task", "create", "http://10.0.0.1/x")
    assert result.stderr.startswith(
        "error: 10.0.0.1 is not a public address; to call it, add its network to webhooks.allow_networks"
    )


class Other(BaseHTTPRequestHandler):
    """A web server that is not Noonday."""

    def do_GET(self) -> None:
        self.send_error(404, "File not found")

    def log_message(self, format: str, *args: Any) -> None: ...


@pytest.fixture
def other_server() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), Other)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.slow
def test_url_of_another_program_is_named_without_its_markup(run: Run, other_server: str) -> None:
    result = run("job", "list", "--url", other_server, "--token", "x")
    head, reason = result.stderr.splitlines()
    assert head.startswith(f"error: {other_server} does not answer as Noonday does: check --url (NOONDAY_URL)")
    assert "returned 404" in reason
    assert "<" not in result.stderr


def died(ask: Run, ask_json: Callable[..., Any], name: str) -> str:
    """Create a job that fails, and return the id of its execution once it is dead."""
    ask("job", "create", "--handler", "demo.fail", "--name", name, "--max-attempts", "1")
    return str(
        eventually(
            lambda: next(
                (
                    one["executionId"]
                    for one in ask_json("job", "executions", name, "--json")["executions"]
                    if one["state"] == "DEAD"
                ),
                None,
            )
        )
    )


@pytest.mark.slow
def test_why_explains_an_execution(ask: Run, ask_json: Callable[..., Any]) -> None:
    execution = died(ask, ask_json, "messages-dead")
    lines = ask("why", execution).stdout.splitlines()
    assert lines[0].startswith("It runs the occurrence ")
    assert "of job messages-dead (" in lines[0]
    assert f"Execution {execution} of demo.fail in pool demo is DEAD." in lines
    assert any("FAILED after" in line and "RuntimeError" in line for line in lines)
    assert any(f"noonday execution show {execution} --traceback" in line for line in lines)
    assert f"  noonday dead retry {execution}" in lines
    timeline = lines[lines.index("Timeline:") + 1 :]
    assert [line.split("  ")[2].split(",")[0] for line in timeline] == ["PENDING", "RUNNING", "FAILED", "DEAD"]
    assert ask_json("why", execution, "--json")["execution"]["executionId"] == execution


@pytest.mark.slow
def test_why_of_an_execution_takes_no_time(ask: Run, ask_json: Callable[..., Any]) -> None:
    execution = died(ask, ask_json, "messages-dead-at")
    assert "--at goes with a JOB" in ask("why", execution, "--at", "now").stderr


def on_a_terminal(server: Up, columns: int, *words: str) -> list[str]:
    """Run a command on a terminal of so many columns. Returns the lines of its output."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    environ = plain_environment(TERM="xterm-256color", TZ="UTC", **server.environ)
    environ.pop("COLUMNS", None)
    command = [sys.executable, "-m", "noonday", *words]
    with subprocess.Popen(command, env=environ, stdout=theirs, stderr=subprocess.STDOUT) as process:
        os.close(theirs)
        seen = b""
        try:
            while chunk := os.read(ours, 65_536):
                seen += chunk
        except OSError:
            pass  # Linux reports the end of the terminal so
        finally:
            os.close(ours)
        assert process.wait(DEADLINE_SEC) == 0, seen
    return [line.rstrip() for line in ESCAPES.sub("", seen.decode()).splitlines()]


@pytest.mark.slow
def test_narrow_terminal_shows_names_first_and_ids_whole(server: Up, ask: Run, ask_json: Callable[..., Any]) -> None:
    name = "messages-narrow-alert"
    died(ask, ask_json, name)
    eventually(lambda: any(one.get("name") == name for one in ask_json("alert", "list", "--json")["alerts"]))
    lines = on_a_terminal(server, NARROW, "alert", "list")
    table = [line for line in lines if "noonday " not in line]
    assert max(map(len, table)) <= NARROW
    block = table[table.index(name) :][:8]
    assert UUID.search("\n".join(block))
    assert "…" not in "\n".join(block)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "shows"),
    [
        (("job", "list", "--name"), ("job", "show")),
        (("execution", "list", "--job"), ("execution", "show")),
        (("dead", "list", "--job"), ("execution", "show")),
    ],
    ids=" ".join,
)
def test_narrow_terminal_shows_names_first_and_short_ids_that_commands_accept(
    server: Up, ask: Run, ask_json: Callable[..., Any], words: tuple[str, ...], shows: tuple[str, ...]
) -> None:
    name = f"n-{words[0]}"
    died(ask, ask_json, name)
    lines = on_a_terminal(server, NARROW, *words, name)
    table = [line for line in lines if "noonday " not in line]
    assert max(map(len, table)) <= NARROW
    row = next(line for line in table if line.startswith(name))
    (short,) = [word for word in row.split() if SHORT_ID.fullmatch(word)]
    assert not UUID.fullmatch(short)
    assert f"{name} (" in ask(*shows, short).stdout or f"  {name}\n" in ask(*shows, short).stdout


@pytest.mark.slow
def test_ambiguous_beginning_of_an_id_lists_the_candidates(ask: Run, ask_json: Callable[..., Any]) -> None:
    first, second = (died(ask, ask_json, name) for name in ("messages-one", "messages-two"))
    shared = first[: next(at for at in range(36) if first[at] != second[at])]
    refused = ask("execution", "show", shared[:8])
    assert refused.exit_code != 0
    assert f"'{shared[:8]}' matches several executions; use the id of one, or a longer beginning:" in refused.stderr
    assert f"  {second}  DEAD  messages-two" in refused.stderr
    assert first[:20] in ask("execution", "show", first[:20]).stdout
    assert "no execution has an id that begins so" in ask("execution", "show", "00000000-0000").stderr
    assert "Execution " in ask("why", first[:20]).stdout


@pytest.mark.slow
def test_jobs_that_send_notices_do_not_fill_the_list(ask: Run, ask_json: Callable[..., Any]) -> None:
    ask("alert", "notify", "set", "messages", "--webhook", "https://hooks.invalid/x", "--digest", "0")
    ask("alert", "notify", "test", "messages")
    eventually(lambda: ask_json("job", "list", "--pool", "notices", "--json")["jobs"])
    assert not [one for one in ask_json("job", "list", "--json")["jobs"] if one["target"]["pool"] == "notices"]
    ask("alert", "notify", "delete", "messages")


@pytest.mark.slow
def test_pause_and_resume_say_what_they_did(ask: Run) -> None:
    assert ask("pause").stdout == "nothing is paused; `noonday pause --all` pauses everything\n"
    assert re.match(
        r"pool messages is paused since .*\+00:00 \(.*\) by cli:",
        ask("pool", "set", "messages") and ask("pause", "--pool", "messages").stdout,
    )
    assert ask("resume", "--pool", "messages").stdout == "resumed pool messages\n"
