"""Context of a request: the services behind the API, and the caller."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from noonday.api.auth import Authenticator
from noonday.api.limits import ApiLimits
from noonday.api.read_limiter import ReadLimiter
from noonday.intake.idempotency import Idempotency
from noonday.model.caller import Caller
from noonday.model.ids import TenantId

if TYPE_CHECKING:
    from noonday.alerts.alert_service import AlertService
    from noonday.alerts.preferences import PreferenceService
    from noonday.intake.services import IntakeServices
    from noonday.notifications.services import NotificationServices
    from noonday.tasks.secrets import SecretService
    from noonday.tasks.task_service import TaskService
    from noonday.worker.remote_pools import RemotePools

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


@dataclass(frozen=True, kw_only=True)
class ApiServices:
    """Services that the routes use."""

    intake: "IntakeServices"
    tasks: "TaskService"
    secrets: "SecretService"
    authenticator: Authenticator
    health: Health
    limits: ApiLimits
    now_ms: Callable[[], int]
    preferences: "PreferenceService"
    alerts: "AlertService"
    notifications: "NotificationServices"
    prove: Callable[[str], str | None] = lambda nonce: None
    """Returns the proof for a nonce, or None without a shared secret."""
    remote: "RemotePools | None" = None
    """Pools of remote workers; None if this process serves none."""
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
    wait_until_gone: Callable[[], Awaitable[None]]
    """Waits until the client has closed the connection."""

    @property
    def intake(self) -> "IntakeServices":
        return self.services.intake

    @property
    def tasks(self) -> "TaskService":
        return self.services.tasks

    @property
    def secrets(self) -> "SecretService":
        return self.services.secrets

    @property
    def alerts(self) -> "AlertService":
        return self.services.alerts

    @property
    def notifications(self) -> "NotificationServices":
        return self.services.notifications

    @property
    def preferences(self) -> "PreferenceService":
        return self.services.preferences
