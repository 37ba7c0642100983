"""How much of a quota is left, in the headers of draft-ietf-httpapi-ratelimit-headers.

A quota of jobs has no window: what is used comes back when jobs are over, so `q` stands without `w`, and only a refusal
says when (`t`).
"""

from noonday.api.reply import Header
from noonday.intake.quotas import MAX_JOBS, Standing
from noonday.model.errors import QuotaExceeded

POLICY, LIMIT = b"ratelimit-policy", b"ratelimit"


def within_quota(standing: Standing | None) -> list[Header]:
    """For an answer that was no refusal; nothing, if there is no quota."""
    return [] if standing is None else _headers(standing)


def over_quota(error: QuotaExceeded) -> list[Header]:
    sec = error.retry_after_sec
    return [(b"retry-after", b"%d" % sec), *_headers(Standing(error.limit, error.used), f";t={sec}")]


def _headers(standing: Standing, until: str = "") -> list[Header]:
    policy, left = f'"{MAX_JOBS}";q={standing.limit}', f'"{MAX_JOBS}";r={standing.left}{until}'
    return [(POLICY, policy.encode()), (LIMIT, left.encode())]
