"""The command `scripts/servers`."""

import argparse
import fcntl
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from servers import install as installation
from servers import project
from servers.errors import CannotInstall, ServerFailed, WrongUse
from servers.postgres import Postgres
from servers.project import Theirs
from servers.server import Server

ABOUT = """\
Installs and runs the real servers that Noonday's tests, benchmarks and cluster use: PostgreSQL, Redis, etcd, Kafka.
They listen on 127.0.0.1 only, on ports of their own, and keep their data in var/servers. Versions and ports are in
servers/versions.toml."""
MORE = """\
A server of your own is used instead of ours when one of these is set; it is only asked whether it answers:
  NOONDAY_POSTGRES_URL  NOONDAY_REDIS_URL  NOONDAY_ETCD_URLS  NOONDAY_KAFKA_SERVERS"""
AsWritten = argparse.RawDescriptionHelpFormatter
COMMANDS = {
    "install": "fetch what is missing",
    "start": "start what does not run, wait until it answers, print the URLs",
    "stop": "stop what runs; the data stay",
    "status": "show what runs, where, and how much it stores",
    "wipe": "stop and delete the data",
    "env": 'print the URLs for a shell: eval "$(scripts/servers env)"',
}


def main(arguments: Sequence[str] | None = None) -> int:
    chosen = _parser().parse_args(arguments)
    try:
        return int(globals()[f"_{chosen.command}"](chosen))
    except (CannotInstall, ServerFailed, WrongUse) as error:
        print(f"scripts/servers: {error}", file=sys.stderr)
        return 2 if isinstance(error, WrongUse) else 1
    except KeyboardInterrupt:
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("scripts/servers", description=ABOUT, epilog=MORE, formatter_class=AsWritten)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, does in COMMANDS.items():
        about = f"{does[0].upper()}{does[1:]}."
        command = commands.add_parser(name, help=does, description=about, epilog=MORE, formatter_class=AsWritten)
        only = f"some of {','.join(installation.SERVERS)}"
        command.add_argument("--only", type=_names, default=list(installation.SERVERS), metavar="NAMES", help=only)
        if name == "start":
            command.add_argument("--nodes", type=int, choices=(1, 3), help="of etcd and Kafka, at their first start")
    return parser


def _names(text: str) -> list[str]:
    names = list(dict.fromkeys(name.strip() for name in text.split(",")))
    if unknown := [name for name in names if name not in installation.SERVERS]:
        known = ", ".join(installation.SERVERS)
        raise argparse.ArgumentTypeError(f"there is no server {unknown[0]!r}; there are {known}")
    return names


def _install(chosen: argparse.Namespace) -> int:
    with _alone():
        began = time.monotonic()
        servers = project.servers(chosen.only)
        _check_theirs(servers)
        names = [server.name for server in servers if isinstance(server, Server)]
        whole = len(chosen.only) == len(installation.SERVERS)
        installation.install([*names, *(installation.TOOLS if whole else ())], _say)
        _say(f"installed: {', '.join(names) or 'nothing'} ({time.monotonic() - began:.1f} s)")
    return 0


def _start(chosen: argparse.Namespace) -> int:
    with _alone():
        servers = project.servers(chosen.only, chosen.nodes)
        _check_theirs(servers)
        _on_each(_start_one, [server for server in servers if isinstance(server, Server)])
    for server in servers:
        print(f"{project.VARIABLES[server.name]}={server.masked_url if isinstance(server, Theirs) else server.url}")
    return 0


def _on_each(work: Callable[[Server], None], servers: Sequence[Server]) -> None:
    """Side by side, to the end of all, whichever fails."""
    with ThreadPoolExecutor(len(installation.SERVERS)) as pool:
        ends = [pool.submit(work, server) for server in servers]
    if failures := [str(error) for end in ends if (error := end.exception())]:
        raise ServerFailed("\n".join(failures))


def _start_one(server: Server) -> None:
    if missing := installation.missing_packages(server.name):
        raise CannotInstall(f"{server.name} is not installed ({' '.join(missing)}): scripts/servers install")
    began = time.monotonic()
    ran = server.running
    server.start()
    _say(f"{server.name}: {'ran already' if ran else f'ready after {time.monotonic() - began:.1f} s'}")
    if isinstance(server, Postgres) and server.data.parent != server.base:
        _say(f"{server.name}: its data are in {server.data}, for the user postgres may not enter {server.base}")


def _stop(chosen: argparse.Namespace) -> int:
    with _alone():
        _on_each(_stop_one, _mine(chosen))
    return 0


def _stop_one(server: Server) -> None:
    ran = any(daemon.pid is not None for daemon in server.daemons)
    if not ran:
        _say(f"{server.name}: did not run")
    elif server.stop():
        _say(f"{server.name}: stopped")
    else:
        _say(f"{server.name}: killed, since it did not stop when asked")


def _wipe(chosen: argparse.Namespace) -> int:
    with _alone():
        _on_each(_wipe_one, _mine(chosen))
    return 0


def _wipe_one(server: Server) -> None:
    server.wipe()
    _say(f"{server.name}: data deleted")


def _env(chosen: argparse.Namespace) -> int:
    for server in project.servers(chosen.only):
        print(f"export {project.VARIABLES[server.name]}={shlex.quote(server.url)}")
    return 0


def _status(chosen: argparse.Namespace) -> int:
    rows: list[tuple[str, ...]] = [("server", "version", "port", "pid", "state", "data")]
    for server in project.servers(chosen.only):
        rows += _their_rows(server) if isinstance(server, Theirs) else _our_rows(server)
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    return 0


def _their_rows(server: Theirs) -> Iterator[tuple[str, ...]]:
    state = "up" if server.answers() else "down"
    for address in server.addresses:
        yield server.name, "yours", f"{address.host}:{address.port}", "-", state, "-"


def _our_rows(server: Server) -> Iterator[tuple[str, ...]]:
    version = installation.installed_version(server.name) or "not installed"
    for index, daemon in enumerate(server.daemons):
        state = "down" if daemon.pid is None else "up" if server.answers(index) else "silent"
        folders = server.folders if len(server.daemons) == 1 else [daemon.folder]
        port = str(server.ports[index][0])
        yield server.name, version, port, str(daemon.pid or "-"), state, _size(folders)


def _size(folders: Sequence[Path]) -> str:
    mib = sum(_blocks(path) for folder in folders for path in [folder, *folder.rglob("*")]) / 2**20
    return "-" if not mib else f"{mib:.0f} MB" if mib >= 1 else "< 1 MB"


def _blocks(path: Path) -> int:
    try:
        return path.lstat().st_blocks * 512
    except OSError:
        return 0


def _mine(chosen: argparse.Namespace) -> list[Server]:
    return [server for server in project.servers(chosen.only) if isinstance(server, Server)]


def _check_theirs(servers: Sequence[Server | Theirs]) -> None:
    for server in servers:
        if isinstance(server, Theirs):
            if not server.answers():
                raise ServerFailed(f"{server.name}: yours does not answer ({project.VARIABLES[server.name]} names it)")
            _say(f"{server.name}: yours, and it answers")


@contextmanager
def _alone() -> Iterator[None]:
    """One at a time: two that start the same server would get in each other's way."""
    project.FOLDER.mkdir(parents=True, exist_ok=True)
    with (project.FOLDER / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _say("waiting for another scripts/servers to finish")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
