"""Rate limit headers (draft-ietf-httpapi-ratelimit-headers) for the tenant's quota of jobs.

This quota has no time window: capacity returns when jobs complete. So `q` has no `w`, and only a 429 has the retry time `t`.
"""

from noonday.api.reply import Header
from noonday.intake.quotas import MAX_JOBS, QuotaStanding
from noonday.model.errors import QuotaExceeded

POLICY, LIMIT = b"ratelimit-policy", b"ratelimit"


def within_quota(standing: QuotaStanding | None) -> list[Header]:
    """Return the headers of a successful response; empty if the tenant has no quota."""
    return [] if standing is None else _headers(standing)


def over_quota(error: QuotaExceeded) -> list[Header]:
    sec = error.retry_after_sec
    return [(b"retry-after", b"%d" % sec), *_headers(QuotaStanding(error.limit, error.used), f";t={sec}")]


def _headers(standing: QuotaStanding, until: str = "") -> list[Header]:
    policy, left = f'"{MAX_JOBS}";q={standing.limit}', f'"{MAX_JOBS}";r={standing.left}{until}'
    return [(POLICY, policy.encode()), (LIMIT, left.encode())]
