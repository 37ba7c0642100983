"""The job that `enqueue` returns, as type checkers see it."""

from typing import Generic, TypeVar

from noonday.model.view import JobView

R_co = TypeVar("R_co", covariant=True)


class EnqueuedJob(JobView, Generic[R_co], frozen=True, kw_only=True):
    """A job whose handler returns `R_co`, for annotations: `EnqueuedJob[str]`. At run time it is a JobView."""
