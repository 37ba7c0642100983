"""`noonday up`: the whole system in one process."""

import asyncio
import shlex
import sys
from pathlib import Path
from typing import Any

import click
from rich.text import Text

from noonday import __version__
from noonday.cli.asking import TENANT, read_settings, user
from noonday.cli.group import Command
from noonday.cli.instants import now
from noonday.cli.screen import show
from noonday.cli.tables import facts
from noonday.crypto.tokens import mint
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
  noonday up                          run only the demo: demo.echo, demo.sleep and demo.fail in pool demo
  noonday up shop.jobs:app            also run the handlers and jobs of `app` in shop/jobs.py
  noonday up --port 9000 --data /var/lib/noonday/noonday.db

`noonday settings` lists all other settings.
"""


@click.command(cls=Command, epilog=EXAMPLES)
@click.argument("app", required=False, metavar="[MODULE:APP]")
@click.option("--port", type=int, help="Port of the API; 0 picks a free port. [default: 8080]")
@click.option("--host", help="Address the API listens on. [default: 127.0.0.1]")
@click.option("--data", metavar="FILE", help="SQLite file; created if it does not exist. [default: noonday.db]")
@click.option(
    "--config", type=click.Path(dir_okay=False, path_type=Path), help="Settings file. [default: noonday.toml]"
)
@click.option("--log-level", help="Minimum log level: DEBUG, INFO, WARNING or ERROR. [default: WARNING]")
def up(app: str | None, config: Path | None, **flags: Any) -> None:
    """Run everything in one process.

    Runs the scheduler, the API, the handlers of your application, and a demo.

    APP is a Noonday() object in a module that is importable from the current directory. The first Ctrl-C lets running
    handlers finish; the second one ends them at once.
    """
    settings = read_settings(config, **flags)
    set_up_logs(settings)
    registry = load_app(app) if app else None
    greeting = _Greeting(settings, with_demo(registry))
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(serve(settings, registry, on_ready=greeting.ready, on_stopping=greeting.stopping))
    greeting.stopped()


class _Greeting:
    """Messages of `noonday up` at start and stop."""

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
            "Create a first job:"
            if serving.auth.secret
            else "Create a first job with a token of your identity provider:",
            "",
        )
        # Not wrapped, so that the command can be copied as one line.
        click.echo(first_job(serving, shows_token=sys.stdout.isatty()))
        show("", f"Then list the jobs in another terminal: noonday job list{_flags(serving)}")
        show("", Text("Stop with Ctrl-C.", style="dim"))
        sys.stdout.flush()

    def stopping(self) -> None:
        drain = f"running handlers have {self._settings.worker.drain_sec} s to finish"
        show(f"Stopping: {drain}; press Ctrl-C again to end them at once.")
        sys.stdout.flush()

    def stopped(self) -> None:
        show("Stopped.")

    def _handlers(self) -> str:
        pools: dict[str, list[str]] = {}
        for pool, name in self._registry.handlers:
            pools.setdefault(pool, []).append(name)
        return "\n".join(f"{pool}: {', '.join(sorted(names))}" for pool, names in sorted(pools.items()))


def _flags(serving: Serving) -> str:
    """Return the flags that commands in another terminal need where the server differs from the defaults."""
    usual = Settings()
    url = "" if serving.url == f"http://{usual.host}:{usual.port}" else f" --url {serving.url}"
    return url + ("" if serving.data in (usual.data, MEMORY) else f" --data {shlex.quote(serving.data)}")


def first_job(serving: Serving, *, shows_token: bool) -> str:
    """Return a shell command that creates a job.

    It contains a token only on a terminal: elsewhere a journal or a file would keep the token.
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
    # Double quotes let the shell run the command that creates a token.
    return f'curl -sS -H "Authorization: Bearer {token}" {rest}'
