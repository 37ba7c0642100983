"""`noonday up` from outside: its output, its refusals, its end."""

import json
import os
import pty
import re
import shlex
import signal
import socket
import sqlite3
import subprocess
import sys
from contextlib import closing, suppress
from pathlib import Path
from urllib.request import Request, urlopen

import pytest
from click.testing import CliRunner

from noonday.cli import exits
from noonday.cli.main import main
from noonday.model.execution import State
from noonday.sdk.problems import ServerUnreachable
from noonday.sdk.sync import SyncClient
from tests.cli.conftest import Run
from tests.cli.serving import DEADLINE_SEC, Up, eventually, plain_environment

pytestmark = pytest.mark.slow


JWT = re.compile(r"eyJ[\w-]+[.][\w-]+[.][\w-]+")


def started(folder: Path, *words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run a server that is expected to end by itself."""
    return subprocess.run(
        [sys.executable, "-m", "noonday", "up", *words],
        cwd=folder,
        env=plain_environment(**environ),
        capture_output=True,
        text=True,
        timeout=DEADLINE_SEC,
        check=False,
    )


def token_of(up: Up) -> str:
    """The output of `noonday token` with the data file of the server."""
    made = CliRunner().invoke(main, ["token"], env=up.environ)
    assert made.exit_code == 0
    return made.stdout.strip()


def client_of(up: Up) -> SyncClient:
    return SyncClient(up.url, token_of(up))


def test_the_greeting_names_the_file_the_docs_and_the_handlers(server: Up) -> None:
    assert str(server.data) in server.greeting
    assert f"{server.url}/docs" in server.greeting
    assert "demo: demo.echo, demo.fail, demo.sleep" in server.greeting
    assert "shop: shop.add, shop.nightly" in server.greeting
    assert not server.url.endswith(":0")


def test_example_command_of_the_greeting_creates_a_job(server: Up) -> None:
    (line,) = [line for line in server.greeting.splitlines() if line.startswith("curl ")]
    assert "Bearer $(noonday token)" in line
    words = shlex.split(re.sub(r"[$][(]noonday token[^)]*[)]", token_of(server), line))
    headers = dict(words[i + 1].split(": ") for i, word in enumerate(words) if word == "-H")
    request = Request(words[-1], data=words[words.index("-d") + 1].encode(), headers=headers, method="POST")
    with urlopen(request, timeout=60) as response:
        assert response.status == 201
        job = json.loads(response.read())
    with client_of(server) as client:
        assert client.result(job["jobId"], timeout=60) == "hello"


def test_a_token_is_printed_on_a_terminal_only(server: Up, tmp_path: Path) -> None:
    assert not JWT.search(server.greeting)
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "noonday", "up", "--port", "0"]
    with subprocess.Popen(command, cwd=tmp_path, env=plain_environment(COLUMNS="200"), stdout=theirs) as process:
        os.close(theirs)
        seen = b""
        try:
            while b"Stop with" not in seen:
                seen += os.read(ours, 65_536)
        finally:
            process.kill()
            os.close(ours)
    assert JWT.search(seen.decode())


def test_the_handlers_of_the_application_run(server: Up) -> None:
    with client_of(server) as client:
        job = client.create(type="ONE_TIME", target={"pool": "shop", "handler": "shop.add"}, payload={"a": 2, "b": 3})
        assert client.result(job, timeout=60) == 5


def test_the_jobs_declared_in_the_application_are_there(server: Up) -> None:
    with client_of(server) as client:
        (job,) = client.list_jobs(name="shop.nightly").items()
    assert (job.schedule, job.timezone, job.state) == ("0 3 * * *", "Europe/Berlin", "ACTIVE")


@pytest.mark.parametrize("path", ["healthz", "readyz", "metrics", "docs", "openapi.json"])
def test_public_paths_answer_without_a_token(server: Up, path: str) -> None:
    with urlopen(f"{server.url}/{path}", timeout=60) as response:
        assert response.status == 200


def test_second_process_on_the_same_file_ends_with_an_error(server: Up) -> None:
    ended = started(server.folder, "--port", "0")
    assert ended.returncode == exits.STORE
    assert f"process {server.process.pid}" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_second_process_on_the_same_port_and_file_hears_of_the_file(server: Up) -> None:
    ended = started(server.folder, "--port", server.url.rpartition(":")[2])
    assert ended.returncode == exits.STORE


def test_a_port_in_use_is_named_with_the_option_and_no_file_is_made(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        ended = started(tmp_path, "--port", str(port))
    assert ended.returncode == exits.FAILED
    assert f"port {port} on 127.0.0.1 is in use" in ended.stderr
    assert "--port" in ended.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_no_store_is_refused(tmp_path: Path) -> None:
    (tmp_path / "noonday.db").write_text("hello")
    ended = started(tmp_path, "--port", "0")
    assert ended.returncode == exits.STORE
    assert "noonday doctor" in ended.stderr


def test_others_are_kept_out_unless_tokens_are_configured(run: Run) -> None:
    result = run("up", "--host", "0.0.0.0")
    assert result.exit_code == exits.USAGE
    assert "auth.secret" in result.stderr


def test_an_application_that_is_not_there_is_refused_with_the_nearest(run: Run, tmp_path: Path) -> None:
    (tmp_path / "invoicing.py").write_text("from noonday import Noonday\napp = Noonday()\n")
    result = run("up", "invoicign:app")
    assert result.exit_code == exits.FAILED
    assert "did you mean invoicing" in result.stderr


def test_a_signal_lets_running_handlers_finish(tmp_path: Path) -> None:
    with Up(tmp_path, "--port", "0") as up:
        with client_of(up) as client:
            job = client.create(
                type="ONE_TIME", target={"pool": "demo", "handler": "demo.sleep"}, payload={"seconds": 2}
            )
            eventually(lambda: [one for one in client.get_job(job.job_id).executions if one.state == "RUNNING"])
        code, out, err = up.end(signal.SIGTERM)
    assert (code, err) == (0, "")
    assert "Stopping" in out
    assert out.rstrip().endswith("Stopped.")
    with closing(sqlite3.connect(up.data)) as conn:
        assert conn.execute("SELECT state FROM executions").fetchall() == [(State.SUCCEEDED,)]


def test_a_second_signal_ends_it_at_once_and_the_file_stays_good(tmp_path: Path) -> None:
    with Up(tmp_path, "--port", "0") as up:
        with client_of(up) as client:
            job = client.create(
                type="ONE_TIME", target={"pool": "demo", "handler": "demo.sleep"}, payload={"seconds": 600}
            )
            eventually(lambda: [one for one in client.get_job(job.job_id).executions if one.state == "RUNNING"])
        up.process.send_signal(signal.SIGINT)
        assert up.process.stdout is not None
        assert up.process.stdout.readline().startswith("Stopping")
        code, _, _ = up.end(signal.SIGINT)
    assert code == 128 + signal.SIGINT
    with closing(sqlite3.connect(up.data)) as conn:
        assert conn.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def test_an_engine_that_fails_ends_the_process_with_its_reason(tmp_path: Path) -> None:
    with Up(tmp_path, "--port", "0") as up:
        token = token_of(up)
        with closing(sqlite3.connect(up.data)) as conn, conn:
            # As if another instance recorded by now: the former recorder must stop.
            conn.execute("UPDATE checkpoints SET generation = 'another'")
        # The process may have stopped by itself before the request.
        with suppress(ServerUnreachable), SyncClient(up.url, token) as client:
            client.create(type="ONE_TIME", target={"pool": "demo", "handler": "demo.echo"})
        code, _, err = up.end()
    assert code == exits.FAILED
    assert "error: the engine stopped" in err
