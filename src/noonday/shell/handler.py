"""The built-in handler `shell.run`."""

import logging
import os
import pwd
from collections.abc import Collection
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec

from noonday.model.errors import DoNotRetry
from noonday.model.handler import Handler, Mode
from noonday.model.shell import DEFAULT_SHELL, HANDLER, POOL, ShellCommand
from noonday.shell.command import Tail, run_command
from noonday.worker.context import Context

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_decode = msgspec.json.Decoder(ShellCommand).decode
_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True)
class ShellHandler:
    """Runs the commands of the tenants that the operator allows to."""

    tenants: Collection[str]
    output_bytes: int

    def handler(self) -> Handler:
        doc = "Runs a command of the operating system: argv, or script."
        schema = msgspec.json.schema(ShellCommand)
        return Handler(HANDLER, POOL, self.call, Mode.ASYNC, _decode, _encode, schema, doc=doc)

    async def call(self, ctx: Context, command: ShellCommand) -> Any:
        if ctx.tenant not in self.tenants:
            allowed = ", ".join(sorted(self.tenants)) or "none"
            raise DoNotRetry(
                f"tenant {ctx.tenant!r} may not run commands; the operator allows: {allowed} (shell.tenants)"
            )
        _require_one_form(command)
        user = _user()
        cwd = command.cwd if command.cwd is not None else user["HOME"]
        environment = {**user, **_of_run(ctx), **command.env}
        return await run_command(command, environment, cwd, self.output_bytes, partial(_keep, ctx))


def _keep(ctx: Context, name: str, output: Tail) -> None:
    """Keep the end of an output with the log lines of the attempt. The log of the worker does not get it."""
    if text := output.text.rstrip("\n"):
        dropped = f", the first {output.dropped} bytes are left out" if output.dropped else ""
        ctx.logger.keep(logging.INFO, f"{name}{dropped}:\n{text}")


def _require_one_form(command: ShellCommand) -> None:
    if (command.argv is None) == (command.script is None):
        raise DoNotRetry("the payload of shell.run needs either argv or script")
    texts = (*command.words, *command.env, *command.env.values(), command.cwd or "")
    if any("\0" in text for text in texts) or any("=" in name or not name for name in command.env):
        raise DoNotRetry(
            "argv, script, env and cwd must have no NUL; names in env must have no = and must not be empty"
        )


def _user() -> dict[str, str]:
    """Return the environment of the user that runs this process, as a login would have it."""
    try:
        entry = pwd.getpwuid(os.getuid())
        name, home = entry.pw_name, entry.pw_dir
    except KeyError:
        name, home = str(os.getuid()), "/"
    return {"PATH": PATH, "HOME": home, "USER": name, "LOGNAME": name, "SHELL": DEFAULT_SHELL, "LANG": "C.UTF-8"}


def _of_run(ctx: Context) -> dict[str, str]:
    return {
        "RUN_JOB_ID": ctx.job_id,
        "RUN_JOB_NAME": ctx.job_name or "",
        "RUN_EXECUTION_ID": ctx.execution_id,
        "RUN_ATTEMPT": str(ctx.attempt),
        "RUN_SCHEDULED_AT": ctx.scheduled_at.isoformat(),
    }
