"""Texts that `scripts/cluster` prints: the greeting, the status table and the exports for a shell."""

import getpass
import shlex
import time
from collections.abc import Sequence
from pathlib import Path

from servers.project import ROOT

from cluster.folder import FOLDER, SCRIPT, ClusterFolder
from cluster.members import NOONDAY, ROLES, Member, Members
from noonday.crypto.tokens import mint

DAY_SEC = 86_400
FIRST_JOB = '{"type":"ONE_TIME","target":{"pool":"demo","handler":"demo.echo"},"payload":"hello"}'


def greeting(members: Members) -> str:
    first, second = members.members[:2]
    return "\n".join(
        [
            f"The cluster is running, with {len(ROLES)} processes.",
            "",
            *_rows([("role", "pid", "metrics", "log"), *(_row(member) for member in members.members)]),
            "",
            f"API   {first.url} and {second.url}",
            f"docs  {first.url}/docs",
            "      each process also serves /healthz and /readyz",
            "",
            "Create a job:",
            "",
            _curl(first, token(members.folder, "write")),
            "",
            "Show it in another terminal:",
            "",
            f'eval "$({command(members.folder, "env")})"',
            f"{_short(NOONDAY)} job list",
            f"{_short(NOONDAY)} top",
            "",
        ]
    )


def status(members: Members) -> tuple[str, bool]:
    """Return the status table, and whether all processes are ready and supervised."""
    holder = members.folder.holder()
    states = [_state(member) for member in members.members]
    rows = [("role", "port", "pid", "state")]
    for member, state in zip(members.members, states, strict=True):
        rows.append((member.name, str(member.port), str(member.daemon.pid or "-"), state))
    supervision = (
        f"supervised by process {holder}" if holder else "not supervised: a process that dies is not restarted"
    )
    return "\n".join([*_rows(rows), supervision]), holder is not None and set(states) == {"ready"}


def exports(folder: ClusterFolder) -> str:
    """Return shell exports for programs, the command line and further workers."""
    port = folder.settings()["port"]
    values = {
        "NOONDAY_URL": f"http://127.0.0.1:{port}",
        "NOONDAY_TOKEN": token(folder, "admin"),
        "NOONDAY_CONFIG": str(folder.config),
    }
    return "\n".join(f"export {name}={shlex.quote(value)}" for name, value in values.items())


def command(folder: ClusterFolder, name: str) -> str:
    """Return the `scripts/cluster` command line for this cluster."""
    is_default = folder.path == FOLDER
    return f"{_short(SCRIPT)} {name}" + ("" if is_default else f" --folder {shlex.quote(str(folder.path))}")


def token(folder: ClusterFolder, scope: str) -> str:
    return mint(
        folder.settings()["auth"]["secret"],
        tenant="default",
        subject=f"cli:{getpass.getuser()}",
        scopes=[scope],
        ttl_seconds=DAY_SEC,
        now=time.time(),
    )


def _row(member: Member) -> tuple[str, ...]:
    return member.name, str(member.daemon.pid or "-"), f"{member.url}/metrics", _short(member.daemon.log)


def _state(member: Member) -> str:
    if member.daemon.pid is None:
        return "down"
    return member.why_not_ready() or "ready"


def _curl(member: Member, bearer: str) -> str:
    headers = (f"Authorization: Bearer {bearer}", "Content-Type: application/json")
    arguments = ["curl", "-sS", *(argument for header in headers for argument in ("-H", header))]
    return shlex.join([*arguments, "-d", FIRST_JOB, f"{member.url}/v1/jobs"])


def _rows(rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _short(path: Path) -> str:
    """Return the path relative to the project, if that is the working directory."""
    inside = Path.cwd() == ROOT and path.is_relative_to(ROOT)
    return str(path.relative_to(ROOT) if inside else path)
