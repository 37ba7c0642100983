"""Pools that Noonday itself fills: only its own services make jobs for them."""

from noonday.model.errors import Flaw

WEBHOOKS_POOL = "webhooks"
"""Calls webhooks, for tasks."""
NOTICES_POOL = "notices"
"""Sends notices, for alert preferences. Their failures raise no alert, or there would be no end to it."""
BUILT_IN_POOLS = {
    WEBHOOKS_POOL: "create a task instead: POST /v1/tasks, `noonday task create`",
    NOTICES_POOL: "notices are sent by alert preferences: PUT /v1/alert-preferences/{id}, `noonday notify`",
}
"""Each with what its users do instead of naming it."""


def flaws_of_built_in(pool: str, maker_of: str | None) -> list[Flaw]:
    """A built-in pool is refused, unless it is the one that the service at work makes jobs for."""
    if pool == maker_of or pool not in BUILT_IN_POOLS:
        return []
    return [Flaw("/target/pool", f"pool {pool!r} is built in and takes no jobs: {BUILT_IN_POOLS[pool]}", pool)]
