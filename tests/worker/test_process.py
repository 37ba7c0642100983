import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio
import uvloop

from noonday.crypto.keyring import Keyring
from noonday.model.errors import InvalidInput
from noonday.model.execution import Outcome
from noonday.worker.child_process import ProcessDied
from noonday.worker.context import Cancelled, Snooze
from noonday.worker.host import HandlerThread
from noonday.worker.process import ProcessHost, RemoteError
from noonday.worker.run import TIMED_OUT, Run
from tests.worker import process_handlers as handlers
from tests.worker.runs import DEADLINE_SEC, eventually, new_run

_ROOT = Path(__file__).parents[2]
_PARENT = Path(__file__).with_name("process_parent.py")
_LIMIT = 1_000
_KEYRING = Keyring.generate()


# A process starts slowly: tests share those that they do not kill.
pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def host() -> AsyncIterator[ProcessHost]:
    host = ProcessHost(2, handlers.RESOLVER, cancel_grace_sec=0.1)
    yield host
    host.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def patient_host() -> AsyncIterator[ProcessHost]:
    host = ProcessHost(1, handlers.RESOLVER, cancel_grace_sec=DEADLINE_SEC)
    yield host
    host.close()


@pytest.mark.slow
async def test_a_handler_is_given_its_payload_and_its_result_is_kept_encoded(host: ProcessHost) -> None:
    run = new_run(handlers.add, _KEYRING, payload=[1, 2, 3])
    run.succeed(await result_of(host, run), _LIMIT)
    assert (run.outcome, run.result) == (Outcome.SUCCEEDED, b"6")


async def test_a_payload_larger_than_the_buffer_of_the_pipe_arrives(host: ProcessHost) -> None:
    payload = "x" * 2_000_000
    assert await perform(host, handlers.echo, payload, limit=3_000_000) == payload


async def test_a_handler_runs_elsewhere_and_knows_its_run(host: ProcessHost) -> None:
    run = new_run(handlers.describe, _KEYRING, progress={"page": 4})
    seen = msgspec.json.decode(await result_of(host, run))
    assert seen.pop("pid") != os.getpid()
    assert seen == {
        "execution": run.dispatch.execution_id,
        "attempt": 3,
        "token": int(run.token),
        "progress": {"page": 4},
    }


async def test_an_error_travels_with_its_type_its_text_and_its_traceback(host: ProcessHost) -> None:
    with pytest.raises(RemoteError) as raised:
        await perform(host, handlers.divide_by_zero)
    failure = raised.value.failure
    assert (failure.type, failure.message, failure.retryable) == ("ZeroDivisionError", "division by zero", True)
    assert "in divide_by_zero\n    return 1 / 0" in failure.traceback


async def test_do_not_retry_is_not_retryable(host: ProcessHost) -> None:
    with pytest.raises(RemoteError) as raised:
        await perform(host, handlers.give_up_for_good)
    assert (raised.value.failure.type, raised.value.failure.retryable) == ("DoNotRetry", False)


async def test_a_snooze_is_a_snooze(host: ProcessHost) -> None:
    with pytest.raises(Snooze) as raised:
        await perform(host, handlers.come_back_later)
    assert raised.value.seconds == 2.5


async def test_a_result_that_has_no_json_is_a_failure_for_good(host: ProcessHost) -> None:
    with pytest.raises(RemoteError) as raised:
        await perform(host, handlers.return_a_lock)
    assert (raised.value.failure.type, raised.value.failure.retryable) == ("TypeError", False)


async def test_a_result_over_the_limit_is_not_even_sent(host: ProcessHost) -> None:
    with pytest.raises(RemoteError) as raised:
        await perform(host, handlers.return_text, 999)
    assert (raised.value.failure.type, raised.value.failure.retryable) == ("ResultTooLarge", False)


async def test_heartbeats_reach_the_context_of_the_run(host: ProcessHost) -> None:
    run = new_run(handlers.beat_with_progress, _KEYRING)
    await result_of(host, run)
    assert (run.context._reported_progress, run.context._has_new_heartbeat) == (b'{"page":2}', True)


