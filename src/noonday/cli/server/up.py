"""The whole system in one process, and its messages."""

import asyncio
import shlex
import sys
from pathlib import Path

import click
from rich.text import Text

from noonday import __version__
from noonday.cli.client import TENANT
from noonday.cli.screen import show
from noonday.cli.server.local import create_token, user
from noonday.cli.tables import facts
from noonday.drivers.sqlite.connection import MEMORY
from noonday.sdk.loading import load_app
from noonday.sdk.registry import Registry
from noonday.wiring.engine_thread import new_event_loop
from noonday.wiring.handler_logs import show_handler_logs
from noonday.wiring.server import ServerInfo, serve, with_demo
from noonday.wiring.settings import Settings
from noonday.wiring.telemetry import set_up_logs

DAY_SEC = 86_400


def run_embedded(settings: Settings, app: str | None) -> None:
    """Run the server with the application that `app` names, until a signal stops it."""
    set_up_logs(settings)
    registry = load_app(app) if app else None
    show_handler_logs(settings)
    greeting = _Greeting(settings, with_demo(registry))
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(serve(settings, registry, on_ready=greeting.ready, on_stopping=greeting.stopping))
    greeting.stopped()


class _Greeting:
    """Messages of `noonday up` at start and stop."""

    def __init__(self, settings: Settings, registry: Registry) -> None:
        self._settings = settings
        self._registry = registry

    def ready(self, serving: ServerInfo) -> None:
        where = str(Path(serving.data).absolute()) if serving.data != MEMORY else "in memory only"
        docs = f"{serving.url}/docs"
        handlers = self._handlers()
        show(
            Text(f"Noonday {__version__} is running", style="bold green"),
            "",
            facts(
                [
                    ("data", where),
                    ("API", serving.url),
                    ("docs", docs),
                    ("handlers", handlers),
                    ("shell", self._shell()),
                    ("outbox", _outbox(serving)),
                ]
            ),
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

    def _shell(self) -> str | None:
        shell = self._settings.shell
        if not shell.allow:
            return None
        return f"tenants {shell.tenants} may run any command as {user().removeprefix('cli:')} (shell.run in pool shell)"

    def _handlers(self) -> str:
        pools: dict[str, list[str]] = {}
        for pool, name in self._registry.handlers:
            pools.setdefault(pool, []).append(name)
        return "\n".join(f"{pool}: {', '.join(sorted(names))}" for pool, names in sorted(pools.items()))


def _outbox(serving: ServerInfo) -> str | None:
    if serving.outbox is None:
        return None
    return f"{serving.outbox}  No tenant has a provider account: notifications go to doubles, and reach nobody."


def _flags(serving: ServerInfo) -> str:
    """Return the flags that commands in another terminal need where the server differs from the defaults."""
    usual = Settings()
    url = "" if serving.url == f"http://{usual.host}:{usual.port}" else f" --url {serving.url}"
    return url + ("" if serving.data in (usual.data, MEMORY) else f" --data {shlex.quote(serving.data)}")


def first_job(serving: ServerInfo, *, shows_token: bool) -> str:
    """Return a shell command that creates a job.

    It contains a token only on a terminal: elsewhere a journal or a file would keep the token.
    """
    token = "TOKEN"
    if serving.auth.secret and not shows_token:
        data = "" if serving.data in (Settings().data, MEMORY) else f" --data {shlex.quote(serving.data)}"
        token = f"$(noonday token{data})"
    elif serving.auth.secret:
        token = create_token(serving.auth, serving.auth.secret, ["write"], DAY_SEC, tenant=TENANT)
    body = '{"type":"ONE_TIME","target":{"pool":"demo","handler":"demo.echo"},"payload":"hello"}'
    rest = shlex.join(["-H", "Content-Type: application/json", "-d", body, f"{serving.url}/v1/jobs"])
    # Double quotes let the shell run the command that creates a token.
    return f'curl -sS -H "Authorization: Bearer {token}" {rest}'
