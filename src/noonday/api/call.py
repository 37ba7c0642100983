"""What a route's function is given: the engine behind the API, and who is asking."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from noonday.api.auth import Authenticator
from noonday.api.limits import ApiLimits
from noonday.api.turns import ReadTurns
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
    """How the process is doing."""

    def ready(self) -> list[str]:
        """Why no work should be sent here now, in words; empty if all is well."""
        ...

    def live(self) -> bool:
        """Whether the process is worth keeping."""
        ...

    def metrics(self) -> bytes:
        """The metrics in Prometheus' text format."""
        ...


@dataclass(frozen=True)
class Engine:
    """What the API is a door to."""

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
    """Answers a challenge, if there is a shared secret."""
    turns: ReadTurns = field(default_factory=ReadTurns)
    on_answer: Callable[[int], None] = lambda status: None
    """Told the status of each answer under `/v1`."""


@dataclass(frozen=True, slots=True)
class Call:
    """One request, as a route's function sees it."""

    engine: Engine
    caller: Caller
    idem: Idempotency | None
    traceparent: str | None
    """The trace the request belongs to, by W3C Trace Context."""

    @property
    def desk(self) -> "Desk":
        return self.engine.desk

    @property
    def reading(self) -> "Reading":
        return self.engine.reading

    @property
    def tasks(self) -> "TaskDesk":
        return self.engine.tasks

    @property
    def secrets(self) -> "SecretDesk":
        return self.engine.secrets

    @property
    def alerts(self) -> "AlertDesk":
        return self.engine.alerts

    @property
    def preferences(self) -> "PreferenceDesk":
        return self.engine.preferences
