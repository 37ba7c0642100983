"""The command `scripts/cluster`."""

import argparse
import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from servers.project import ROOT

from cluster.folder import FOLDER, AlreadyRuns, ClusterFolder
from cluster.greeting import command, exports, greeting, status
from cluster.members import NOONDAY, PATIENCE_SEC, ROLES, STOP_SEC, ClusterFailed, Members, PortsTaken
from cluster.supervisor import STOPPED, supervise
from servers import Command, Daemon, ServerFailed, eventually, urls

ABOUT = f"""\
Runs a whole cluster on this machine: PostgreSQL, Redis, etcd and Kafka (scripts/servers), and {len(ROLES)} processes:
{", ".join(ROLES)}.
The processes listen on consecutive ports from PORT on and log to var/cluster. A process that dies is restarted.
Ctrl-C stops all processes."""
COMMANDS = {
    "run": "run the cluster until Ctrl-C",
    "start": "start the cluster in the background; returns when all processes are ready",
    "stop": "stop the cluster; the servers keep running",
    "status": "list the processes; exits with 1 if one is not ready",
    "env": 'print URL, token and settings file for a shell: eval "$(scripts/cluster env)"',
}
DEFAULT_PORT = 8080


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    folder = ClusterFolder(options.folder.absolute())
    try:
        return int(globals()[f"_{options.command}"](folder, options))
    except (AlreadyRuns, ClusterFailed, PortsTaken, ServerFailed) as error:
        _say(f"scripts/cluster: {error}")
        return 1
    except KeyboardInterrupt:
        return 130


def _parser() -> argparse.ArgumentParser:
    formatter = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser("scripts/cluster", description=ABOUT, formatter_class=formatter)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, summary in COMMANDS.items():
        command = commands.add_parser(name, help=summary, description=f"{summary[0].upper()}{summary[1:]}.")
        command.add_argument("--folder", type=Path, default=FOLDER, help="folder for settings and logs [var/cluster]")
        if name in ("run", "start"):
            command.add_argument("--port", type=int, default=DEFAULT_PORT, help="first port of the processes [8080]")
            command.add_argument(
                "--name", type=_name, default="noonday", help="cluster name; must be unique on its servers [noonday]"
            )
    return parser


def _name(text: str) -> str:
    if not re.fullmatch(r"[a-z][a-z0-9-]{0,39}", text):
        raise argparse.ArgumentTypeError(
            "must begin with a letter and contain only lower-case letters, digits and hyphens, at most 40 characters"
        )
    return text


def _run(folder: ClusterFolder, options: argparse.Namespace) -> int:
    with folder.locked():
        members = Members(folder, options.port)
        members.stop()  # processes of an earlier run that was killed
        members.check_ports()
        _start_servers()
        folder.prepare(options.name, options.port, urls())
        _migrate(folder)
        _say(f"starting {len(ROLES)} processes")
        supervise(members, lambda: print(greeting(members), "Press Ctrl-C to stop.", sep="\n", flush=True), _say)
    return 0


def _start(folder: ClusterFolder, options: argparse.Namespace) -> int:
    with folder.locked():
        members = Members(folder, options.port)
        members.stop()
        members.check_ports()
        _start_servers()
    daemon = _run_in_background(folder, options)

    def ready() -> bool:
        return daemon.pid is None or not any(member.why_not_ready() for member in members.members)

    if not eventually(ready, PATIENCE_SEC) or daemon.pid is None:
        raise ClusterFailed(f"the cluster did not start; last lines of {daemon.log}:\n{daemon.tail(40)}")
    print(greeting(members), f"To stop it: {command(folder, 'stop')}", sep="\n")
    return 0


def _run_in_background(folder: ClusterFolder, options: argparse.Namespace) -> Daemon:
    daemon = Daemon(folder.path / "supervisor")
    arguments = ["run", "--folder", str(folder.path), "--port", str(options.port), "--name", options.name]
    daemon.spawn(Command([sys.executable, "-P", "-u", "-m", "cluster", *arguments], env={"PYTHONPATH": str(ROOT)}))
    return daemon


def _stop(folder: ClusterFolder, options: argparse.Namespace) -> int:
    holder = folder.holder()
    if holder:
        os.kill(holder, signal.SIGTERM)
        if not eventually(lambda: folder.holder() is None, 2 * STOP_SEC + 10):
            raise ClusterFailed(f"process {holder} did not end within {2 * STOP_SEC + 10:g} s")
    if folder.config.exists():
        _members(folder).stop()
    _say(STOPPED if holder else "the cluster was not running")
    return 0


def _status(folder: ClusterFolder, options: argparse.Namespace) -> int:
    table, all_ready = status(_members(folder))
    print(table)
    return 0 if all_ready else 1


def _env(folder: ClusterFolder, options: argparse.Namespace) -> int:
    _members(folder)
    print(exports(folder))
    return 0


def _members(folder: ClusterFolder) -> Members:
    """Return the processes of a cluster that was started before."""
    if not folder.config.exists():
        raise ClusterFailed(f"no cluster was started in {folder.path}: run scripts/cluster start")
    return Members(folder, folder.settings()["port"])


def _start_servers() -> None:
    for step in ("install", "start"):
        arguments = [str(ROOT / "scripts" / "servers"), step]
        if subprocess.run(
            arguments, env={**os.environ, "PYTHON": sys.executable}, stdout=subprocess.DEVNULL
        ).returncode:
            raise ClusterFailed(f"scripts/servers {step} failed; its messages are above")


def _migrate(folder: ClusterFolder) -> None:
    _say(Command([str(NOONDAY), "migrate"], env=folder.environment()).run().strip())


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