@pytest.mark.slow
async def test_a_thread_left_behind_does_not_beat_for_the_next_run(patient_host: ProcessHost, tmp_path: Path) -> None:
    path = tmp_path / "beat"
    await perform(patient_host, handlers.leave_a_thread_that_beats, str(path))
    run = new_run(handlers.wait_for_file, _KEYRING, payload=f"{path}.done")
    task = asyncio.create_task(result_of(patient_host, run))
    await has_printed(run)
    path.touch()
    await task
    assert run.context._reported_progress == b'{"waits":true}'


async def test_a_handler_that_sees_its_cancellation_and_returns_is_cancelled(patient_host: ProcessHost) -> None:
    run = new_run(handlers.wait_until_cancelled, _KEYRING)
    result = await cancelled(patient_host, run, "CANCELLED")
    run.succeed(result, _LIMIT)
    assert (result, run.outcome) == (b'"CANCELLED"', Outcome.CANCELLED)


async def test_a_handler_that_raises_when_cancelled_is_cancelled(patient_host: ProcessHost) -> None:
    run = new_run(handlers.raise_when_cancelled, _KEYRING)
    with pytest.raises(Cancelled) as raised:
        await cancelled(patient_host, run, "CANCELLED")
    run.fail(raised.value)
    assert run.outcome is Outcome.CANCELLED


async def test_a_process_whose_handler_listened_is_used_again(patient_host: ProcessHost) -> None:
    run = new_run(handlers.wait_until_cancelled, _KEYRING)
    await cancelled(patient_host, run, "CANCELLED")
    assert await perform(patient_host, handlers.pid) == pid_printed(run)


@pytest.mark.slow
async def test_a_handler_that_does_not_listen_is_dead_when_its_timeout_is_reported(host: ProcessHost) -> None:
    run = new_run(handlers.never_listen, _KEYRING)
    with pytest.raises(asyncio.CancelledError) as raised:
        await cancelled(host, run, TIMED_OUT)
    assert not alive(pid_printed(run))
    run.fail(raised.value)
    assert run.outcome is Outcome.TIMED_OUT


@pytest.mark.slow
async def test_handler_that_blocks_the_interpreter_is_killed_too(host: ProcessHost) -> None:
    run = new_run(handlers.hold_the_interpreter, _KEYRING)
    with pytest.raises(asyncio.CancelledError):
        await cancelled(host, run, "CANCELLED")
    assert not alive(pid_printed(run))


@pytest.mark.slow
async def test_process_started_by_a_handler_is_killed_with_it(host: ProcessHost) -> None:
    run = new_run(handlers.start_a_program, _KEYRING)
    with pytest.raises(asyncio.CancelledError):
        await cancelled(host, run, "CANCELLED")
    await gone(pid_printed(run))


async def test_a_run_that_waits_for_a_process_can_be_cancelled(patient_host: ProcessHost, tmp_path: Path) -> None:
    first = new_run(handlers.wait_for_file, _KEYRING, payload=str(tmp_path / "go"))
    holding = asyncio.create_task(result_of(patient_host, first))
    await has_printed(first)
    waiting = asyncio.create_task(perform(patient_host, handlers.pid))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    (tmp_path / "go").touch()
    await holding
    assert await perform(patient_host, handlers.add, [2]) == 2


async def test_a_process_that_does_not_reach_its_handler_is_killed() -> None:
    host = ProcessHost(1, handlers.RESOLVER, enter_within_sec=0.001)
    with pytest.raises(ProcessDied, match=r"had not entered its handler after 0\.001 s"):
        await perform(host, handlers.pid)
    host.close()


@pytest.mark.slow
async def test_host_is_notified_when_a_handler_is_entered() -> None:
    entered: list[Run] = []
    host = ProcessHost(1, handlers.RESOLVER, on_entered=entered.append)
    run = new_run(handlers.pid, _KEYRING)
    await result_of(host, run)
    with pytest.raises(RemoteError):
        await result_of(host, new_run(handlers.add, _KEYRING, payload="no numbers"))
    assert entered[0] is run
    host.close()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGKILL])
