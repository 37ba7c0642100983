"""Rate limit headers (draft-ietf-httpapi-ratelimit-headers) for quotas, most of all the tenant's quota of jobs.

The quota of jobs has no time window: capacity returns when jobs complete. So `q` has no `w`, and only a 429 has the retry time
`t`.
"""

from noonday.api.reply import Header
from noonday.intake.quotas import MAX_JOBS, QuotaStanding
from noonday.model.errors import QuotaExceeded

POLICY, LIMIT = b"ratelimit-policy", b"ratelimit"


def within_quota(standing: QuotaStanding | None) -> list[Header]:
    """Return the headers of a successful response; empty if the tenant has no quota."""
    return [] if standing is None else _headers(standing)


def over_quota(error: QuotaExceeded) -> list[Header]:
    sec, (name, *_) = error.retry_after_sec, error.context.get("violated-policies", [MAX_JOBS])
    return [(b"retry-after", b"%d" % sec), *_headers(QuotaStanding(error.limit, error.used), f";t={sec}", name)]


def _headers(standing: QuotaStanding, until: str = "", name: str = MAX_JOBS) -> list[Header]:
    policy, left = f'"{name}";q={standing.limit}', f'"{name}";r={standing.left}{until}'
    return [(POLICY, policy.encode()), (LIMIT, left.encode())]
