import json
import os
import socket
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from noonday.cli import exits
from noonday.cli.server.checks import CHECKS, CheckContext, Level, check_port, examine
from noonday.crypto.keyring import load_or_create
from noonday.model.job import JobSpec, JobType, Target
from noonday.model.view import PoolSettings
from noonday.wiring.embedded import Embedded
from noonday.wiring.engine_queries import OWNER
from noonday.wiring.settings import Settings
from noonday.wiring.settings.loading import load_settings
from tests.cli.conftest import Run

Findings = Callable[..., dict[str, dict[str, Any]]]
LATER_MS = 1_999_999_999_000


@pytest.fixture
def examined(run: Run) -> Findings:
    def findings(*words: str, code: int = 0) -> dict[str, dict[str, Any]]:
        result = run("doctor", "--json", *words)
        assert result.exit_code == code, result.output
        return {one["about"]: one for one in json.loads(result.stdout)}

    return findings


@pytest.fixture
async def used(tmp_path: Path) -> Path:
    """A file that an engine has used and that has an encrypted payload."""
    path = tmp_path / "noonday.db"
    embedded = await Embedded.open(settings_of(path), {})
    spec = JobSpec(type=JobType.DELAYED, delay_sec=3600, target=Target("p", "h"), payload={"secret": 1})
    await embedded.engine.services.pools.put(OWNER, "p", PoolSettings())
    await embedded.engine.services.jobs.create(OWNER, spec)
    await embedded.close()
    return path


def settings_of(path: Path) -> Settings:
    return load_settings({"data": str(path), "port": 0}, {}, Path("/dev/null"))


def change(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as conn, conn:
        for statement in statements:
            conn.execute(statement)


def test_folder_without_a_data_file_passes(examined: Findings, tmp_path: Path) -> None:
    found = examined()
    assert found["file"]["level"] == "warn"
    assert "noonday up" in found["file"]["fix"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_healthy_file_passes_every_check(examined: Findings, used: Path) -> None:
    found = examined("--thorough")
    assert {about: one for about, one in found.items() if one["level"] == "fail"} == {}
    assert "1 sampled" in found["payloads"]["detail"]
    assert set(found) >= {"python", "sqlite", "disk", "file", "integrity", "migrations", "secret", "keys", "payloads",
                          "process", "clock", "time zones", "port"}  # fmt: skip


def test_a_file_that_is_no_database_fails(examined: Findings, tmp_path: Path) -> None:
    (tmp_path / "noonday.db").write_bytes(b"not a database at all" * 100)
    found = examined(code=exits.FAILED)
    assert found["integrity"]["level"] == "fail"
    assert "backup" in found["integrity"]["fix"]


@pytest.mark.slow
def test_a_damaged_page_fails(examined: Findings, used: Path) -> None:
    content = bytearray(used.read_bytes())
    content[4096 * 2 : 4096 * 6] = os.urandom(4096 * 4)
    used.write_bytes(content)
    assert examined(code=exits.FAILED)["integrity"]["level"] == "fail"


@pytest.mark.slow
@pytest.mark.parametrize("suffix", ["keys", "secret"])
def test_a_private_file_that_others_can_read_fails(examined: Findings, used: Path, suffix: str) -> None:
    path = Path(f"{used}.{suffix}")
    path.touch()
    path.chmod(0o644)
    found = examined(code=exits.FAILED)[suffix]
    assert (found["level"], found["fix"]) == ("fail", f"chmod 600 noonday.db.{suffix}")


@pytest.mark.slow
def test_a_data_file_that_others_can_read_is_warned_of(examined: Findings, used: Path) -> None:
    assert examined()["file"]["level"] == "ok"
    used.chmod(0o644)
    found = examined()["file"]
    assert (found["level"], found["fix"]) == ("warn", "chmod 600 noonday.db*")


@pytest.mark.slow
def test_keys_that_were_lost_fail(examined: Findings, used: Path) -> None:
    Path(f"{used}.keys").unlink()
    assert "put the file back" in examined(code=exits.FAILED)["keys"]["fix"]


@pytest.mark.slow
def test_keys_that_do_not_decrypt_stored_payloads_fail(examined: Findings, used: Path) -> None:
    Path(f"{used}.keys").unlink()
    load_or_create(Path(f"{used}.keys"))
    found = examined(code=exits.FAILED)["payloads"]
    assert (found["level"], "1 of 1 cannot be decrypted" in found["detail"]) == ("fail", True)


@pytest.mark.slow
def test_a_file_of_a_newer_release_fails(examined: Findings, used: Path) -> None:
    change(used, "INSERT INTO migrations VALUES ('9999_future.sql', 'x', 'x')")
    assert examined(code=exits.FAILED)["migrations"]["fix"] == "upgrade Noonday"


@pytest.mark.slow
def test_file_of_an_older_release_is_a_warning_to_migrate(examined: Findings, used: Path) -> None:
    change(used, "DELETE FROM migrations")
    assert examined()["migrations"]["level"] == "warn"


@pytest.mark.slow
def test_a_clock_that_was_set_back_is_noticed(examined: Findings, used: Path) -> None:
    change(used, f"UPDATE workers SET seen_ms = {LATER_MS}", f"UPDATE checkpoints SET tick_ms = {LATER_MS}")
    found = examined()["clock"]
    assert (found["level"], "in the future" in found["detail"]) == ("warn", True)


@pytest.mark.slow
def test_schedules_of_other_zone_data_are_noticed(examined: Findings, used: Path) -> None:
    change(used, "INSERT OR REPLACE INTO meta VALUES ('zone_data', '1999a')")
    assert "1999a" in examined()["time zones"]["detail"]


@pytest.mark.slow
def test_port_that_another_process_uses_is_reported(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        settings = load_settings({"data": str(tmp_path / "x.db"), "port": port}, {}, Path("/dev/null"))
        (found,) = check_port(CheckContext(settings, LATER_MS))
    assert (found.level, f"--port {port + 1}" in (found.fix or "")) == (Level.WARN, True)


@pytest.mark.slow
def test_examining_changes_nothing(used: Path) -> None:
    before = used.read_bytes()
    list(examine(CheckContext(settings_of(used), LATER_MS, thorough=True)))
    assert used.read_bytes() == before


@pytest.mark.slow
def test_each_check_names_its_subject(used: Path) -> None:
    findings = list(examine(CheckContext(settings_of(used), LATER_MS)))
    assert len(findings) >= len(CHECKS)
    assert all(finding.about and finding.detail for finding in findings)


def test_people_read_one_line_a_finding_with_the_remedy_below(run: Run) -> None:
    lines = run("doctor").stdout.splitlines()
    assert lines[0].startswith("ok    python")
    warned = next(i for i, line in enumerate(lines) if line.startswith("warn  file"))
    assert lines[warned + 1].strip().startswith("-> ")


def test_a_missing_folder_fails(examined: Findings) -> None:
    assert examined("--data", "nowhere/x.db", code=exits.FAILED)["folder"]["fix"].startswith("mkdir -p")
