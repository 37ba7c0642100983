"""`noonday provider`: accounts at providers of push messages, SMS and emails, and doubles of these providers."""

import click

from noonday.cli.group import Group
from noonday.cli.needs import needs
from noonday.cli.provider_accounts import delete, list_, put, show_
from noonday.extras import Extra

EXAMPLES = """
NAME is a name of your choice. Secrets never appear on the command line: they are typed, or read from a file or a variable.

Examples:
  noonday provider put mail --kind smtp --setting host=smtp.example.com --setting from=shop@example.com \\
      --secret-env username=SMTP_USER --secret-file password=/run/secrets/smtp
  noonday provider put sms --kind twilio --setting from=+15005550006 --secret account_sid --secret auth_token
  noonday provider list
  noonday provider show mail
  noonday provider delete mail
  noonday provider serve                              run doubles, which send nothing
"""
EXAMPLES_OF_SERVE = """
Examples:
  noonday provider serve                              the outbox is at http://127.0.0.1:8025
  noonday provider serve --port 9000 --smtp-port 9001
  noonday provider serve --json > accounts.json &     the accounts, for scripts

The doubles listen on this machine only. Their credentials and their certificate are new at each start.
"""
PORT, SMTP_PORT = 8025, 8026


@click.group(cls=Group, epilog=EXAMPLES)
def provider() -> None:
    """Manage the accounts that send notifications, and run doubles of providers.

    `put` and `delete` need a token with scope admin.
    """


for _command in (put, list_, show_, delete):
    provider.add_command(_command)


@provider.command(epilog=EXAMPLES_OF_SERVE)
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    default=PORT,
    show_default=True,
    help="Port of the outbox and of the doubles that speak HTTP; 0 picks a free port.",
)
@click.option(
    "--smtp-port",
    type=click.IntRange(0, 65_535),
    default=SMTP_PORT,
    show_default=True,
    help="Port of the mail server; 0 picks a free port.",
)
@click.option("--events-url", metavar="URL", help="URL that gets SendGrid's events; on this machine.")
@click.option("--json", "as_json", is_flag=True, help="Print the outbox and the accounts as JSON, for scripts.")
@needs(Extra.SERVER)
def serve(port: int, smtp_port: int, events_url: str | None, as_json: bool) -> None:
    """Run doubles of the providers: real servers that keep each message in an outbox and send nothing.

    Prints the accounts that reach them. Recipients such as rcpt-550-5.1.1@example.com or +15005550001 are refused as
    their addresses say; scripts on the outbox's port do the same for any recipient.
    """
    from noonday.cli.server.doubles import run_doubles

    run_doubles(port, smtp_port, events_url, as_json=as_json)
