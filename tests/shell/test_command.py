"""Commands: their environment, output, end and process group."""

import asyncio
import os
import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest

from noonday.model.errors import DoNotRetry
from noonday.model.shell import ShellCommand
from noonday.shell.command import CommandFailed, CommandResult, Tail, run_command
from tests.support.eventually import eventually

KEEP = 1_000
PATH = {"PATH": "/usr/bin:/bin"}


async def run(script: str, folder: Path, env: Mapping[str, str] = PATH) -> CommandResult:
    return await run_command(ShellCommand(script=script), env, str(folder), KEEP)


def is_alive(pid: int) -> bool:
    """Whether a process exists and has not ended. A killed one stays a zombie until its parent reaps it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def pid_in(file: Path) -> int:
    """Wait until a command has written a process id."""

    def written() -> str:
        return file.read_text().strip() if file.exists() else ""

    return int(await eventually(written))


async def test_output_and_exit_code_are_the_result(tmp_path: Path) -> None:
    assert await run("echo out; echo err >&2; pwd", tmp_path) == CommandResult(
        0, f"out\n{tmp_path}\n", "err\n", 5 + len(str(tmp_path)), 4
    )


async def test_arguments_are_not_read_by_a_shell(tmp_path: Path) -> None:
    command = ShellCommand(argv=("printf", "%s|", "a b", "$HOME", "*"))
    assert (await run_command(command, PATH, str(tmp_path), KEEP)).stdout == "a b|$HOME|*|"


async def test_a_command_inherits_nothing_of_the_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOONDAY_AUTH_SECRET", "s3cret")
    reading, writing = os.pipe()
    os.set_inheritable(writing, True)
    try:
        shown = (await run("env; ls -l /proc/self/fd", tmp_path, {**PATH, "A": "b"})).stdout
    finally:
        os.close(reading)
        os.close(writing)
    assert "A=b\n" in shown
    assert "s3cret" not in shown
    assert sorted(line.split()[-3] for line in shown.splitlines() if " -> " in line)[:3] == ["0", "1", "2"]
    assert [line for line in shown.splitlines() if f" {writing} -> pipe" in line] == []


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("echo boom >&2; exit 3", "exit code 3: boom"),
        ("echo only out; exit 4", "exit code 4: only out"),
        ("exit 5", "exit code 5"),
        ("kill -SEGV $$", "ended by SIGSEGV"),
    ],
)
async def test_another_exit_code_is_a_failure_with_the_output(tmp_path: Path, script: str, message: str) -> None:
    with pytest.raises(CommandFailed) as failed:
        await run(script, tmp_path)
    assert failed.value.detail == message


async def test_an_unknown_program_is_a_failure(tmp_path: Path) -> None:
    with pytest.raises(CommandFailed, match=r"exit code 127: .*nonesuch"):
        await run_command(ShellCommand(argv=("nonesuch",)), PATH, str(tmp_path), KEEP)


async def test_a_missing_working_directory_is_final(tmp_path: Path) -> None:
    with pytest.raises(DoNotRetry, match="No such file or directory"):
        await run("true", tmp_path / "none")


async def test_only_the_end_of_the_output_is_kept(tmp_path: Path) -> None:
    found = await run("seq 1 100000; head -c 5000 /dev/zero >&2", tmp_path)
    assert found.stdout.endswith("99999\n100000\n")
    assert (len(found.stdout), found.stdout_bytes, found.stderr_bytes) == (
        KEEP - found.stdout.count("\n"),
        588_895,
        5000,
    )
    assert len(msgspec.json.encode(found.stderr)) <= KEEP + 2


@pytest.mark.parametrize("limit", [0, 1, 7, 100])
def test_a_tail_is_bounded_as_json(limit: int) -> None:
    tail = Tail(limit)
    for part in (b"\0" * 300, "ä€😀".encode() * 50, b"\xff\xfe", b'\n"\\' * 40):
        tail.add(part)
        assert len(msgspec.json.encode(tail.text)) <= limit + 2
    assert tail.total == 300 + 9 * 50 + 2 + 3 * 40


async def test_processes_that_a_command_leaves_behind_are_killed(tmp_path: Path) -> None:
    result = await run("sleep 600 & echo $! > pid; echo done", tmp_path)
    assert result.stdout == "done\n"
    left = int((tmp_path / "pid").read_text())
    await eventually(lambda: not is_alive(left))


@pytest.mark.parametrize("trap", ["", "trap '' TERM; "])
async def test_a_cancelled_command_is_killed_with_its_group(tmp_path: Path, trap: str) -> None:
    script = f"{trap}sleep 600 & echo $! > pid.new; mv pid.new pid; wait; sleep 600"
    task = asyncio.create_task(run(script, tmp_path))
    child = await pid_in(tmp_path / "pid")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await eventually(lambda: not is_alive(child))


async def test_a_cancelled_command_may_clean_up(tmp_path: Path) -> None:
    script = "trap 'echo cleaned > end; exit 1' TERM; echo $$ > pid.new; mv pid.new pid; while :; do sleep 0.05; done"
    task = asyncio.create_task(run(script, tmp_path))
    await pid_in(tmp_path / "pid")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (tmp_path / "end").read_text() == "cleaned\n"


WORKER = """
import asyncio, sys
from noonday.model.shell import ShellCommand
from noonday.shell.command import run_command

command = ShellCommand(script="sleep 600 & echo $! > pid.new; mv pid.new pid; wait")
asyncio.run(run_command(command, {"PATH": "/usr/bin:/bin"}, sys.argv[1], 100))
"""


async def test_a_command_dies_with_its_worker(tmp_path: Path) -> None:
    worker = await asyncio.create_subprocess_exec(sys.executable, "-c", WORKER, str(tmp_path))
    try:
        child = await pid_in(tmp_path / "pid")
        assert is_alive(child)
    finally:
        worker.kill()
        await worker.wait()
    await eventually(lambda: not is_alive(child))


def test_an_output_of_which_nothing_is_to_be_kept_takes_no_memory() -> None:
    tail = Tail(0)
    for _ in range(3):
        tail.add(b"x" * 1_000)
    assert (tail.text, tail.total, tail.dropped) == ("", 3_000, 3_000)
