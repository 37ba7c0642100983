"""All settings, one section for each role.

The modules of sections declare the settings, `loading` reads their values, `checks` compares them with each other, and
`reference` describes them.
"""

from typing import Annotated, Literal

from msgspec import Meta, field

from noonday.model.limits import Sizes
from noonday.wiring.settings.access import AuthSettings, EncryptionSettings, LimitSettings, UiSettings
from noonday.wiring.settings.cluster import (
    ClusterSettings,
    EtcdSettings,
    KafkaSettings,
    PostgresSettings,
    RedisSettings,
)
from noonday.wiring.settings.engine import (
    RemoteSettings,
    RetentionSettings,
    SchedulerSettings,
    StoreSettings,
    WorkerSettings,
)
from noonday.wiring.settings.outgoing import AlertSettings, EmailSettings, NotificationSettings, WebhookSettings
from noonday.wiring.settings.section import Section
from noonday.wiring.settings.shell import ShellSettings
from noonday.wiring.settings.telemetry import MetricsSettings, TelemetrySettings


class Settings(Section, frozen=True, kw_only=True):
    """All settings. Created by `load_settings`, or directly in a program that embeds Noonday."""

    data: Annotated[
        str, Meta(min_length=1, description="Path of the SQLite file, which is created if it does not exist.")
    ] = "noonday.db"
    host: Annotated[
        str,
        Meta(min_length=1, description="Address that the API listens on. An address other than loopback needs [auth]."),
    ] = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65_535, description="Port of the API. 0 selects a free port.")] = 8080
    log_level: Annotated[
        Literal["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"], Meta(description="Lowest level that is logged.")
    ] = "WARNING"
    log_format: Annotated[
        Literal["text", "json"], Meta(description="Format of log lines: text for people, json for programs.")
    ] = "text"
    logs_url_template: Annotated[
        str | None,
        Meta(description="URL of the logs of an execution, such as `https://logs/{executionId}`; shown as logsUrl."),
    ] = None
    auth: AuthSettings = field(default_factory=AuthSettings)
    encryption: EncryptionSettings = field(default_factory=EncryptionSettings)
    store: StoreSettings = field(default_factory=StoreSettings)
    scheduler: SchedulerSettings = field(default_factory=SchedulerSettings)
    worker: WorkerSettings = field(default_factory=WorkerSettings)
    remote: RemoteSettings = field(default_factory=RemoteSettings)
    webhooks: WebhookSettings = field(default_factory=WebhookSettings)
    notifications: NotificationSettings = field(default_factory=NotificationSettings)
    shell: ShellSettings = field(default_factory=ShellSettings)
    email: EmailSettings = field(default_factory=EmailSettings)
    alerts: AlertSettings = field(default_factory=AlertSettings)
    retention: RetentionSettings = field(default_factory=RetentionSettings)
    limits: LimitSettings = field(default_factory=LimitSettings)
    ui: UiSettings = field(default_factory=UiSettings)
    telemetry: TelemetrySettings = field(default_factory=TelemetrySettings)
    metrics: MetricsSettings = field(default_factory=MetricsSettings)
    postgres: PostgresSettings = field(default_factory=PostgresSettings)
    redis: RedisSettings = field(default_factory=RedisSettings)
    kafka: KafkaSettings = field(default_factory=KafkaSettings)
    etcd: EtcdSettings = field(default_factory=EtcdSettings)
    cluster: ClusterSettings = field(default_factory=ClusterSettings)

    @property
    def sizes(self) -> Sizes:
        limits = self.limits
        return Sizes(
            limits.payload_bytes,
            limits.progress_bytes,
            limits.result_bytes,
            limits.batch_jobs,
            self.kafka.message_bytes,
            limits.log_bytes,
            limits.enqueued_bytes,
        )
