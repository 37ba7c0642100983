"""Settings of what a process sends to others: webhook calls, email and alerts."""

from typing import Annotated, Literal

from msgspec import Meta

from noonday.wiring.settings.section import Section, comma_separated


class WebhookSettings(Section, frozen=True, kw_only=True):
    """Webhook calls by workers."""

    concurrency: Annotated[
        int,
        Meta(
            ge=0,
            le=100_000,
            description="Maximum number of concurrent calls of one process. 0 makes no calls and leaves them to other processes.",
        ),
    ] = 1000
    allow_networks: Annotated[
        str | None,
        Meta(description="Networks that are not public and may be called, such as `127.0.0.0/8,10.1.0.0/16`."),
    ] = None
    max_timeout_sec: Annotated[
        int, Meta(ge=1, le=3600, description="Maximum timeout of a call, in seconds. A task may set less.")
    ] = 300
    share_percent: Annotated[
        int,
        Meta(
            ge=1,
            le=100,
            description="Percentage of the call slots left by other tenants that one tenant may use. One endpoint may use the "
            "same percentage of the slots left by its tenant's other calls. 100 disables both limits.",
        ),
    ] = 50
    ca_file: Annotated[
        str | None,
        Meta(description="File with CA certificates for receivers, in addition to those that the system trusts."),
    ] = None

    @property
    def networks(self) -> tuple[str, ...]:
        return comma_separated(self.allow_networks)


class EmailSettings(Section, frozen=True, kw_only=True):
    """The mail server that sends notices."""

    host: Annotated[
        str | None, Meta(description="Host name of the mail server (SMTP). Without it, no email is sent.")
    ] = None
    port: Annotated[
        int, Meta(ge=1, le=65_535, description="Port of the mail server; usually 587, or 465 with email.tls.")
    ] = 587
    username: Annotated[str | None, Meta(description="User name for the mail server.")] = None
    password: Annotated[str | None, Meta(description="Password for the mail server.", extra={"secret": True})] = None
    password_file: Annotated[
        str | None,
        Meta(description="File with the password, instead of email.password. Only its owner may have access to it."),
    ] = None
    tls: Annotated[bool, Meta(description="Use TLS from the first byte of the connection (SMTPS).")] = False
    starttls: Annotated[
        Literal["auto", "always", "never"],
        Meta(
            description="STARTTLS: `always` requires it, `never` sends unencrypted mail, `auto` requires it except for a "
            "loopback server without a user name."
        ),
    ] = "auto"
    ca_file: Annotated[
        str | None,
        Meta(description="File with CA certificates for the mail server, in addition to those that the system trusts."),
    ] = None
    sender: Annotated[
        str | None,
        Meta(description="Sender address, such as `Noonday <noonday@example.com>`. Required with email.host."),
    ] = None
    timeout_sec: Annotated[
        int, Meta(ge=1, le=600, description="Timeout of one reply of the mail server, in seconds.")
    ] = 30
    recipients: Annotated[
        str | None,
        Meta(
            description="Allowed addresses and domains of recipients, such as `example.com,ops@example.org`. "
            "Without it, all are allowed."
        ),
    ] = None

    @property
    def allowed_recipients(self) -> tuple[str, ...]:
        return comma_separated(self.recipients)


class AlertSettings(Section, frozen=True, kw_only=True):
    """Thresholds from which late and slow runs raise an alert."""

    late_after_sec: Annotated[
        int,
        Meta(
            ge=10,
            le=604_800,
            description="Seconds after its due time at which a run that has not started raises an alert.",
        ),
    ] = 60
    slow_after_sec: Annotated[
        int,
        Meta(
            ge=10,
            le=604_800,
            description="Minimum duration in seconds of a run that can raise an alert for being slow, however short the usual "
            "runs of its job are.",
        ),
    ] = 60


class NotificationSettings(Section, frozen=True, kw_only=True):
    """Notifications: push messages, SMS and emails to users."""

    concurrency: Annotated[
        int, Meta(ge=1, le=10_000, description="Maximum number of concurrent calls of one process over each channel.")
    ] = 50
    retention_days: Annotated[
        int, Meta(ge=8, le=3_650, description="Days that the events of a notification are kept.")
    ] = 30
