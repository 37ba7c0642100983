"""What whoever starts a cluster reads: where to look, a first job, and how to go on."""

import getpass
import shlex
import time
from collections.abc import Sequence
from pathlib import Path

from servers.project import ROOT

from cluster.members import NOONDAY, ROLES, Member, Members
from cluster.place import FOLDER, SCRIPT, Place
from noonday.api.auth import mint

DAY_SEC = 86_400
FIRST_JOB = '{"type":"ONE_TIME","target":{"pool":"demo","handler":"demo.echo"},"payload":"hello"}'


def greeting(members: Members) -> str:
    first, second = members.members[:2]
    return "\n".join(
        [
            f"A cluster of {len(ROLES)} processes is running.",
            "",
            *_rows([("role", "pid", "metrics", "log"), *(_row(member) for member in members.members)]),
            "",
            f"API   {first.url} and {second.url}",
            f"docs  {first.url}/docs",
            "      /healthz and /readyz are beside each /metrics",
            "",
            "Create a first job:",
            "",
            _curl(first, token(members.place, "write")),
            "",
            "and see what became of it, in another terminal:",
            "",
            f'eval "$({command(members.place, "env")})"',
            f"{_short(NOONDAY)} job list",
            f"{_short(NOONDAY)} top",
            "",
        ]
    )


def status(members: Members) -> tuple[str, bool]:
    """A table, and whether all is well."""
    holder = members.place.holder()
    states = [_state(member) for member in members.members]
    rows = [("role", "port", "pid", "state")]
    for member, state in zip(members.members, states, strict=True):
        rows.append((member.name, str(member.port), str(member.daemon.pid or "-"), state))
    watched = f"watched by process {holder}" if holder else "nobody watches over them"
    return "\n".join([*_rows(rows), watched]), holder is not None and set(states) == {"ready"}


def exports(place: Place) -> str:
    """For a shell: what programs, the command line, and further workers need."""
    port = place.settings()["port"]
    values = {
        "NOONDAY_URL": f"http://127.0.0.1:{port}",
        "NOONDAY_TOKEN": token(place, "admin"),
        "NOONDAY_CONFIG": str(place.config),
    }
    return "\n".join(f"export {name}={shlex.quote(value)}" for name, value in values.items())


def command(place: Place, word: str) -> str:
    """How this script is asked about this cluster."""
    usual = place.folder == FOLDER
    return f"{_short(SCRIPT)} {word}" + ("" if usual else f" --folder {shlex.quote(str(place.folder))}")


def token(place: Place, scope: str) -> str:
    return mint(
        place.settings()["auth"]["secret"],
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
    words = ["curl", "-sS", *(word for header in headers for word in ("-H", header))]
    return shlex.join([*words, "-d", FIRST_JOB, f"{member.url}/v1/jobs"])


def _rows(rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _short(path: Path) -> str:
    """As it would be typed by whoever is in the project's folder."""
    inside = Path.cwd() == ROOT and path.is_relative_to(ROOT)
    return str(path.relative_to(ROOT) if inside else path)
