"""How much one request may ask for."""

from dataclasses import dataclass


@dataclass(frozen=True)
class ApiLimits:
    """Bounds on what a request may carry, whatever its tenant is allowed."""

    body_bytes: int = 1024 * 1024
    batch_bytes: int = 64 * 1024 * 1024
    batch_jobs: int = 10_000
