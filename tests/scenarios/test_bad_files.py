"""A file that cannot be used: the error names the reason, the exit code is 3, and the file is unchanged."""

import os
import sqlite3
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.scenarios.inside import Inside
from tests.scenarios.process import Server, job_body, until


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    """A process on a file that was used, and closed in order."""
    (tmp_path / "data").mkdir()
    async with Inside(tmp_path / "data").open() as inside:
        await inside.create("note")
        await until(lambda: inside.query("SELECT 1 FROM executions WHERE state = 5"))
    async with Server(tmp_path, data=inside.data) as server:
        yield server


@pytest.mark.slow
async def test_a_read_only_file(server: Server) -> None:
    with read_only(server.data):
        assert await refusal_of(server) == 3

    assert f"{server.data} cannot be opened for writing: check the permissions" in server.err
    await works_again(server)


@pytest.mark.slow
async def test_a_read_only_folder(server: Server) -> None:
    with read_only(server.data.parent):
        assert await refusal_of(server) == 3

    assert str(server.data) in server.err
    assert "permissions" in server.err
    await works_again(server)


@pytest.mark.slow
async def test_a_read_only_folder_without_a_file(tmp_path: Path) -> None:
    folder = tmp_path / "empty"
    folder.mkdir()
    async with Server(tmp_path, data=folder / "noonday.db") as server:
        with read_only(folder):
            server.start()
            assert await server.exit_code() == 3

        assert str(server.data) in server.err
        assert not list(folder.iterdir())


@pytest.mark.slow
async def test_a_folder_that_does_not_exist(tmp_path: Path) -> None:
    async with Server(tmp_path, data=tmp_path / "nowhere" / "noonday.db") as server:
        server.start()

        assert await server.exit_code() == 3
        assert str(tmp_path / "nowhere") in server.err


@pytest.mark.slow
@pytest.mark.parametrize("content", [b"this is a letter to my aunt\n" * 500, b"SQLite format 3\x00" + bytes(8176)])
async def test_a_file_that_is_something_else(tmp_path: Path, content: bytes) -> None:
    async with Server(tmp_path) as server:
        server.data.write_bytes(content)

        assert await refusal_of(server) == 3
        assert f"{server.data} is damaged or not a Noonday file" in server.err
        assert "noonday doctor" in server.err


@pytest.mark.slow
async def test_a_file_with_a_garbled_header(server: Server) -> None:
    garble(server.data, page=1, bytes_=100)

    assert await refusal_of(server) == 3
    assert f"{server.data} is damaged or not a Noonday file" in server.err


@pytest.mark.slow
@pytest.mark.parametrize("table", ["checkpoints", "partitions", "migrations"])
async def test_a_file_with_a_garbled_page_that_the_start_needs(server: Server, table: str) -> None:
    garble(server.data, page=root_page_of(server.data, table))

    server.start()

    assert await server.exit_code() == 3
    assert f"{server.data} is damaged or not a Noonday file" in server.err


@pytest.mark.slow
async def test_garbled_page_that_is_found_later_fails_the_request_that_reads_it(server: Server) -> None:
    done = server.query("SELECT id FROM executions")[0][0]
    garble(server.data, page=root_page_of(server.data, "audit"))

    await server.up()
    status, problem = await server.ask("GET", "/v1/audit")

    assert status == 503
    assert problem["type"].endswith("/store-unavailable")
    assert f"{server.data} is damaged" in problem["detail"]
    assert (await server.ask("GET", f"/v1/executions/{done}"))[0] == 200


@pytest.mark.slow
async def test_damage_that_stops_the_work_makes_the_process_unready(server: Server) -> None:
    garble(server.data, page=root_page_of(server.data, "executions"))

    await server.up()
    await server.ask(
        "POST", "/v1/jobs", job_body("act", None, pool="p")
    )  # the request is refused, if the damage was met already
    problem = await until(lambda: unreadiness_of(server))

    assert f"{server.data} is damaged" in problem["detail"]
    assert (await server.ask("GET", "/healthz"))[0] == 200


@pytest.mark.slow
async def test_a_file_of_a_newer_noonday(server: Server) -> None:
    with closing(sqlite3.connect(server.data)) as conn:
        conn.execute("INSERT INTO migrations VALUES ('9999_of_tomorrow.sql', 'x', '2099-01-01T00:00:00Z')")
        conn.commit()

    assert await refusal_of(server) == 3
    assert "newer Noonday" in server.err
    assert "9999_of_tomorrow.sql" in server.err
    assert "upgrade" in server.err


async def refusal_of(server: Server) -> int:
    """Return the error of a process that refuses to start, and check that it left the file unchanged."""
    before = server.data.read_bytes()
    server.start()
    code = await server.exit_code()
    assert server.data.read_bytes() == before
    assert server.out == ""
    return code


async def unreadiness_of(server: Server) -> Any:
    status, problem = await server.ask("GET", "/readyz")
    return problem if status == 503 else None


async def works_again(server: Server) -> None:
    await server.up()
    await server.execution(await server.create("act"), state="SUCCEEDED")


@contextmanager
def read_only(path: Path) -> Iterator[None]:
    """Make a file read-only. Permissions do not bind root; an attribute of the file system does, if it has one."""
    if os.geteuid() != 0:
        mode = path.stat().st_mode
        path.chmod(mode & ~0o222)
        yield
        path.chmod(mode)
        return
    completed = subprocess.run(["chattr", "+i", str(path)], capture_output=True, text=True, check=False)
    if completed.returncode:
        pytest.skip(f"root cannot make {path} read-only here: {completed.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["chattr", "-i", str(path)], check=True)


def garble(path: Path, *, page: int, bytes_: int = 4096) -> None:
    """Overwrite the beginning of a page with noise."""
    with path.open("r+b") as file:
        file.seek((page - 1) * 4096)
        file.write(Random(7).randbytes(bytes_))


def root_page_of(path: Path, table: str) -> int:
    with closing(sqlite3.connect(path)) as conn:
        assert conn.execute("PRAGMA page_size").fetchone() == (4096,)
        return conn.execute("SELECT rootpage FROM sqlite_schema WHERE name = ?", (table,)).fetchone()[0]  # type: ignore[no-any-return]
