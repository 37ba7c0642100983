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
from servers.project import ExternalServer
from servers.server import Server

ABOUT = """\
Installs and runs the servers that Noonday's tests, benchmarks and cluster use: PostgreSQL, Redis, etcd and Kafka.
They listen on 127.0.0.1 only, on nonstandard ports, and keep their data in var/servers. servers/versions.toml lists
their versions and ports."""
EPILOG = """\
To use your own server instead, set one of these variables. scripts/servers then only checks that it responds:
  NOONDAY_POSTGRES_URL  NOONDAY_REDIS_URL  NOONDAY_ETCD_URLS  NOONDAY_KAFKA_SERVERS"""
Formatter = argparse.RawDescriptionHelpFormatter
COMMANDS = {
    "install": "install missing servers",
    "start": "start the servers, wait until they respond, print their URLs",
    "stop": "stop the servers; keep their data",
    "status": "list the servers with version, port, state and size of data",
    "wipe": "stop the servers and delete their data",
    "env": 'print the URLs for a shell: eval "$(scripts/servers env)"',
}


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    try:
        return int(globals()[f"_{options.command}"](options))
    except (CannotInstall, ServerFailed, WrongUse) as error:
        print(f"scripts/servers: {error}", file=sys.stderr)
        return 2 if isinstance(error, WrongUse) else 1
    except KeyboardInterrupt:
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("scripts/servers", description=ABOUT, epilog=EPILOG, formatter_class=Formatter)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, summary in COMMANDS.items():
        about = f"{summary[0].upper()}{summary[1:]}."
        command = commands.add_parser(name, help=summary, description=about, epilog=EPILOG, formatter_class=Formatter)
        only = f"servers, separated by commas, out of {','.join(installation.SERVERS)}"
        command.add_argument("--only", type=_names, default=list(installation.SERVERS), metavar="NAMES", help=only)
        if name == "start":
            command.add_argument(
                "--nodes", type=int, choices=(1, 3), help="nodes of etcd and of Kafka, at their first start [1]"
            )
    return parser


def _names(text: str) -> list[str]:
    names = list(dict.fromkeys(name.strip() for name in text.split(",")))
    if unknown := [name for name in names if name not in installation.SERVERS]:
        known = ", ".join(installation.SERVERS)
        raise argparse.ArgumentTypeError(f"unknown server {unknown[0]!r}; the servers are {known}")
    return names


def _install(options: argparse.Namespace) -> int:
    with _exclusive():
        began = time.monotonic()
        servers = project.servers(options.only)
        _check_external(servers)
        names = [server.name for server in servers if isinstance(server, Server)]
        all_servers = len(options.only) == len(installation.SERVERS)
        installation.install([*names, *(installation.TOOLS if all_servers else ())], _say)
        _say(f"installed: {', '.join(names) or 'nothing'} ({time.monotonic() - began:.1f} s)")
    return 0


def _start(options: argparse.Namespace) -> int:
    with _exclusive():
        servers = project.servers(options.only, options.nodes)
        _check_external(servers)
        _on_each(_start_one, [server for server in servers if isinstance(server, Server)])
    for server in servers:
        print(
            f"{project.VARIABLES[server.name]}={server.masked_url if isinstance(server, ExternalServer) else server.url}"
        )
    return 0


def _on_each(work: Callable[[Server], None], servers: Sequence[Server]) -> None:
    """Run `work` for all servers in parallel, and wait for all of them. Raises ServerFailed if one fails."""
    with ThreadPoolExecutor(len(installation.SERVERS)) as pool:
        ends = [pool.submit(work, server) for server in servers]
    if failures := [str(error) for end in ends if (error := end.exception())]:
        raise ServerFailed("\n".join(failures))


def _start_one(server: Server) -> None:
    if missing := installation.missing_packages(server.name):
        raise CannotInstall(
            f"{server.name} is not installed (missing: {' '.join(missing)}): run scripts/servers install"
        )
    began = time.monotonic()
    was_running = server.running
    server.start()
    _say(f"{server.name}: {'already running' if was_running else f'ready after {time.monotonic() - began:.1f} s'}")
    if isinstance(server, Postgres) and server.data.parent != server.base:
        _say(f"{server.name}: the data are in {server.data}, because the user postgres cannot enter {server.base}")


def _stop(options: argparse.Namespace) -> int:
    with _exclusive():
        _on_each(_stop_one, _own_servers(options))
    return 0


def _stop_one(server: Server) -> None:
    was_running = any(daemon.pid is not None for daemon in server.daemons)
    if not was_running:
        _say(f"{server.name}: was not running")
    elif server.stop():
        _say(f"{server.name}: stopped")
    else:
        _say(f"{server.name}: killed, because it did not stop in time")


def _wipe(options: argparse.Namespace) -> int:
    with _exclusive():
        _on_each(_wipe_one, _own_servers(options))
    return 0


def _wipe_one(server: Server) -> None:
    server.wipe()
    _say(f"{server.name}: data deleted")


def _env(options: argparse.Namespace) -> int:
    for server in project.servers(options.only):
        print(f"export {project.VARIABLES[server.name]}={shlex.quote(server.url)}")
    return 0


def _status(options: argparse.Namespace) -> int:
    rows: list[tuple[str, ...]] = [("server", "version", "port", "pid", "state", "data")]
    for server in project.servers(options.only):
        rows += _external_rows(server) if isinstance(server, ExternalServer) else _own_rows(server)
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    return 0


def _external_rows(server: ExternalServer) -> Iterator[tuple[str, ...]]:
    state = "up" if server.answers() else "down"
    for address in server.addresses:
        yield server.name, "yours", f"{address.host}:{address.port}", "-", state, "-"


def _own_rows(server: Server) -> Iterator[tuple[str, ...]]:
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


def _own_servers(options: argparse.Namespace) -> list[Server]:
    return [server for server in project.servers(options.only) if isinstance(server, Server)]


def _check_external(servers: Sequence[Server | ExternalServer]) -> None:
    for server in servers:
        if isinstance(server, ExternalServer):
            if not server.answers():
                variable = project.VARIABLES[server.name]
                raise ServerFailed(f"{server.name}: your own server does not respond: start it, or unset {variable}")
            _say(f"{server.name}: your own server responds")


@contextmanager
def _exclusive() -> Iterator[None]:
    """Wait for other `scripts/servers` commands: two of them must not start the same server."""
    project.FOLDER.mkdir(parents=True, exist_ok=True)
    with (project.FOLDER / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _say("waiting for another scripts/servers command to finish")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
