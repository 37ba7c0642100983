"""`noonday up`: all of it in one process."""

import asyncio
import shlex
import sys
from pathlib import Path
from typing import Any

import click
from rich.text import Text

from noonday import __version__
from noonday.api.auth import mint
from noonday.cli.asking import TENANT, read_settings, user
from noonday.cli.group import Command
from noonday.cli.instants import now
from noonday.cli.screen import show
from noonday.cli.tables import facts
from noonday.drivers.sqlite.connection import MEMORY
from noonday.sdk.loading import load_app
from noonday.sdk.registry import Registry
from noonday.wiring.application import new_event_loop
from noonday.wiring.server import Serving, serve, with_demo
from noonday.wiring.settings import Settings
from noonday.wiring.telemetry import set_up_logs

DAY_SEC = 86_400

EXAMPLES = """
Examples:
  noonday up                          only the demo: demo.echo, demo.sleep and demo.fail in pool demo
  noonday up shop.jobs:app            the handlers and jobs of `app` in shop/jobs.py as well
  noonday up --port 9000 --data /var/lib/noonday/noonday.db

All other settings: `noonday settings`.
"""


@click.command(cls=Command, epilog=EXAMPLES)
@click.argument("app", required=False, metavar="[MODULE:APP]")
@click.option("--port", type=int, help="Port of the API; 0 takes a free one. [default: 8080]")
@click.option("--host", help="Address the API listens on. [default: 127.0.0.1]")
@click.option("--data", metavar="FILE", help="The SQLite file; made if it does not exist. [default: noonday.db]")
@click.option("--config", type=click.Path(dir_okay=False, path_type=Path), help="[default: noonday.toml]")
@click.option("--log-level", help="The least that is logged: DEBUG, INFO, WARNING, ERROR. [default: WARNING]")
def up(app: str | None, config: Path | None, **flags: Any) -> None:
    """Run everything in one process.

    That is the scheduler, the API, the handlers of your application, and a demo.

    APP is a Noonday() in a module that can be imported from here. The first Ctrl-C lets running handlers finish, the
    second one does not.
    """
    settings = read_settings(config, **flags)
    set_up_logs(settings)
    registry = load_app(app) if app else None
    greeting = _Greeting(settings, with_demo(registry))
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(serve(settings, registry, on_ready=greeting.ready, on_stopping=greeting.stopping))
    greeting.stopped()


class _Greeting:
    """What whoever started it reads."""

    def __init__(self, settings: Settings, registry: Registry) -> None:
        self._settings = settings
        self._registry = registry

    def ready(self, serving: Serving) -> None:
        where = str(Path(serving.data).absolute()) if serving.data != MEMORY else "in memory only"
        docs = f"{serving.url}/docs"
        handlers = self._handlers()
        show(
            Text(f"Noonday {__version__} is running", style="bold green"),
            "",
            facts([("data", where), ("API", serving.url), ("docs", docs), ("handlers", handlers)]),
            "",
            "Create a first job:" if serving.auth.secret else "Create a first job, with a token of your provider:",
            "",
        )
        # Not wrapped by us: a line that is copied must still be one line.
        click.echo(first_job(serving, shows_token=sys.stdout.isatty()))
        show("", f"and see what became of it, in another terminal: noonday job list{_flags(serving)}")
        show("", Text("Stop with Ctrl-C.", style="dim"))
        sys.stdout.flush()

    def stopping(self) -> None:
        drain = f"handlers that run may finish within {self._settings.worker.drain_sec} s"
        show(f"Stopping: {drain}; Ctrl-C again ends them at once.")
        sys.stdout.flush()

    def stopped(self) -> None:
        show("Stopped.")

    def _handlers(self) -> str:
        pools: dict[str, list[str]] = {}
        for pool, name in self._registry.handlers:
            pools.setdefault(pool, []).append(name)
        return "\n".join(f"{pool}: {', '.join(sorted(names))}" for pool, names in sorted(pools.items()))


def _flags(serving: Serving) -> str:
    """What commands in another terminal have to be told, if it is not the usual."""
    usual = Settings()
    url = "" if serving.url == f"http://{usual.host}:{usual.port}" else f" --url {serving.url}"
    return url + ("" if serving.data in (usual.data, MEMORY) else f" --data {shlex.quote(serving.data)}")


def first_job(serving: Serving, *, shows_token: bool) -> str:
    """A line for a shell that creates a job.

    With a token in it only for a terminal: elsewhere the line is kept, in a journal or a file, and the token would be too.
    """
    token = "TOKEN"
    if serving.auth.secret and not shows_token:
        data = "" if serving.data in (Settings().data, MEMORY) else f" --data {shlex.quote(serving.data)}"
        token = f"$(noonday token{data})"
    elif serving.auth.secret:
        token = mint(
            serving.auth.secret,
            tenant=TENANT,
            subject=user(),
            scopes=["write"],
            ttl_seconds=DAY_SEC,
            now=now().timestamp(),
            audience=serving.auth.audience,
            issuer=serving.auth.issuer,
        )
    body = '{"type":"ONE_TIME","target":{"pool":"demo","handler":"demo.echo"},"payload":"hello"}'
    rest = shlex.join(["-H", "Content-Type: application/json", "-d", body, f"{serving.url}/v1/jobs"])
    # In double quotes, so that a shell runs the command that makes a token.
    return f'curl -sS -H "Authorization: Bearer {token}" {rest}'
