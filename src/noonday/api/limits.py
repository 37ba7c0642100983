"""Size limits of requests."""

from dataclasses import dataclass

from noonday.model.limits import BATCH_BODY_BYTES, BODY_BYTES


@dataclass(frozen=True)
class ApiLimits:
    """Limits on one request, independent of the tenant's quotas."""

    body_bytes: int = BODY_BYTES
    batch_bytes: int = BATCH_BODY_BYTES
    batch_jobs: int = 10_000
