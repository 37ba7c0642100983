"""A daemon is found again by its record, and no foreign process is ever touched."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from servers import Command, Daemon, ServerFailed, eventually

ENDLESS = Command(["sleep", "600"])
STUBBORN = Command(["sh", "-c", "trap '' TERM; echo ready; while :; do sleep 600; done"])


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    daemon = Daemon(tmp_path)
    yield daemon
    daemon.kill()


def test_daemon_is_found_by_its_record(daemon: Daemon) -> None:
    daemon.spawn(ENDLESS)
    assert Daemon(daemon.folder).pid == daemon.pid
    assert daemon.pid is not None


def test_a_daemon_that_was_asked_to_end_is_gone(daemon: Daemon) -> None:
    daemon.spawn(ENDLESS)
    pid = daemon.pid
    assert pid is not None
    assert daemon.end(signal.SIGTERM, 10) is True
    assert daemon.pid is None
    assert not Path(f"/proc/{pid}").exists()


def test_a_daemon_that_does_not_listen_is_killed(daemon: Daemon) -> None:
    daemon.spawn(STUBBORN)
    assert eventually(lambda: "ready" in daemon.tail(), 10)
    assert daemon.end(signal.SIGTERM, 0.1) is False
    assert daemon.pid is None


def test_a_frozen_daemon_ends_when_asked(daemon: Daemon) -> None:
    daemon.spawn(ENDLESS)
    daemon.pause()
    assert daemon.end(signal.SIGTERM, 10) is True


def test_the_children_of_a_daemon_freeze_and_die_with_it(daemon: Daemon) -> None:
    daemon.spawn(Command(["sh", "-c", "setsid sleep 600 & echo $!; wait"]))
    assert eventually(lambda: daemon.tail().strip().isdigit(), 10)
    child = Path(f"/proc/{daemon.tail().strip()}/stat")
    daemon.pause()
    assert eventually(lambda: _state(child) == "T", 10)
    daemon.resume()
    assert eventually(lambda: _state(child) == "S", 10)
    daemon.kill()
    assert eventually(lambda: _state(child) in "Z-", 10)


def _state(stat: Path) -> str:
    try:
        return stat.read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "-"


@pytest.fixture
def stranger() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "600"]) as process:
        yield process
        process.kill()


def test_a_process_that_was_given_the_same_number_is_left_alone(
    daemon: Daemon, stranger: subprocess.Popen[bytes]
) -> None:
    daemon.record.write_text(json.dumps({"pid": stranger.pid, "born": "another-boot/1"}))
    assert daemon.pid is None
    daemon.end(signal.SIGTERM, 0)
    daemon.kill()
    assert stranger.poll() is None


@pytest.mark.parametrize("content", ["", "{", "[]", '{"pid": "x"}', '{"pid": STRANGER}'])
def test_a_record_that_makes_no_sense_names_no_process(
    daemon: Daemon, stranger: subprocess.Popen[bytes], content: str
) -> None:
    daemon.record.write_text(content.replace("STRANGER", str(stranger.pid)))
    assert daemon.pid is None


def test_a_log_that_has_grown_large_is_put_aside_at_the_next_start(daemon: Daemon) -> None:
    with daemon.log.open("wb") as log:
        log.truncate(17 * 1024 * 1024)
    daemon.spawn(ENDLESS)
    assert daemon.log.stat().st_size == 0


def test_failed_command_is_reported_with_its_output() -> None:
    with pytest.raises(ServerFailed, match="no such luck"):
        Command(["sh", "-c", "echo no such luck; exit 3"]).run()


def test_settings_for_some_other_postgresql_do_not_reach_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGOPTIONS", "-c search_path=elsewhere")
    assert "PGOPTIONS" not in Command(["env"]).run()
    assert "PATH" in os.environ
