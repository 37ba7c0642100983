"""`noonday serve` and `noonday worker`: processes of a cluster."""

from pathlib import Path
from typing import Any

import click

from noonday.cli.client import config_option, log_level_option
from noonday.cli.group import Command
from noonday.cli.needs import needs
from noonday.extras import Extra

SERVE_EXAMPLES = """
Examples:
  noonday serve                                     run all roles in one process
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


@click.command(cls=Command, epilog=SERVE_EXAMPLES)
@click.option("--roles", default="api,scheduler,recorder,remote", show_default=True, help="Roles of this process.")
@_port
@_host
@config_option
@log_level_option
@needs(Extra.CLUSTER)
def serve(roles: str, config: Path | None, **flags: Any) -> None:
    """Run cluster roles: the API, a scheduler, a recorder, and the server of remote workers (with the API).

    Any number of processes may run each role. They share the work and take over from each other.
    """
    from noonday.cli.server.local import read_settings
    from noonday.cli.server.serve import run_roles

    run_roles(read_settings(config, **flags), roles)


@click.command(cls=Command, epilog=WORKER_EXAMPLES)
@click.argument("app", required=False, metavar="[MODULE:APP]")
@click.option("--pool", "pools", multiple=True, metavar="POOL", help="Serve only this pool; repeatable.")
@click.option("--concurrency", type=click.IntRange(1, 100_000), help="Maximum concurrent handlers per pool.")
@_port
@_host
@config_option
@log_level_option
@needs(Extra.CLUSTER)
def worker(app: str | None, pools: tuple[str, ...], concurrency: int | None, config: Path | None, **flags: Any) -> None:
    """Run the handlers of an application for a cluster.

    APP is a Noonday() object in a module that is importable from the current directory. The first Ctrl-C lets running
    handlers finish; the second one ends them at once.
    """
    from noonday.cli.server.local import read_settings
    from noonday.cli.server.serve import run_worker

    run_worker(read_settings(config, **flags), app, pools, concurrency)