async def test_a_process_killed_by_a_signal_is_named(host: ProcessHost, number: signal.Signals) -> None:
    with pytest.raises(ProcessDied, match=f"killed by {number.name}"):
        await perform(host, handlers.kill_itself, int(number))


@pytest.mark.slow
async def test_a_process_that_leaves_is_named_with_its_exit_code(host: ProcessHost) -> None:
    run = new_run(handlers.leave, _KEYRING, payload=7)
    with pytest.raises(ProcessDied, match="exit code 7") as raised:
        await result_of(host, run)
    run.fail(raised.value)
    assert (run.outcome, run.failure.type, run.failure.retryable) == (Outcome.FAILED, "ProcessDied", True)


@pytest.mark.slow
@pytest.mark.parametrize("handler", [handlers.start_a_program_and_crash, handlers.fork_and_crash])
async def test_process_started_by_a_crashed_handler_is_killed(host: ProcessHost, handler: Callable[..., Any]) -> None:
    run = new_run(handler, _KEYRING)
    with pytest.raises(ProcessDied):
        await result_of(host, run)
    await gone(pid_printed(run))


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_to_all_of_a_workers_processes_ends_no_handler(
    host: ProcessHost, number: signal.Signals
) -> None:
    assert await perform(host, handlers.kill_itself, int(number)) == "still here"


async def test_a_fork_of_a_handler_can_be_terminated(host: ProcessHost) -> None:
    assert await perform(host, handlers.fork_and_terminate) == -signal.SIGTERM


async def test_a_process_is_used_again_after_results_and_errors(host: ProcessHost) -> None:
    first = await perform(host, handlers.pid)
    with pytest.raises(RemoteError):
        await perform(host, handlers.divide_by_zero)
    assert await perform(host, handlers.pid) == first


@pytest.mark.slow
async def test_a_process_that_died_idle_is_replaced(host: ProcessHost) -> None:
    first = await perform(host, handlers.pid)
    os.kill(first, signal.SIGKILL)
    await eventually(lambda: not Path(f"/proc/{first}").exists())
    assert await perform(host, handlers.pid) != first


@pytest.mark.slow
async def test_no_more_processes_run_than_allowed(host: ProcessHost, tmp_path: Path) -> None:
    runs = [new_run(handlers.wait_for_file, _KEYRING, payload=str(tmp_path / "go")) for _ in range(4)]
    tasks = [asyncio.create_task(result_of(host, run)) for run in runs]
    await asyncio.gather(has_printed(runs[0]), has_printed(runs[1]))
    (tmp_path / "go").touch()
    pids = await asyncio.gather(*tasks)
    assert len(set(pids)) == 2


async def test_a_process_inherits_no_files(host: ProcessHost, tmp_path: Path) -> None:
    with (tmp_path / "lock").open("w") as lock:
        os.set_inheritable(lock.fileno(), True)
        assert lock.name not in await perform(host, handlers.list_open_files)


