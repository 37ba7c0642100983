"""How much one request may ask for."""

from dataclasses import dataclass

from noonday.model.limits import BATCH_BODY_BYTES, BODY_BYTES


@dataclass(frozen=True)
class ApiLimits:
    """Bounds on what a request may carry, whatever its tenant is allowed."""

    body_bytes: int = BODY_BYTES
    batch_bytes: int = BATCH_BODY_BYTES
    batch_jobs: int = 10_000
