"""`noonday replay`: run the past dispatches of a pool again."""

from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from noonday.cli.client import TENANT, with_client
from noonday.cli.group import Command
from noonday.cli.instants import instant, now
from noonday.cli.needs import needs
from noonday.cli.replaying import check_id, check_period, confirm_unless, default_id, limit_options, replaying
from noonday.cli.screen import done, json_option, patience, show, show_json
from noonday.cli.tables import facts
from noonday.extras import Extra
from noonday.model.job import ms_of
from noonday.sdk.sync import SyncClient

if TYPE_CHECKING:
    from noonday.cli.server.replaying_jobs import ReplayRequest

EXAMPLES = """
Examples:
  noonday replay --pool mail --from '2030-01-31 09:00' --to '2030-01-31 10:00' --dry-run
  noonday replay --pool mail --from -2h --to -1h --into staging --rate 20
  noonday replay --pool mail --from -2h --id incident-7 --yes      repeated with the same --id: creates only missing jobs

Reads Kafka (NOONDAY_KAFKA_SERVERS), decrypts payloads with the cluster's keys (NOONDAY_KEYS), and creates jobs through the API.
"""


@click.command(cls=Command, epilog=EXAMPLES)
@click.option("--pool", required=True, help="Pool whose dispatches are replayed.")
@click.option(
    "--from", "from_", type=instant, required=True, metavar="TIME", help="Replay dispatches at or after this time."
)
@click.option("--to", type=instant, metavar="TIME", help="Replay dispatches before this time. [default: now]")
@click.option("--into", metavar="POOL", help="Pool that runs the new jobs. [default: the same pool]")
@click.option("--id", "replay_id", metavar="ID", help="Name of this replay. Nothing is created twice under one name.")
@click.option("--tenant", default=TENANT, show_default=True, help="Tenant to replay; the token must belong to it.")
@limit_options(
    rate="Jobs per second.",
    failures="Stop if more than N new jobs fail an attempt.",
    dry_run="Count the executions and create nothing.",
)
@json_option
@needs(Extra.CLUSTER)
@with_client("write")
def replay(
    client: SyncClient,
    from_: datetime,
    to: datetime | None,
    replay_id: str | None,
    rate: float,
    most_failures: int,
    dry_run: bool,
    yes: bool,
    as_json: bool,
    **filters: Any,
) -> None:
    """Replay the executions that a pool received in a period of time.

    Each dispatched execution becomes a new job that runs once, with the same handler and payload, in the same pool or in
    another pool.
    """
    from noonday.cli.server.replaying_jobs import Replay, past_of

    wanted = _wanted(from_, to or now(), replay_id, **filters)
    past = past_of(click.get_current_context().params["config"], wanted)
    with patience(f"reading the dispatches of pool {wanted.pool}"):
        found = client.portal.run(past.count())
    if as_json and dry_run:
        return show_json(found)
    if not as_json:
        show(facts([("replay", wanted.replay_id), *found.lines(), ("into", f"pool {wanted.into}")]))
    if dry_run or not found.executions:
        return None
    confirm_unless(yes, f"Create {found.executions} jobs at {rate:g} per second?")
    with replaying(found.executions) as progress:
        made = client.portal.run(Replay(client.client, past, rate, most_failures, progress).run())
    if as_json:
        return show_json({"replay": wanted.replay_id, **made.members()})
    return done(f"{made}; `noonday job list --tag {wanted.tag}` lists the jobs")


def _wanted(
    from_: datetime, to: datetime, replay_id: str | None, *, pool: str, into: str | None, tenant: str
) -> "ReplayRequest":
    from noonday.cli.server.replaying_jobs import ReplayRequest

    check_period("--from", from_, "--to", to)
    check_id(replay_id, str.isprintable, "printable characters")
    into, from_ms, to_ms = into or pool, ms_of(from_), ms_of(to)
    name = replay_id or default_id(pool, into, from_ms, to_ms, tenant)
    return ReplayRequest(name, pool, into, tenant, from_ms, to_ms)
