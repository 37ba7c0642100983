"""Built-in pools: only Noonday's own services create jobs for them."""

from noonday.model.errors import Flaw

WEBHOOKS_POOL = "webhooks"
"""The pool of tasks. Its workers call webhooks."""
NOTICES_POOL = "notices"
"""The pool of notices. Their failures raise no alert, because that alert would cause another notice."""
BUILT_IN_POOLS = {
    WEBHOOKS_POOL: "create a task instead: POST /v1/tasks, `noonday task create`",
    NOTICES_POOL: "notices are sent by alert preferences: PUT /v1/alert-preferences/{id}, `noonday alert notify`",
}
"""Each built-in pool, with what users do instead of naming it."""


def flaws_of_built_in(pool: str, maker_of: str | None) -> list[Flaw]:
    """Return a flaw if the pool is built in, unless it is `maker_of`, the pool of the service that creates the job."""
    if pool == maker_of or pool not in BUILT_IN_POOLS:
        return []
    return [Flaw("/target/pool", f"pool {pool!r} is built in and takes no jobs: {BUILT_IN_POOLS[pool]}", pool)]
