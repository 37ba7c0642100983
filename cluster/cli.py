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

from cluster.greeting import command, exports, greeting, status
from cluster.members import NOONDAY, PATIENCE_SEC, ROLES, STOP_SEC, ClusterFailed, Members, PortsTaken
from cluster.place import FOLDER, AlreadyRuns, Place
from cluster.supervisor import supervise
from servers import Command, Daemon, ServerFailed, eventually, urls

ABOUT = f"""\
Runs a whole cluster on this machine: PostgreSQL, Redis, etcd and Kafka (scripts/servers), and {len(ROLES)} processes:
{", ".join(ROLES)}.
Each has a port of its own, from PORT on, and its log in var/cluster. Ctrl-C stops all; whatever dies is started again."""
COMMANDS = {
    "run": "start it, watch over it, stop it at Ctrl-C",
    "start": "the same in the background; returns when all is ready",
    "stop": "stop it; the servers go on",
    "status": "show what runs; ends with 1 if anything is not ready",
    "env": 'print what the command line needs, for a shell: eval "$(scripts/cluster env)"',
}
DEFAULT_PORT = 8080


def main(arguments: Sequence[str] | None = None) -> int:
    chosen = _parser().parse_args(arguments)
    place = Place(chosen.folder.absolute())
    try:
        return int(globals()[f"_{chosen.command}"](place, chosen))
    except (AlreadyRuns, ClusterFailed, PortsTaken, ServerFailed) as error:
        _say(f"scripts/cluster: {error}")
        return 1
    except KeyboardInterrupt:
        return 130


def _parser() -> argparse.ArgumentParser:
    as_written = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser("scripts/cluster", description=ABOUT, formatter_class=as_written)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, does in COMMANDS.items():
        command = commands.add_parser(name, help=does, description=f"{does[0].upper()}{does[1:]}.")
        command.add_argument("--folder", type=Path, default=FOLDER, help="of its settings and logs [var/cluster]")
        if name in ("run", "start"):
            command.add_argument("--port", type=int, default=DEFAULT_PORT, help="the first of its ports [8080]")
            command.add_argument("--name", type=_name, default="noonday", help="two on the same servers differ in it")
    return parser


def _name(text: str) -> str:
    if not re.fullmatch(r"[a-z][a-z0-9-]{0,39}", text):
        raise argparse.ArgumentTypeError("a letter, then lower-case letters, digits and hyphens, 40 at most")
    return text


def _run(place: Place, chosen: argparse.Namespace) -> int:
    with place.held():
        members = Members(place, chosen.port)
        members.stop()  # what was left over by a run that was killed
        members.check_ports()
        _start_servers()
        place.prepare(chosen.name, chosen.port, urls())
        _migrate(place)
        _say(f"starting {len(ROLES)} processes")
        supervise(members, lambda: print(greeting(members), "Stop with Ctrl-C.", sep="\n", flush=True), _say)
    return 0


def _start(place: Place, chosen: argparse.Namespace) -> int:
    with place.held():
        members = Members(place, chosen.port)
        members.stop()
        members.check_ports()
        _start_servers()
    daemon = _run_behind(place, chosen)

    def ready() -> bool:
        return daemon.pid is None or not any(member.why_not_ready() for member in members.members)

    if not eventually(ready, PATIENCE_SEC) or daemon.pid is None:
        raise ClusterFailed(f"it did not start; the end of {daemon.log}:\n{daemon.tail(40)}")
    print(greeting(members), f"Stop with: {command(place, 'stop')}", sep="\n")
    return 0


def _run_behind(place: Place, chosen: argparse.Namespace) -> Daemon:
    daemon = Daemon(place.folder / "supervisor")
    words = ["run", "--folder", str(place.folder), "--port", str(chosen.port), "--name", chosen.name]
    daemon.spawn(Command([sys.executable, "-P", "-u", "-m", "cluster", *words], env={"PYTHONPATH": str(ROOT)}))
    return daemon


def _stop(place: Place, chosen: argparse.Namespace) -> int:
    holder = place.holder()
    if holder:
        os.kill(holder, signal.SIGTERM)
        if not eventually(lambda: place.holder() is None, 2 * STOP_SEC + 10):
            raise ClusterFailed(f"process {holder} does not end")
    if place.config.exists():
        _members(place).stop()
    _say("stopped; the servers go on (scripts/servers stop)" if holder else "it did not run")
    return 0


def _status(place: Place, chosen: argparse.Namespace) -> int:
    table, well = status(_members(place))
    print(table)
    return 0 if well else 1


def _env(place: Place, chosen: argparse.Namespace) -> int:
    _members(place)
    print(exports(place))
    return 0


def _members(place: Place) -> Members:
    """Of a cluster that was started before."""
    if not place.config.exists():
        raise ClusterFailed(f"there is no cluster in {place.folder} yet: scripts/cluster start")
    return Members(place, place.settings()["port"])


def _start_servers() -> None:
    for step in ("install", "start"):
        words = [str(ROOT / "scripts" / "servers"), step]
        if subprocess.run(words, env={**os.environ, "PYTHON": sys.executable}, stdout=subprocess.DEVNULL).returncode:
            raise ClusterFailed(f"scripts/servers {step} failed; see above")


def _migrate(place: Place) -> None:
    _say(Command([str(NOONDAY), "migrate"], env=place.environment()).run().strip())


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
