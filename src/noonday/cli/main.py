"""The `noonday` command: its subcommands and exit codes."""

import click

from noonday import __version__
from noonday.cli import exits
from noonday.cli.group import LazyGroup

COMMANDS = {
    "up": "noonday.cli.up:up",
    "serve": "noonday.cli.serve:serve",
    "worker": "noonday.cli.serve:worker",
    "migrate": "noonday.cli.migrate:migrate",
    "job": "noonday.cli.jobs:job",
    "execution": "noonday.cli.executions:execution",
    "import": "noonday.cli.imports:import_",
    "task": "noonday.cli.tasks:task",
    "secret": "noonday.cli.secrets:secret",
    "endpoint": "noonday.cli.endpoints:endpoint",
    "alert": "noonday.cli.alerts:alert",
    "notification": "noonday.cli.notifications:notification",
    "user": "noonday.cli.users:user",
    "provider": "noonday.cli.provider:provider",
    "why": "noonday.cli.why:why",
    "cron": "noonday.cli.cron:cron",
    "dead": "noonday.cli.dead:dead",
    "operation": "noonday.cli.operations:operation",
    "replay": "noonday.cli.replay:replay",
    "pool": "noonday.cli.pools:pool",
    "tenant": "noonday.cli.tenants:tenant",
    "pause": "noonday.cli.pauses:pause",
    "resume": "noonday.cli.pauses:resume",
    "workers": "noonday.cli.workers:workers",
    "top": "noonday.cli.top:top",
    "audit": "noonday.cli.audit:audit",
    "token": "noonday.cli.tokens:token",
    "keys": "noonday.cli.keys:keys",
    "settings": "noonday.cli.settings:settings",
    "doctor": "noonday.cli.doctor:doctor",
}
"""Module and attribute of each command, in the order of the help."""

EXAMPLES = """
Getting started:
  noonday up                                             start a server with a demo pool on http://127.0.0.1:8080
  noonday job create --handler demo.echo --delay 5s      create a first job (in another terminal)
  noonday why JOB                                        explain what happened to the job
  noonday cron '30 2 * * *' --tz Europe/Berlin           explain a cron expression; needs no server

Exit codes:
""" + "\n".join(f"  {code}  {meaning}" for code, meaning in exits.MEANINGS.items())


class Root(exits.ExitCodes, LazyGroup):
    """The top-level command group."""


@click.group(
    cls=Root,
    places=COMMANDS,
    epilog=EXAMPLES,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
@click.version_option(__version__, prog_name="noonday")
def main() -> None:
    """Run jobs on time, once, and explain why each run did or did not happen.

    Settings come from flags, then from NOONDAY_* variables, then from noonday.toml. Commands that talk to a server use
    --url (NOONDAY_URL) and --token (NOONDAY_TOKEN). On the server's own machine, they create a token from its secret.
    """


if __name__ == "__main__":
    main()