@pytest.mark.slow
async def test_output_of_a_handler_survives_its_process(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    host = ProcessHost(1, handlers.RESOLVER)
    await perform(host, handlers.print_a_word)
    host.close()
    assert capfd.readouterr().out == "spoken"


@pytest.mark.slow
async def test_annotations_decide_how_a_payload_is_read_by_default() -> None:
    host = ProcessHost(1)
    assert await perform(host, handlers.area, {"width": 3, "height": 4}) == 12
    host.close()


async def test_a_function_that_cannot_be_imported_is_refused(host: ProcessHost) -> None:
    with pytest.raises(InvalidInput, match=r"process_handlers\.hidden cannot run in a process of its own"):
        await perform(host, handlers.HIDDEN)


@pytest.mark.slow
async def test_closing_kills_idle_and_busy_processes() -> None:
    host = ProcessHost(2, handlers.RESOLVER)
    busy = new_run(handlers.never_listen, _KEYRING)
    task = asyncio.create_task(result_of(host, busy))
    await has_printed(busy)
    idle_pid = await perform(host, handlers.pid)
    host.close()
    assert not alive(pid_printed(busy))
    assert not alive(idle_pid)
    with pytest.raises(ProcessDied, match="SIGKILL"):
        await task
    with pytest.raises(RuntimeError, match="closed"):
        await perform(host, handlers.pid)


@pytest.mark.slow
@pytest.mark.parametrize("handler", ["hold_the_interpreter", "start_a_program"])
async def test_a_parent_killed_leaves_nothing_behind(handler: str) -> None:
    with program(handler) as parent:
        child, _ = first_line(parent)
        assert alive(child)
        parent.kill()
        await gone(child)


@pytest.mark.slow
async def test_a_fork_of_a_killed_parent_does_not_keep_its_processes_alive() -> None:
    with program("hold_the_interpreter", "fork") as parent:
        child, fork = first_line(parent)
        try:
            parent.kill()
            await gone(child)
        finally:
            os.kill(fork, signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.parametrize("start", [[str(_PARENT)], ["-m", "tests.worker.process_parent"]])
async def test_a_handler_of_the_program_that_was_started_is_found(start: list[str]) -> None:
    with program("add_up", start=start) as parent:
        name, argument = msgspec.json.decode(parent.communicate(timeout=DEADLINE_SEC)[0].splitlines()[1])
    assert (name != "__main__", argument) == (True, "add_up")


@pytest.mark.slow
async def test_a_handler_of_a_program_without_a_file_is_refused(capfd: pytest.CaptureFixture[str]) -> None:
    with program("add_up", start=["-c", _PARENT.read_text()]) as parent:
        parent.communicate(timeout=DEADLINE_SEC)
    assert "add_up cannot run in a process of its own: its program is not a file" in capfd.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
async def test_process_host_works_in_a_thread_under_either_loop(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    thread = HandlerThread(new_loop, "handlers")
    host = ProcessHost(1, handlers.RESOLVER, cancel_grace_sec=0.1)

    def there(coroutine: Coroutine[Any, Any, Any]) -> "asyncio.Future[Any]":
        return asyncio.wrap_future(asyncio.run_coroutine_threadsafe(coroutine, thread.loop))

    stubborn = new_run(handlers.never_listen, _KEYRING)
    try:
        assert await there(perform(host, handlers.echo, "x" * 900_000, limit=1_000_000)) == "x" * 900_000
        with pytest.raises(asyncio.CancelledError):
            await there(cancelled(host, stubborn, "CANCELLED"))
        last = await there(perform(host, handlers.pid))
    finally:
        host.close()
        thread.close()
        thread.loop.close()
    assert not alive(pid_printed(stubborn))
    assert not alive(last)


async def perform(host: ProcessHost, call: Callable[..., Any], payload: Any = None, limit: int = _LIMIT) -> Any:
    result = await result_of(host, new_run(call, _KEYRING, payload), limit)
    return None if result is None else msgspec.json.decode(result)


async def result_of(host: ProcessHost, run: Run, limit: int = _LIMIT) -> bytes | None:
    async with asyncio.timeout(DEADLINE_SEC):
        return await host.run(run, _KEYRING, limit)


async def cancelled(host: ProcessHost, run: Run, reason: str) -> bytes | None:
    """Cancel a run after it has begun, and return its result."""
    task = asyncio.create_task(result_of(host, run))
    await has_printed(run)
    run.stop_reason = reason
    task.cancel()
    return await task


async def has_printed(run: Run) -> None:
    await eventually(lambda: run.context._reported_progress is not None)


def pid_printed(run: Run) -> int:
    return int(run.context._reported_progress)


async def gone(pid: int) -> None:
    try:
        await eventually(lambda: not alive(pid))
    finally:
        if alive(pid):
            os.kill(pid, signal.SIGKILL)


def alive(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


@contextmanager
def program(*arguments: str, start: list[str] | None = None) -> Iterator["subprocess.Popen[bytes]"]:
    command = [sys.executable, *(start or [str(_PARENT)]), *arguments]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(_ROOT), *sys.path])}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, cwd=_ROOT) as process:
        try:
            yield process
        finally:
            process.kill()


def first_line(process: "subprocess.Popen[bytes]") -> list[int]:
    assert process.stdout is not None
    return [int(word) for word in process.stdout.readline().split()]
