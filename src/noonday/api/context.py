"""Context of a request: the services behind the API, and the caller."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from noonday.api.auth import Authenticator
from noonday.api.limits import ApiLimits
from noonday.api.read_limiter import ReadLimiter
from noonday.intake.idempotency import Idempotency
from noonday.model.caller import Caller
from noonday.model.ids import TenantId

if TYPE_CHECKING:
    from noonday.alerts.desk import AlertDesk
    from noonday.alerts.preferences import PreferenceDesk
    from noonday.intake.desk import Desk
    from noonday.intake.reading import Reading
    from noonday.tasks.desk import TaskDesk
    from noonday.tasks.secrets import SecretDesk

ANONYMOUS = Caller(TenantId(""), "anonymous", frozenset())


class Health(Protocol):
    """Health checks of the process."""

    def ready(self) -> list[str]:
        """Return the reasons why the process is not ready; empty if it is ready."""
        ...

    def live(self) -> bool:
        """Return whether the process is alive; if not, it should be restarted."""
        ...

    def metrics(self) -> bytes:
        """Return the metrics in Prometheus text format."""
        ...


@dataclass(frozen=True)
class ApiServices:
    """Services that the routes use."""

    desk: "Desk"
    reading: "Reading"
    tasks: "TaskDesk"
    secrets: "SecretDesk"
    authenticator: Authenticator
    health: Health
    limits: ApiLimits
    now_ms: Callable[[], int]
    preferences: "PreferenceDesk"
    alerts: "AlertDesk"
    prove: Callable[[str], str | None]
    """Returns the proof for a nonce, or None without a shared secret."""
    reads: ReadLimiter = field(default_factory=ReadLimiter)
    on_answer: Callable[[int], None] = lambda status: None
    """Called with the HTTP status of each response under `/v1`."""


@dataclass(frozen=True, slots=True)
class RequestContext:
    """Context of one request, passed to the route's function."""

    services: ApiServices
    caller: Caller
    idem: Idempotency | None
    traceparent: str | None
    """Trace context of the request (W3C `traceparent`)."""

    @property
    def desk(self) -> "Desk":
        return self.services.desk

    @property
    def reading(self) -> "Reading":
        return self.services.reading

    @property
    def tasks(self) -> "TaskDesk":
        return self.services.tasks

    @property
    def secrets(self) -> "SecretDesk":
        return self.services.secrets

    @property
    def alerts(self) -> "AlertDesk":
        return self.services.alerts

    @property
    def preferences(self) -> "PreferenceDesk":
        return self.services.preferences
