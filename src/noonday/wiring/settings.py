"""All settings, their sources and their validation.

A value comes from a flag, else from the environment, else from `noonday.toml`, else from the default. No unknown name is
ignored: a misspelt name is an error that names the nearest valid one. An empty variable counts as not set.
"""

import os
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from string import Formatter
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, field
from msgspec.inspect import BoolType, IntType, LiteralType, Metadata, NoneType, StrType, Type, UnionType, type_info

from noonday.mail.addresses import flaw_of_allowed, flaw_of_sender
from noonday.model.budget import INDEX_ENTRIES
from noonday.model.errors import BadSettings, Flaw, InvalidInput, nearest
from noonday.model.limits import MESSAGE_BYTES, Sizes
from noonday.model.origin import host_of
from noonday.webhooks.addresses import Networks

PREFIX = "NOONDAY_"
CONFIG_VARIABLE = "NOONDAY_CONFIG"
DEFAULT_FILE = Path("noonday.toml")

OTHER_VARIABLES = frozenset({CONFIG_VARIABLE, "NOONDAY_URL", "NOONDAY_TOKEN"})
"""Variables with our prefix that are no settings: the path of the settings file, and the variables of the client."""

SHORT_VARIABLES = {"NOONDAY_KEYS": "encryption.keys"}
"""Short names of variables that are often set by hand."""


class Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One section of the settings. Its repr hides secrets."""

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [(info.name, self._shown(info)) for info in msgspec.structs.fields(self)]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self.__rich_repr__())})"

    def _shown(self, info: msgspec.structs.FieldInfo) -> Any:
        value = getattr(self, info.name)
        return _HIDDEN if value is not None and _SettingType.of(info.type).secret else value


class AuthSettings(Section, frozen=True, kw_only=True):
    """Which tokens the API accepts."""

    secret: Annotated[
        Annotated[str, Meta(min_length=32)] | None,
        Meta(
            description="Shared secret that signs tokens (HS256), at least 32 characters. Without it, the server creates one "
            "next to the data file and listens on loopback only.",
            extra={"secret": True},
        ),
    ] = None
    algorithm: Annotated[
        Literal["HS256", "RS256", "ES256"],
        Meta(description="Signature algorithm of tokens; no other is accepted. RS256 and ES256 need a key set (JWKS)."),
    ] = "HS256"
    jwks_url: Annotated[
        Annotated[str, Meta(pattern="^https?://")] | None,
        Meta(description="URL of the identity provider's key set (JWKS)."),
    ] = None
    jwks_file: Annotated[str | None, Meta(description="File with the key set (JWKS), instead of jwks_url.")] = None
    audience: Annotated[
        str | None,
        Meta(description="Required `aud` of a token. RS256 and ES256 need it if the API listens beyond loopback."),
    ] = None
    issuer: Annotated[
        str | None,
        Meta(description="Required `iss` of a token. RS256 and ES256 need it if the API listens beyond loopback."),
    ] = None


class EncryptionSettings(Section, frozen=True, kw_only=True):
    """Encryption of payloads, progress and results at rest."""

    keys: Annotated[
        str | None,
        Meta(
            description="Keys as `id:base64,id:base64`, 32 bytes each. The first key encrypts; all keys decrypt. "
            "Without it, the server keeps a key file next to the data file.",
            extra={"secret": True},
        ),
    ] = None


class StoreSettings(Section, frozen=True, kw_only=True):
    """The SQLite file."""

    synchronous: Annotated[
        Literal["FULL", "NORMAL"],
        Meta(
            description="Durability when the power fails: FULL loses nothing; NORMAL is faster and may lose the latest commits."
        ),
    ] = "FULL"
    cache_mb: Annotated[int, Meta(ge=1, le=65_536, description="Page cache, in MiB.")] = 64
    busy_timeout_ms: Annotated[
        int,
        Meta(
            ge=0,
            le=600_000,
            description="Time that a statement waits for a lock on the file, in milliseconds. 0 does not wait.",
        ),
    ] = 5000


class SchedulerSettings(Section, frozen=True, kw_only=True):
    """How the scheduler finds and fires due jobs."""

    lead_ms: Annotated[
        int,
        Meta(
            ge=0,
            le=60_000,
            description="Milliseconds before its time that a job is dispatched; the worker waits for the exact time. "
            "0 disables early dispatch.",
        ),
    ] = 200
    batch: Annotated[
        int, Meta(ge=1, le=100_000, description="Maximum number of entries that one transaction fires.")
    ] = 2000
    hydrate_ahead_sec: Annotated[
        int,
        Meta(ge=1, le=86_400, description="Seconds ahead of time that the hydrator loads entries into the hot index."),
    ] = 600
    hint_ahead_sec: Annotated[
        int,
        Meta(
            ge=1,
            le=172_800,
            description="A new entry due within this many seconds enters the hot index at once. "
            "Must be more than hydrate_ahead_sec.",
        ),
    ] = 1200
    index_entries: Annotated[
        int,
        Meta(
            ge=1_000,
            le=100_000_000,
            description="Maximum number of hot index entries in the memory of one process, about 600 bytes each. Further entries "
            "stay in the store until there is room.",
        ),
    ] = INDEX_ENTRIES
    sweep_every_ms: Annotated[
        int,
        Meta(
            ge=10,
            le=3_600_000,
            description="Interval of the sweeper, which restores overdue entries that the hot index lost, in milliseconds.",
        ),
    ] = 1000
    grace_ms: Annotated[
        int,
        Meta(
            ge=0,
            le=3_600_000,
            description="Milliseconds that an entry must be overdue before the sweeper restores it. 0 restores it at once.",
        ),
    ] = 2000


class WorkerSettings(Section, frozen=True, kw_only=True):
    """How workers run handlers."""

    concurrency: Annotated[
        int,
        Meta(
            ge=1,
            le=100_000,
            description="Maximum number of handlers that run at the same time in one pool of a process.",
        ),
    ] = 100
    threads: Annotated[int, Meta(ge=1, le=10_000, description="Number of threads for handlers that are not async.")] = (
        32
    )
    processes: Annotated[
        int,
        Meta(
            ge=0,
            le=1_000,
            description="Maximum number of processes for handlers with `process=True`. 0 allows no such handlers.",
        ),
    ] = 2
    drain_sec: Annotated[
        int,
        Meta(
            ge=0,
            le=86_400,
            description="Seconds that running handlers have to finish when the process is stopped. The sum of drain_sec, "
            "cancel_grace_sec and 2 s must be less than the time after which the supervisor kills (Kubernetes: 30 s). "
            "0 does not wait.",
        ),
    ] = 20
    beat_sec: Annotated[int, Meta(ge=1, le=3_600, description="Interval of worker heartbeats, in seconds.")] = 10
    cancel_grace_sec: Annotated[
        int,
        Meta(
            ge=0,
            le=86_400,
            description="Seconds that a cancelled handler has to stop; 0 does not wait. After that, a process is killed, and a "
            "thread or coroutine that continues is abandoned.",
        ),
    ] = 5
    max_abandoned: Annotated[
        int,
        Meta(
            ge=1,
            le=10_000,
            description="Number of abandoned runs at which the worker reports that it is not ready, and `noonday worker` starts "
            "a successor process. Until then, new runs replace abandoned ones.",
        ),
    ] = 8
    retry_breaker_min_runs_per_minute: Annotated[
        int,
        Meta(
            ge=0,
            le=1_000_000,
            description="Minimum runs per minute of a handler before its retry breaker may open (it opens when over half of the "
            "runs fail). 0 disables it.",
        ),
    ] = 100


class WebhookSettings(Section, frozen=True, kw_only=True):
    """How workers call webhooks."""

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
        return _split(self.allow_networks)


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
        return _split(self.recipients)


class AlertSettings(Section, frozen=True, kw_only=True):
    """When late and slow runs raise an alert."""

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


class RetentionSettings(Section, frozen=True, kw_only=True):
    """Days that the store keeps records. 0 deletes them at the next pruning."""

    succeeded_days: Annotated[int, Meta(ge=0, le=36_500, description="Days to keep executions that succeeded.")] = 7
    cancelled_days: Annotated[
        int, Meta(ge=0, le=36_500, description="Days to keep executions that were cancelled.")
    ] = 7
    expired_days: Annotated[
        int, Meta(ge=0, le=36_500, description="Days to keep executions that expired before they started.")
    ] = 7
    dead_days: Annotated[int, Meta(ge=0, le=36_500, description="Days to keep dead letters.")] = 30
    jobs_days: Annotated[int, Meta(ge=0, le=36_500, description="Days to keep jobs that will not fire again.")] = 30
    decisions_days: Annotated[
        int, Meta(ge=0, le=36_500, description="Days to keep decisions, the reasons why occurrences did not fire.")
    ] = 30
    audit_days: Annotated[int, Meta(ge=0, le=36_500, description="Days to keep the audit log.")] = 90
    alerts_days: Annotated[
        int, Meta(ge=0, le=36_500, description="Days to keep an alert after its last occurrence.")
    ] = 90


class LimitSettings(Section, frozen=True, kw_only=True):
    """Limits of requests, results and connections."""

    payload_bytes: Annotated[int, Meta(ge=1, le=67_108_864, description="Maximum payload of a job, in bytes.")] = (
        262_144
    )
    progress_bytes: Annotated[
        int,
        Meta(ge=1, le=67_108_864, description="Maximum progress that a handler may send with a heartbeat, in bytes."),
    ] = 65_536
    result_bytes: Annotated[int, Meta(ge=1, le=67_108_864, description="Maximum result of a handler, in bytes.")] = (
        65_536
    )
    batch_jobs: Annotated[int, Meta(ge=1, le=1_000_000, description="Maximum number of jobs in one batch request.")] = (
        10_000
    )
    idempotency_hours: Annotated[
        int, Meta(ge=1, le=8_760, description="Hours that the server remembers an Idempotency-Key.")
    ] = 24
    connections: Annotated[
        int,
        Meta(
            ge=1,
            le=1_000_000,
            description="Maximum number of client connections. A further one closes the connection that has waited longest "
            "for its client.",
        ),
    ] = 1_000


class UiSettings(Section, frozen=True, kw_only=True):
    """How browsers reach the server."""

    origins: Annotated[
        str | None,
        Meta(
            description="URLs under which browsers reach this server, such as `https://jobs.example.com`, separated by commas. "
            "A server on loopback also accepts localhost."
        ),
    ] = None

    @property
    def known_origins(self) -> tuple[str, ...]:
        return tuple(each.strip() for each in (self.origins or "").split(",") if each.strip())


class TelemetrySettings(Section, frozen=True, kw_only=True):
    """Export of traces."""

    otlp_endpoint: Annotated[
        Annotated[str, Meta(pattern="^https?://")] | None,
        Meta(description="URL that receives traces (OTLP over HTTP). Without it, no traces are exported."),
    ] = None
    service_name: Annotated[str, Meta(min_length=1, description="Service name in traces.")] = "noonday"


class MetricsSettings(Section, frozen=True, kw_only=True):
    """Optional metrics."""

    tenants: Annotated[bool, Meta(description="Count runs for each tenant too.")] = False
    max_tenants: Annotated[
        int,
        Meta(
            ge=1,
            le=100_000,
            description="Maximum number of tenants with their own metric label. All later tenants share one label.",
        ),
    ] = 100

    @property
    def named_tenants(self) -> int:
        return self.max_tenants if self.tenants else 0


class PostgresSettings(Section, frozen=True, kw_only=True):
    """PostgreSQL, the store of a cluster."""

    url: Annotated[
        Annotated[str, Meta(pattern="^postgres(ql)?://")] | None,
        Meta(
            description="URL of the database (PostgreSQL 15 or later), such as `postgresql://user:password@host/noonday`.",
            extra={"secret": True},
        ),
    ] = None
    schema: Annotated[str, Meta(pattern="^[a-z_][a-z0-9_]{0,62}$", description="Schema that contains all tables.")] = (
        "noonday"
    )
    sessions: Annotated[int, Meta(ge=2, le=1_000, description="Maximum number of sessions of one process.")] = 10
    ca_file: Annotated[
        str | None,
        Meta(description="File with the CA certificate of the server. Setting it requires TLS for every session."),
    ] = None


class RedisSettings(Section, frozen=True, kw_only=True):
    """Redis, which keeps the claims, revocations and hints of a cluster. It may lose all data at any time."""

    url: Annotated[
        Annotated[str, Meta(pattern="^rediss?://")] | None,
        Meta(
            description="URL of the server (Redis 7 or later), such as `redis://:password@host:6379/0`; `rediss://` uses TLS.",
            extra={"secret": True},
        ),
    ] = None
    ca_file: Annotated[str | None, Meta(description="File with the CA certificate of the server, for `rediss://`.")] = (
        None
    )


class KafkaSettings(Section, frozen=True, kw_only=True):
    """Kafka, which carries dispatches to workers and reports to recorders."""

    servers: Annotated[
        Annotated[str, Meta(min_length=1)] | None,
        Meta(description="Brokers (Kafka 3.9 or later), as `host:port,host:port`."),
    ] = None
    user: Annotated[str | None, Meta(description="User name for the brokers (SASL).")] = None
    password: Annotated[str | None, Meta(description="Password for the brokers (SASL).", extra={"secret": True})] = None
    mechanism: Annotated[Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"], Meta(description="SASL mechanism.")] = (
        "SCRAM-SHA-512"
    )
    tls: Annotated[bool, Meta(description="Use TLS for connections to the brokers.")] = False
    ca_file: Annotated[
        str | None, Meta(description="File with the CA certificate of the brokers. Implies kafka.tls.")
    ] = None
    message_bytes: Annotated[
        int,
        Meta(
            ge=65_536,
            le=134_217_728,
            description="Maximum message that the brokers accept (their `message.max.bytes`), in bytes. "
            "A payload and a progress of the maximum sizes must fit into one message.",
        ),
    ] = MESSAGE_BYTES
    pool_partitions: Annotated[
        int,
        Meta(
            ge=1,
            le=1_000,
            description="Partitions of each topic of a new pool, and so the maximum number of workers that share the pool.",
        ),
    ] = 8
    log_partitions: Annotated[
        int,
        Meta(
            ge=1,
            le=1_000,
            description="Partitions of a new events topic, and so the maximum number of recorders that share it.",
        ),
    ] = 16
    replication: Annotated[
        int | None,
        Meta(description="Replication factor of new topics. Without it, the number of brokers, at most 3."),
    ] = None


class EtcdSettings(Section, frozen=True, kw_only=True):
    """etcd, which keeps the leases of a cluster."""

    urls: Annotated[
        Annotated[str, Meta(pattern="^https?://")] | None,
        Meta(description="Endpoints (etcd 3.4 or later), as `http://host:2379,http://...`."),
    ] = None
    user: Annotated[str | None, Meta(description="User name for etcd.")] = None
    password: Annotated[str | None, Meta(description="Password for etcd.", extra={"secret": True})] = None
    ca_file: Annotated[str | None, Meta(description="File with the CA certificate of the servers.")] = None
    cert_file: Annotated[
        str | None, Meta(description="File with the client certificate, if the servers require one.")
    ] = None
    key_file: Annotated[str | None, Meta(description="File with the private key of the client certificate.")] = None


class ClusterSettings(Section, frozen=True, kw_only=True):
    """Settings that all processes of a cluster share."""

    name: Annotated[
        str,
        Meta(
            pattern="^[a-z0-9-]{1,40}$",
            description="Name of the cluster. Clusters on the same servers must have different names.",
        ),
    ] = "noonday"
    leases: Annotated[
        Literal["etcd", "redis"], Meta(description="Server that keeps the leases of partitions and members.")
    ] = "etcd"
    lease_ttl_sec: Annotated[
        int, Meta(ge=1, le=60, description="Seconds until the partitions of a dead process pass to others.")
    ] = 3
    hot_index: Annotated[
        Literal["memory", "redis"],
        Meta(description="Location of the hot index: `memory` of the scheduler that owns the partition, or `redis`."),
    ] = "memory"
    max_clock_offset_sec: Annotated[
        int,
        Meta(
            ge=1,
            le=86_400,
            description="Maximum clock offset from the database, in seconds. A process with a larger offset does not start.",
        ),
    ] = 60


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
    webhooks: WebhookSettings = field(default_factory=WebhookSettings)
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
        )

    def check(self) -> None:
        """Check combinations of values. Raises BadSettings if values that are valid alone contradict each other."""
        _raise_flaws(
            [
                *_flaws_of_auth(self.auth),
                *_flaws_of_exposure(self),
                *_flaws_of_template(self),
                *_flaws_of_horizons(self),
                *_flaws_of_sizes(self),
                *_flaws_of_networks(self.webhooks),
                *_flaws_of_origins(self.ui),
                *_flaws_of_email(self.email),
            ]
        )


@dataclass(frozen=True)
class SettingDoc:
    """Description of one setting, for `docs/settings.md` and `noonday settings`."""

    key: str
    env: str
    type: str
    default: Any
    help: str
    secret: bool = False


def load_settings(flags: Mapping[str, Any], environ: Mapping[str, str], file: Path | None = None) -> Settings:
    """Load and check settings from flags, else `NOONDAY_*`, else the file, else defaults.

    `flags` are by key (`scheduler.lead_ms` or `scheduler_lead_ms`); None means not given. `file` is the argument of
    --config; without it, the file is NOONDAY_CONFIG, else `noonday.toml` in the working directory. Raises BadSettings, which
    lists every invalid value with its key, its source and the allowed values.
    """
    found: dict[str, _RawValue] = {}
    flaws = list(_flaws_of_short_variables(environ))
    for each in (*_values_in_file(file, environ), *_values_in_environment(environ), *_values_in_flags(flags)):
        if each.key in _TYPES:
            found[each.key] = each
        else:
            flaws.append(each.as_unknown())
    values: dict[str, Any] = {}
    for key, each in found.items():
        try:
            values[key] = _TYPES[key].read(each)
        except ValueError:
            flaws.append(_TYPES[key].flaw(each))
    _raise_flaws(flaws)
    settings = _build(values)
    settings.check()
    return settings


def describe_settings() -> list[SettingDoc]:
    """Return all settings, in the order of their declaration."""
    return [
        SettingDoc(key, _variable_of(key), kind.name, kind.default, kind.help, kind.secret)
        for key, kind in _TYPES.items()
    ]


@dataclass(frozen=True)
class _RawValue:
    """A value from one source, before validation."""

    key: str
    value: Any
    source: str
    name: str
    known: tuple[str, ...]
    is_text: bool
    """Whether numbers and booleans may be text, as in the environment."""

    def as_unknown(self) -> Flaw:
        if self.name in _SECTIONS:
            return Flaw(
                _pointer(self.key), f"{self.key} is a section, not a setting ({self.source}): write [{self.key}]"
            )
        guess = nearest(self.name, self.known)
        hint = f"; did you mean {guess}?" if guess else ""
        detail = f"{self.name} is not a setting ({self.source}){hint}"
        return Flaw(_pointer(self.key), detail, nearest=guess)


@dataclass(frozen=True)
class _SettingType:
    """Type, default and description of one setting."""

    type: Any
    default: Any
    bare: Type
    optional: bool
    help: str
    secret: bool

    @classmethod
    def of(cls, annotation: Any, default: Any = None) -> "_SettingType":
        info, optional, help_text, secret = type_info(annotation), False, "", False
        while isinstance(info, Metadata | UnionType):
            if isinstance(info, Metadata):
                help_text = help_text or (info.extra_json_schema or {}).get("description", "")
                secret = secret or bool((info.extra or {}).get("secret"))
                info = info.type
            else:
                optional = True
                info = next(one for one in info.types if not isinstance(one, NoneType))
        return cls(annotation, default, info, optional, help_text, secret)

    @property
    def name(self) -> str:
        match self.bare:
            case IntType():
                return "integer"
            case BoolType():
                return "boolean"
            case LiteralType(values=values):
                return " | ".join(str(value) for value in values)
            case _:
                return "text"

    @property
    def allowed(self) -> str:
        match self.bare:
            case IntType(ge=least, le=most):
                return f"a whole number from {least} to {most}"
            case BoolType():
                return "true or false"
            case LiteralType(values=values):
                return " or ".join(str(value) for value in values)
            case StrType(pattern="^postgres(ql)?://"):
                return "a URL that begins with postgresql://"
            case StrType(pattern="^rediss?://"):
                return "a URL that begins with redis:// or rediss://"
            case StrType(pattern="^[a-z_][a-z0-9_]{0,62}$"):
                return "lower-case letters, digits and underscores, 63 at most"
            case StrType(pattern="^[a-z0-9-]{1,40}$"):
                return "lower-case letters, digits and hyphens, 40 at most"
            case StrType(pattern="^https?://"):
                return "a URL that begins with http:// or https://"
            case StrType(min_length=int(length)) if length > 1:
                return f"text of at least {length} characters"
            case _:
                return "text, not empty"

    def read(self, each: _RawValue) -> Any:
        """Convert a value to the type of the setting. Raises ValueError (as msgspec does) if that is not possible."""
        value = os.fspath(each.value) if isinstance(each.value, os.PathLike) else each.value
        if isinstance(value, str) and isinstance(self.bare, LiteralType):
            value = next((one for one in self.bare.values if str(one).lower() == value.lower()), value)
        if value == "":
            raise ValueError
        return msgspec.convert(value, self.type, strict=not (each.is_text and isinstance(value, str)))

    def flaw(self, each: _RawValue) -> Flaw:
        shown = _HIDDEN if self.secret else _shortened(repr(each.value))
        detail = f"{each.key} is {shown} ({each.source}): must be {self.allowed}"
        return Flaw(_pointer(each.key), detail, None if self.secret else each.value, self.allowed)


_HIDDEN = "(hidden)"


def _values_in_file(file: Path | None, environ: Mapping[str, str]) -> Iterator[_RawValue]:
    path = _find_file(file, environ)
    if path is None:
        return
    for key, value in _flattened(_read_toml(path)):
        yield _RawValue(key, value, f"file {path}", key, tuple(_TYPES), is_text=False)


def _find_file(file: Path | None, environ: Mapping[str, str]) -> Path | None:
    if file is not None:
        return file
    if named := environ.get(CONFIG_VARIABLE):
        return Path(named)
    return DEFAULT_FILE if DEFAULT_FILE.is_file() else None


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadSettings(f"cannot read the settings file {path}: {error.strerror}", path=str(path)) from error
    except ValueError as error:
        raise BadSettings(f"the settings file {path} is not TOML: {error}", path=str(path)) from error


def _flattened(content: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in content.items():
        if isinstance(value, dict) and value:
            yield from ((f"{name}.{inner}", inner_value) for inner, inner_value in value.items())
        elif not (value == {} and name in _SECTIONS):
            yield name, value


def _values_in_environment(environ: Mapping[str, str]) -> Iterator[_RawValue]:
    known = (*_BY_VARIABLE, *OTHER_VARIABLES)
    for name in sorted(environ):
        if not name.startswith(PREFIX) or name in OTHER_VARIABLES or not environ[name].strip():
            continue
        key = _BY_VARIABLE.get(name, name)
        yield _RawValue(key, environ[name].strip(), f"environment variable {name}", name, known, is_text=True)


def _flaws_of_short_variables(environ: Mapping[str, str]) -> Iterator[Flaw]:
    for short, key in SHORT_VARIABLES.items():
        if environ.get(short) and environ.get(_variable_of(key)):
            yield Flaw(_pointer(key), f"{short} and {_variable_of(key)} are both set and mean the same: remove one")


def _values_in_flags(flags: Mapping[str, Any]) -> Iterator[_RawValue]:
    for name, value in flags.items():
        if value is not None:
            key = _BY_FLAG.get(name, name)
            yield _RawValue(key, value, f"flag {name}", name, tuple(_TYPES), is_text=True)


def _build(values: Mapping[str, Any]) -> Settings:
    top = {key: value for key, value in values.items() if "." not in key}
    for section, section_type in _SECTIONS.items():
        prefix = f"{section}."
        top[section] = section_type(
            **{key.removeprefix(prefix): v for key, v in values.items() if key.startswith(prefix)}
        )
    return Settings(**top)


EXAMPLE_SECRETS = ("replace-me", "change-me", "changeme")
"""Prefixes of example secrets in manuals, which users may copy."""


def _flaws_of_auth(auth: AuthSettings) -> Iterator[Flaw]:
    if auth.secret is not None and auth.secret.lower().startswith(EXAMPLE_SECRETS):
        detail = "auth.secret is a published example; create your own with: openssl rand -base64 32"
        yield Flaw("/auth/secret", detail)
    key_sets = [name for name in ("jwks_url", "jwks_file") if getattr(auth, name) is not None]
    if auth.algorithm == "HS256":
        for name in key_sets:
            detail = f"auth.{name} is set, but auth.algorithm is HS256: set auth.algorithm to RS256 or ES256"
            yield Flaw("/auth/algorithm", detail, auth.algorithm, ["RS256", "ES256"])
        return
    if len(key_sets) != 1:
        detail = f"auth.algorithm is {auth.algorithm}: set one of auth.jwks_url and auth.jwks_file, not both"
        yield Flaw("/auth/jwks_url", detail)
    if auth.secret is not None:
        detail = f"auth.secret is set, but auth.algorithm is {auth.algorithm}, which has no secret: remove one of them"
        yield Flaw("/auth/secret", detail)


def _flaws_of_exposure(settings: Settings) -> Iterator[Flaw]:
    auth = settings.auth
    if is_loopback(settings.host):
        return
    if auth.algorithm != "HS256":
        # An identity provider uses the same keys for the tokens of all its users and all their applications.
        for name in ("issuer", "audience"):
            if getattr(auth, name) is None:
                detail = (
                    f"host is {settings.host!r}, which other machines can reach, and auth.{name} is not set: tokens that the "
                    f"identity provider issued for other applications would be accepted; set auth.{name}"
                )
                yield Flaw(f"/auth/{name}", detail)
    if auth.secret or auth.jwks_url or auth.jwks_file:
        return
    detail = (
        f"host is {settings.host!r}, which other machines can reach, and tokens are not configured: "
        "set auth.secret (NOONDAY_AUTH_SECRET; create one with: openssl rand -base64 32), "
        "or auth.algorithm with auth.jwks_url or auth.jwks_file, or keep host at 127.0.0.1"
    )
    yield Flaw("/host", detail, settings.host)


def is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _flaws_of_template(settings: Settings) -> Iterator[Flaw]:
    template = settings.logs_url_template
    if template is not None and _placeholders_in(template) != {"executionId"}:
        detail = f"logs_url_template is {template!r}: must contain {{executionId}} and no other {{name}}"
        yield Flaw("/logs_url_template", detail, template)


def _placeholders_in(template: str) -> set[str]:
    try:
        return {name for _, name, _, _ in Formatter().parse(template) if name is not None}
    except ValueError:
        return set()


def _flaws_of_origins(ui: UiSettings) -> Iterator[Flaw]:
    for origin in ui.known_origins:
        try:
            host_of(origin)
        except ValueError as wrong:
            yield Flaw("/ui/origins", f"ui.origins: {wrong}", origin)


def _split(text: str | None) -> tuple[str, ...]:
    """Split the value of a setting at its commas."""
    return tuple(each.strip() for each in (text or "").split(",") if each.strip())


def _flaws_of_networks(webhooks: WebhookSettings) -> Iterator[Flaw]:
    try:
        Networks(webhooks.networks)
    except InvalidInput as error:
        for flaw in error.flaws:
            yield Flaw("/webhooks/allow_networks", f"webhooks.allow_networks: {flaw.detail}", flaw.value, flaw.allowed)


def _flaws_of_email(email: EmailSettings) -> Iterator[Flaw]:
    if email.host is not None and email.sender is None:
        yield Flaw(
            "/email/sender", "email.host is set, but email.sender is not: set email.sender to the sender address"
        )
    if email.sender is not None and (wrong := flaw_of_sender(email.sender)):
        yield Flaw("/email/sender", f"email.sender is {email.sender!r}: {wrong}", email.sender)
    if email.password is not None and email.password_file is not None:
        yield Flaw("/email/password_file", "email.password and email.password_file are both set: remove one")
    has_password = email.password is not None or email.password_file is not None
    if (email.username is not None) != has_password:
        yield Flaw("/email/username", "set both email.username and email.password (or email.password_file), or neither")
    for each in email.allowed_recipients:
        if wrong := flaw_of_allowed(each):
            yield Flaw("/email/recipients", f"email.recipients has {each!r}: {wrong}", each)
    if email.tls and email.starttls == "always":
        detail = "email.tls is true, so email.starttls cannot be always: set it to auto or never"
        yield Flaw("/email/starttls", detail, email.starttls, ["auto", "never"])


def _flaws_of_horizons(settings: Settings) -> Iterator[Flaw]:
    hint, hydrate = settings.scheduler.hint_ahead_sec, settings.scheduler.hydrate_ahead_sec
    if hint <= hydrate:
        detail = (
            f"scheduler.hint_ahead_sec is {hint}: must be more than scheduler.hydrate_ahead_sec ({hydrate}), "
            "or jobs stored during a hydrator round fire late"
        )
        yield Flaw("/scheduler/hint_ahead_sec", detail, hint)


def _flaws_of_sizes(settings: Settings) -> Iterator[Flaw]:
    """Check that dispatches and reports fit into a Kafka message. Without Kafka there is no such limit."""
    if settings.kafka.servers is None:
        return
    for kind, needed in settings.sizes.misfits():
        detail = (
            f"kafka.message_bytes is {settings.kafka.message_bytes}, but a {kind} within the configured limits may need "
            f"{needed}: lower {_LIMITS_OF[kind]}, or raise kafka.message_bytes and the brokers' message.max.bytes to {needed}"
        )
        yield Flaw("/kafka/message_bytes", detail, settings.kafka.message_bytes, f"at least {needed}")


_LIMITS_OF = {
    "dispatch": "limits.payload_bytes or limits.progress_bytes",
    "report": "limits.result_bytes or limits.progress_bytes",
}


def _raise_flaws(flaws: list[Flaw]) -> None:
    if flaws:
        raise BadSettings("\n".join(flaw.detail for flaw in flaws), flaws=tuple(flaws))


def _pointer(key: str) -> str:
    return "/" + key.replace(".", "/")


def _shortened(text: str) -> str:
    return text if len(text) <= 80 else f"{text[:77]}..."


def _variable_of(key: str) -> str:
    return PREFIX + key.replace(".", "_").upper()


def _sections() -> dict[str, type[Section]]:
    return {info.name: info.type for info in msgspec.structs.fields(Settings) if _is_section(info.type)}


def _is_section(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, Section)


def _types() -> dict[str, _SettingType]:
    types = {}
    for info in msgspec.structs.fields(Settings):
        if not _is_section(info.type):
            types[info.name] = _SettingType.of(info.type, info.default)
    for section, section_type in _SECTIONS.items():
        for info in msgspec.structs.fields(section_type):
            types[f"{section}.{info.name}"] = _SettingType.of(info.type, info.default)
    return types


_SECTIONS = _sections()
_TYPES = _types()
_BY_VARIABLE = {_variable_of(key): key for key in _TYPES} | SHORT_VARIABLES
_BY_FLAG = {key.replace(".", "_"): key for key in _TYPES}
