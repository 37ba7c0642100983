"""Processes of a cluster, and their messages."""

import asyncio
import sys
from functools import partial

import click
from rich.text import Text

from noonday import __version__
from noonday.alerts.channels import CONCURRENCY
from noonday.cli.screen import show
from noonday.cli.tables import facts
from noonday.model.errors import BadSettings, nearest
from noonday.model.pool import NOTICES_POOL
from noonday.model.shell import POOL as SHELL_POOL
from noonday.sdk.loading import load_app
from noonday.sdk.registry import Registry
from noonday.webhooks import handler as webhooks
from noonday.wiring.cluster.node import Role
from noonday.wiring.cluster_server import serve_roles, serve_worker
from noonday.wiring.demo import demo
from noonday.wiring.engine_thread import new_event_loop
from noonday.wiring.handler_logs import show_handler_logs
from noonday.wiring.settings import Settings
from noonday.wiring.telemetry import set_up_logs
from noonday.worker.parent_link import ParentLink


def run_roles(settings: Settings, roles: str) -> None:
    """Run the roles, which are separated by commas, until a signal stops them."""
    set_up_logs(settings)
    chosen = _roles(roles)
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(serve_roles(settings, chosen, lambda url: _ready(", ".join(chosen), url)))


def run_worker(settings: Settings, app: str | None, pools: tuple[str, ...], concurrency: int | None) -> None:
    """Run the handlers of an application, or of the demo if `app` is None, until a signal stops them."""
    set_up_logs(settings)
    registry = load_app(app) if app else demo
    show_handler_logs(settings)
    handlers = {name: handler for name, handler in registry.handlers.items() if not pools or name[0] in pools}
    room = {pool: concurrency or _usual(pool, settings) for pool in _pools(registry, pools, settings)}
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        served = ", ".join(f"{pool} ({slots})" for pool, slots in room.items())
        ready = partial(_ready, f"worker of {served}")
        parent = click.get_current_context().find_object(ParentLink)
        runner.run(serve_worker(settings, handlers, room, ready, parent))


def _usual(pool: str, settings: Settings) -> int:
    usual = {
        webhooks.POOL: settings.webhooks.concurrency or 1,
        NOTICES_POOL: CONCURRENCY,
        SHELL_POOL: settings.shell.concurrency,
    }
    return usual.get(pool, settings.worker.concurrency)


def _roles(text: str) -> list[Role]:
    names = [name.strip().lower() for name in text.split(",") if name.strip()]
    known = [role.value for role in Role]
    for name in names:
        if name not in known:
            raise BadSettings(
                f"--roles: unknown role {name!r}{_hint(name, known)}; choose from {', '.join(known)}. "
                "To run a worker, use `noonday worker`"
            )
    if not names:
        raise BadSettings(f"--roles: name at least one of {', '.join(known)}")
    return [Role(name) for name in dict.fromkeys(names)]


def _pools(registry: Registry, wanted: tuple[str, ...], settings: Settings) -> list[str]:
    there = sorted({pool for pool, _ in registry.handlers})
    if not there:
        raise BadSettings("this application has no handlers; register one with @app.handler")
    if SHELL_POOL in wanted and SHELL_POOL not in there and not settings.shell.allow:
        raise BadSettings("--pool shell: commands are not allowed; set shell.allow (NOONDAY_SHELL_ALLOW=true)")
    for pool in wanted:
        if pool not in (*there, webhooks.POOL, NOTICES_POOL, SHELL_POOL):
            raise BadSettings(
                f"--pool: this application has no handler in pool {pool!r}{_hint(pool, there)}; it has {', '.join(there)}"
            )
    return list(dict.fromkeys(wanted)) or there


def _hint(name: str, known: list[str]) -> str:
    meant = nearest(name, known)
    return f" (did you mean {meant}?)" if meant else ""


def _ready(what: str, url: str) -> None:
    show(Text(f"Noonday {__version__} is running", style="bold green"), "", facts([("runs", what), ("url", url)]))
    sys.stdout.flush()
