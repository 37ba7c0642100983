"""`shell.run`, as an embedded engine runs it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from noonday.model.caller import Caller
from noonday.model.errors import InvalidInput
from noonday.model.ids import TenantId
from noonday.model.job import JobSpec, JobType, Target
from noonday.model.retry import RetryPolicy
from noonday.model.view import ExecutionView
from noonday.shell.handler import PATH
from noonday.wiring.embedded import Embedded
from noonday.wiring.settings import Settings
from noonday.wiring.settings.shell import ShellSettings
from tests.support.eventually import eventually

ALLOWED = ShellSettings(allow=True, tenants="default, ops")
ANN = Caller(TenantId("default"), "ann", frozenset({"write"}))
STRANGER = Caller(TenantId("globex"), "bob", frozenset({"write"}))


@asynccontextmanager
async def engine(shell: ShellSettings = ALLOWED) -> AsyncIterator[Embedded]:
    embedded = await Embedded.open(Settings(data=":memory:", shell=shell), {})
    try:
        yield embedded
    finally:
        await embedded.close()


async def create(embedded: Embedded, payload: Any, caller: Caller = ANN, **fields: Any) -> str:
    policy = RetryPolicy(max_attempts=1)
    spec = JobSpec(
        type=JobType.ONE_TIME, target=Target("shell", "shell.run"), payload=payload, retry_policy=policy, **fields
    )
    return (await embedded.engine.services.jobs.create(caller, spec)).job_id


async def ran(embedded: Embedded, payload: Any, caller: Caller = ANN, **fields: Any) -> ExecutionView:
    """Run a command to its end."""
    job_id = await create(embedded, payload, caller, **fields)

    async def ended() -> ExecutionView | None:
        page = await embedded.engine.services.executions.list_executions(caller, job_id)
        return next((one for one in page.executions if one.finished_at), None)

    found = await eventually(ended)
    assert found is not None
    return found


async def test_a_command_runs_with_its_own_environment() -> None:
    async with engine() as embedded:
        payload = {"script": 'echo "$A $RUN_JOB_NAME $RUN_ATTEMPT"; pwd; env', "env": {"A": "b"}, "cwd": "/"}
        execution = await ran(embedded, payload, name="backup")
    assert execution.state == "SUCCEEDED"
    lines = execution.result["stdout"].splitlines()
    assert lines[:2] == ["b backup 1", "/"]
    names = {line.partition("=")[0] for line in lines[2:]}
    assert names == {
        "A", "HOME", "LANG", "LOGNAME", "PATH", "PWD", "RUN_ATTEMPT", "RUN_EXECUTION_ID", "RUN_JOB_ID", "RUN_JOB_NAME",
        "RUN_SCHEDULED_AT", "SHELL", "USER",
    } - ({"PWD"} - names)  # fmt: skip


async def test_the_path_is_that_of_a_login() -> None:
    async with engine() as embedded:
        execution = await ran(embedded, {"script": 'printf "%s" "$PATH"'})
    assert execution.result["stdout"] == PATH


async def test_the_exit_code_is_the_outcome() -> None:
    async with engine() as embedded:
        execution = await ran(embedded, {"argv": ["sh", "-c", "echo no >&2; exit 3"]})
    assert execution.error is not None
    assert (execution.state, execution.error.type, execution.error.message) == (
        "DEAD",
        "CommandFailed",
        "exit code 3: no",
    )


async def log_of(embedded: Embedded, execution: ExecutionView) -> str:
    view = await embedded.engine.services.executions.get_logs(ANN, execution.execution_id)
    (attempt,) = view.attempts
    return attempt.text or ""


async def test_the_output_is_kept_with_the_log_lines_of_the_execution(caplog: pytest.LogCaptureFixture) -> None:
    async with engine() as embedded:
        execution = await ran(embedded, {"script": "echo one; echo two; echo oops >&2; exit 3"})
        text = await log_of(embedded, execution)
    assert execution.state == "DEAD"
    (first, *lines) = text.splitlines()
    assert first.endswith(" INFO     stdout:")
    assert lines[:2] == ["one", "two"]
    assert lines[2].endswith(" INFO     stderr:")
    assert lines[3:] == ["oops"]
    assert "one" not in [record.message for record in caplog.records]


async def test_the_output_of_a_command_that_was_ended_is_kept(tmp_path: Path) -> None:
    written = tmp_path / "written"
    async with engine() as embedded:
        job_id = await create(embedded, {"script": f"echo begun; touch {written}; sleep 600; true"})
        await eventually(written.exists)
        executions = embedded.engine.services.executions
        (running,) = (await executions.list_executions(ANN, job_id)).executions
        await executions.cancel(ANN, running.execution_id)

        async def cancelled() -> bool:
            return (await executions.get(ANN, running.execution_id)).state == "CANCELLED"

        await eventually(cancelled)
        assert "begun" in await log_of(embedded, running)


async def test_the_end_of_a_long_output_is_kept() -> None:
    shell = msgspec.structs.replace(ALLOWED, output_bytes=100)
    async with engine(shell) as embedded:
        execution = await ran(embedded, {"script": "seq 1 1000"})
        text = await log_of(embedded, execution)
    assert "stdout, the first 3793 bytes are left out:" in text
    assert text.endswith("999\n1000\n")
    assert len(text) < 250


async def test_a_command_without_output_has_no_log_lines() -> None:
    async with engine() as embedded:
        execution = await ran(embedded, {"script": "true"})
        view = await embedded.engine.services.executions.get_logs(ANN, execution.execution_id)
    assert view.attempts == ()


async def test_a_command_ends_at_its_timeout() -> None:
    async with engine() as embedded:
        execution = await ran(embedded, {"script": "sleep 600; true"}, timeout_sec=0.2)
    assert execution.error is not None
    assert (execution.state, execution.error.type) == ("DEAD", "Timeout")


async def test_another_tenant_may_not_run_commands() -> None:
    async with engine() as embedded:
        execution = await ran(embedded, {"script": "true"}, STRANGER)
    assert execution.error is not None
    assert execution.error.message == (
        "tenant 'globex' may not run commands; the operator allows: default, ops (shell.tenants)"
    )


@pytest.mark.parametrize(
    ("payload", "message"),
    [
        ({}, "needs either argv or script"),
        ({"argv": ["true"], "script": "true"}, "needs either argv or script"),
        ({"argv": ["a\0b"]}, "no NUL"),
        ({"script": "true", "env": {"A=B": "c"}}, "must have no ="),
    ],
)
async def test_an_unusable_command_is_final(payload: Any, message: str) -> None:
    async with engine() as embedded:
        execution = await ran(embedded, payload)
    assert execution.error is not None
    assert (execution.state, execution.error.type) == ("DEAD", "DoNotRetry")
    assert message in execution.error.message


async def test_a_payload_of_another_form_is_refused() -> None:
    async with engine() as embedded:
        await eventually(lambda: _refused(embedded))


async def _refused(embedded: Embedded) -> bool:
    """Whether the schema of the handler is known already, and refuses the payload."""
    try:
        await create(embedded, {"scrip": "true"})
    except InvalidInput as refused:
        return "scrip" in refused.detail
    return False


async def test_commands_are_off_by_default() -> None:
    async with engine(ShellSettings()) as embedded:
        with pytest.raises(InvalidInput, match="shell"):
            await create(embedded, {"script": "true"})
