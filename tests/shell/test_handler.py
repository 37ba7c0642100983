"""`shell.run`, as an embedded engine runs it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

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
