"""`noonday serve` and `noonday worker`: processes of a cluster."""

import asyncio
import sys
from functools import partial
from pathlib import Path
from typing import Any

import click
from rich.text import Text

from noonday import __version__
from noonday.alerts.channels import CONCURRENCY
from noonday.cli.asking import read_settings
from noonday.cli.group import Command
from noonday.cli.screen import show
from noonday.cli.tables import facts
from noonday.model.errors import BadSettings, nearest
from noonday.model.pool import NOTICES_POOL
from noonday.sdk.loading import load_app
from noonday.sdk.registry import Registry
from noonday.webhooks import handler as webhooks
from noonday.wiring.application import new_event_loop
from noonday.wiring.cluster import Role
from noonday.wiring.cluster_server import serve_roles, serve_worker
from noonday.wiring.demo import demo
from noonday.wiring.settings import Settings
from noonday.wiring.telemetry import set_up_logs
from noonday.worker.parent_link import ParentLink

SERVE_EXAMPLES = """
Examples:
  noonday serve                                     run all three roles in one process
  noonday serve --roles api --port 8080
  noonday serve --roles scheduler,recorder --port 8081

Set the servers with NOONDAY_POSTGRES_URL, NOONDAY_REDIS_URL, NOONDAY_KAFKA_SERVERS and NOONDAY_ETCD_URLS, or in
noonday.toml. `noonday doctor` checks the servers; `noonday migrate` prepares the database.
"""
WORKER_EXAMPLES = """
Examples:
  noonday worker shop.jobs:app                      serve every pool that `app` has handlers for
  noonday worker shop.jobs:app --pool batch-etl --concurrency 50
  noonday worker --pool webhooks --pool notices     call the webhooks of tasks and send notices; needs no application
  noonday worker                                    run demo.echo, demo.sleep and demo.fail in pool demo

A worker needs Kafka and Redis, but no access to the database.
"""

_port = click.option(
    "--port", type=int, help="Port for health, metrics and the API; 0 picks a free port. [default: 8080]"
)
_host = click.option("--host", help="Address to listen on. [default: 127.0.0.1]")
_config = click.option(
    "--config",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Settings file. [default: noonday.toml]",
)
_log_level = click.option("--log-level", help="Minimum log level: DEBUG, INFO, WARNING or ERROR. [default: WARNING]")


@click.command(cls=Command, epilog=SERVE_EXAMPLES)
@click.option("--roles", default="api,scheduler,recorder", show_default=True, help="Roles of this process.")
@_port
@_host
@_config
@_log_level
def serve(roles: str, config: Path | None, **flags: Any) -> None:
    """Run cluster roles: the API, a scheduler, a recorder.

    Any number of processes may run each role. They share the work and take over from each other.
    """
    settings = read_settings(config, **flags)
    set_up_logs(settings)
    chosen = _roles(roles)
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(serve_roles(settings, chosen, lambda url: _ready(", ".join(chosen), url)))


@click.command(cls=Command, epilog=WORKER_EXAMPLES)
@click.argument("app", required=False, metavar="[MODULE:APP]")
@click.option("--pool", "pools", multiple=True, metavar="POOL", help="Serve only this pool; repeatable.")
@click.option("--concurrency", type=click.IntRange(1, 100_000), help="Maximum concurrent handlers per pool.")
@_port
@_host
@_config
@_log_level
def worker(app: str | None, pools: tuple[str, ...], concurrency: int | None, config: Path | None, **flags: Any) -> None:
    """Run the handlers of an application for a cluster.

    APP is a Noonday() object in a module that is importable from the current directory. The first Ctrl-C lets running
    handlers finish; the second one ends them at once.
    """
    settings = read_settings(config, **flags)
    set_up_logs(settings)
    registry = load_app(app) if app else demo
    handlers = {name: handler for name, handler in registry.handlers.items() if not pools or name[0] in pools}
    room = {pool: concurrency or _usual(pool, settings) for pool in _pools(registry, pools)}
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        served = ", ".join(f"{pool} ({slots})" for pool, slots in room.items())
        ready = partial(_ready, f"worker of {served}")
        parent = click.get_current_context().find_object(ParentLink)
        runner.run(serve_worker(settings, handlers, room, ready, parent))


def _usual(pool: str, settings: Settings) -> int:
    usual = {webhooks.POOL: settings.webhooks.concurrency or 1, NOTICES_POOL: CONCURRENCY}
    return usual.get(pool, settings.worker.concurrency)


def _roles(text: str) -> list[Role]:
    names = [name.strip().lower() for name in text.split(",") if name.strip()]
    known = [role.value for role in Role]
    for name in names:
        if name not in known:
            meant = nearest(name, known)
            raise BadSettings(
                f"--roles: unknown role {name!r}"
                + (f" (did you mean {meant}?)" if meant else "")
                + f"; choose from {', '.join(known)}. To run a worker, use `noonday worker`"
            )
    if not names:
        raise BadSettings(f"--roles: name at least one of {', '.join(known)}")
    return [Role(name) for name in dict.fromkeys(names)]


def _pools(registry: Registry, wanted: tuple[str, ...]) -> list[str]:
    there = sorted({pool for pool, _ in registry.handlers})
    if not there:
        raise BadSettings("this application has no handlers; register one with @app.handler")
    for pool in wanted:
        if pool not in (*there, webhooks.POOL, NOTICES_POOL):
            meant = nearest(pool, there)
            raise BadSettings(
                f"--pool: this application has no handler in pool {pool!r}"
                + (f" (did you mean {meant}?)" if meant else "")
                + f"; it has {', '.join(there)}"
            )
    return list(dict.fromkeys(wanted)) or there


def _ready(what: str, url: str) -> None:
    show(Text(f"Noonday {__version__} is running", style="bold green"), "", facts([("runs", what), ("url", url)]))
    sys.stdout.flush()
