"""Everything that can be set, where it may come from, and what is said when it is wrong.

A value comes from a flag, else from the environment, else from `noonday.toml`, else it is the default. Nothing unknown
is passed over: a misspelt name is an error that names the nearest one. An empty variable counts as not set.
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
"""Variables that are ours but set nothing here: where the settings are, and what the client reads."""

SHORT_VARIABLES = {"NOONDAY_KEYS": "encryption.keys"}
"""Second names, for what is set by hand most often."""


class Role(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings that belong together. Printing one never shows a secret."""

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [(info.name, self._shown(info)) for info in msgspec.structs.fields(self)]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self.__rich_repr__())})"

    def _shown(self, info: msgspec.structs.FieldInfo) -> Any:
        value = getattr(self, info.name)
        return _HIDDEN if value is not None and _Shape.of(info.type).secret else value


class AuthSettings(Role, frozen=True, kw_only=True):
    """Whose tokens are accepted."""

    secret: Annotated[
        Annotated[str, Meta(min_length=32)] | None,
        Meta(
            description="Shared secret that tokens are signed with (HS256), at least 32 characters. "
            "Without one, the server makes its own next to the data and serves loopback only.",
            extra={"secret": True},
        ),
    ] = None
    algorithm: Annotated[
        Literal["HS256", "RS256", "ES256"],
        Meta(description="The one algorithm that is accepted. RS256 and ES256 need a key set (JWKS)."),
    ] = "HS256"
    jwks_url: Annotated[
        Annotated[str, Meta(pattern="^https?://")] | None,
        Meta(description="Where the identity provider publishes its keys (JWKS)."),
    ] = None
    jwks_file: Annotated[str | None, Meta(description="The key set (JWKS) as a file, in place of jwks_url.")] = None
    audience: Annotated[
        str | None, Meta(description="If set, a token's `aud` must name it. Beyond loopback, RS256 and ES256 need it.")
    ] = None
    issuer: Annotated[
        str | None, Meta(description="If set, a token's `iss` must be it. Beyond loopback, RS256 and ES256 need it.")
    ] = None


class EncryptionSettings(Role, frozen=True, kw_only=True):
    """What payloads, progress and results are encrypted with at rest."""

    keys: Annotated[
        str | None,
        Meta(
            description="Keys as `id:base64,id:base64`, 32 bytes each; the first one seals, all of them open. "
            "Without it, the server keeps a key file next to the data.",
            extra={"secret": True},
        ),
    ] = None


class StoreSettings(Role, frozen=True, kw_only=True):
    """The SQLite file."""

    synchronous: Annotated[
        Literal["FULL", "NORMAL"],
        Meta(description="FULL loses nothing when the power fails; NORMAL may lose the last moments, and is faster."),
    ] = "FULL"
    cache_mb: Annotated[int, Meta(ge=1, le=65_536, description="Memory for pages of the file.")] = 64
    busy_timeout_ms: Annotated[
        int, Meta(ge=0, le=600_000, description="How long a statement waits for a lock on the file.")
    ] = 5000


class SchedulerSettings(Role, frozen=True, kw_only=True):
    """How due work is found and fired."""

    lead_ms: Annotated[
        int, Meta(ge=0, le=60_000, description="How long before its time a job is handed to a worker, which holds it.")
    ] = 200
    batch: Annotated[int, Meta(ge=1, le=100_000, description="How many are fired in one transaction at most.")] = 2000
    hydrate_ahead_sec: Annotated[
        int, Meta(ge=1, le=86_400, description="How far ahead of time the near future is kept in memory.")
    ] = 600
    hint_ahead_sec: Annotated[
        int,
        Meta(
            ge=1,
            le=172_800,
            description="A job due within this is put in memory when it is stored. More than hydrate_ahead_sec.",
        ),
    ] = 1200
    index_entries: Annotated[
        int,
        Meta(
            ge=1_000,
            le=100_000_000,
            description="How many entries of the near future a process keeps in memory at most, about 600 bytes each; the rest "
            "stays in the store until there is room.",
        ),
    ] = INDEX_ENTRIES
    sweep_every_ms: Annotated[
        int, Meta(ge=10, le=3_600_000, description="How often the sweeper looks for what was missed.")
    ] = 1000
    grace_ms: Annotated[
        int, Meta(ge=0, le=3_600_000, description="How overdue something must be before the sweeper takes it.")
    ] = 2000


class WorkerSettings(Role, frozen=True, kw_only=True):
    """How handlers are run."""

    concurrency: Annotated[int, Meta(ge=1, le=100_000, description="How many handlers run at once in a pool.")] = 100
    threads: Annotated[int, Meta(ge=1, le=10_000, description="Threads for handlers that are not async.")] = 32
    processes: Annotated[
        int, Meta(ge=0, le=1_000, description="Processes for handlers that ask for their own; 0 allows none.")
    ] = 2
    drain_sec: Annotated[
        int,
        Meta(
            ge=0,
            le=86_400,
            description="Time that running handlers have to finish when the process is stopped. With cancel_grace_sec and 2 s "
            "more it has to fit into what the supervisor waits before it kills (Kubernetes: 30 s).",
        ),
    ] = 20
    beat_sec: Annotated[int, Meta(ge=1, le=3_600, description="How often a worker says that it is alive.")] = 10
    cancel_grace_sec: Annotated[
        int,
        Meta(
            ge=0,
            le=86_400,
            description="Time that a cancelled handler has to stop. A process is killed then; a thread or coroutine that goes on "
            "is abandoned.",
        ),
    ] = 5
    max_abandoned: Annotated[
        int,
        Meta(
            ge=1,
            le=10_000,
            description="Abandoned runs that are replaced. With this many, the worker is not ready, and `noonday worker` starts "
            "a successor.",
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


class WebhookSettings(Role, frozen=True, kw_only=True):
    """How tasks call webhooks."""

    concurrency: Annotated[
        int,
        Meta(ge=0, le=100_000, description="Calls in flight at once in one process; 0 leaves them to other processes."),
    ] = 1000
    allow_networks: Annotated[
        str | None,
        Meta(
            description="Networks that may be called although they are not public, such as `127.0.0.0/8,10.1.0.0/16`."
        ),
    ] = None
    max_timeout_sec: Annotated[
        int, Meta(ge=1, le=3600, description="How long a call may take at most, whatever its task says.")
    ] = 300
    share_percent: Annotated[
        int,
        Meta(
            ge=1,
            le=100,
            description="Part of the slots that one tenant may hold, of those that others leave; an endpoint, of its tenant's.",
        ),
    ] = 50
    ca_file: Annotated[
        str | None,
        Meta(description="Who may have signed the receivers' certificates, besides those the system trusts."),
    ] = None

    @property
    def networks(self) -> tuple[str, ...]:
        return _listed(self.allow_networks)


class EmailSettings(Role, frozen=True, kw_only=True):
    """How notices are sent by email."""

    host: Annotated[
        str | None, Meta(description="The mail server (SMTP) that takes our mail; without it no email is sent.")
    ] = None
    port: Annotated[int, Meta(ge=1, le=65_535, description="Its port: 587 as a rule, 465 with email.tls.")] = 587
    username: Annotated[str | None, Meta(description="The name to authenticate with.")] = None
    password: Annotated[str | None, Meta(description="Its password.", extra={"secret": True})] = None
    password_file: Annotated[
        str | None,
        Meta(description="A file with the password, in place of email.password; only its owner may read it."),
    ] = None
    tls: Annotated[bool, Meta(description="Whether the connection is encrypted from its first byte.")] = False
    starttls: Annotated[
        Literal["auto", "always", "never"],
        Meta(
            description="Whether a plain connection becomes an encrypted one: `auto` always, but for a server on this machine."
        ),
    ] = "auto"
    ca_file: Annotated[
        str | None, Meta(description="Who signed the server's certificate, besides those the system trusts.")
    ] = None
    sender: Annotated[
        str | None, Meta(description="The address that mail comes from, such as `Noonday <noonday@example.com>`.")
    ] = None
    timeout_sec: Annotated[int, Meta(ge=1, le=600, description="How long one answer of the server may take.")] = 30
    recipients: Annotated[
        str | None,
        Meta(description="Addresses and domains that notices may be sent to, such as `example.com`; unset allows all."),
    ] = None

    @property
    def allowed_recipients(self) -> tuple[str, ...]:
        return _listed(self.recipients)


class AlertSettings(Role, frozen=True, kw_only=True):
    """When what does not happen, or does not end, becomes an alert."""

    late_after_sec: Annotated[
        int, Meta(ge=10, le=604_800, description="What is due for so long and has not begun is an alert.")
    ] = 60
    slow_after_sec: Annotated[
        int,
        Meta(ge=10, le=604_800, description="A run of less is never an alert, however short its job runs otherwise."),
    ] = 60


class RetentionSettings(Role, frozen=True, kw_only=True):
    """How long what is over is kept; 0 keeps it no longer than the next pruning."""

    succeeded_days: Annotated[int, Meta(ge=0, le=36_500, description="Executions that succeeded.")] = 7
    cancelled_days: Annotated[int, Meta(ge=0, le=36_500, description="Executions that were cancelled.")] = 7
    expired_days: Annotated[int, Meta(ge=0, le=36_500, description="Executions that came too late to start.")] = 7
    dead_days: Annotated[int, Meta(ge=0, le=36_500, description="Dead letters.")] = 30
    jobs_days: Annotated[int, Meta(ge=0, le=36_500, description="Jobs that will not fire again.")] = 30
    decisions_days: Annotated[int, Meta(ge=0, le=36_500, description="Why an occurrence did or did not run.")] = 30
    audit_days: Annotated[int, Meta(ge=0, le=36_500, description="Who did what.")] = 90
    alerts_days: Annotated[int, Meta(ge=0, le=36_500, description="Alerts, after they last happened.")] = 90


class LimitSettings(Role, frozen=True, kw_only=True):
    """What one request or one result may hold."""

    payload_bytes: Annotated[int, Meta(ge=1, le=67_108_864, description="Largest payload of a job.")] = 262_144
    progress_bytes: Annotated[
        int, Meta(ge=1, le=67_108_864, description="Largest progress that a handler may hand over with a heartbeat.")
    ] = 65_536
    result_bytes: Annotated[int, Meta(ge=1, le=67_108_864, description="Largest result of a handler.")] = 65_536
    batch_jobs: Annotated[int, Meta(ge=1, le=1_000_000, description="Most jobs in one batch request.")] = 10_000
    idempotency_hours: Annotated[
        int, Meta(ge=1, le=8_760, description="How long an Idempotency-Key is remembered.")
    ] = 24
    connections: Annotated[
        int,
        Meta(
            ge=1,
            le=1_000_000,
            description="Most connections of clients at once; beyond that the longest waiting one is closed.",
        ),
    ] = 1_000


class UiSettings(Role, frozen=True, kw_only=True):
    """What browsers are shown."""

    origins: Annotated[
        str | None,
        Meta(
            description="Addresses that browsers call this server by, such as `https://jobs.example.com`; several with "
            "commas between. localhost is known without it, while the server listens on loopback."
        ),
    ] = None

    @property
    def known_origins(self) -> tuple[str, ...]:
        return tuple(each.strip() for each in (self.origins or "").split(",") if each.strip())


class TelemetrySettings(Role, frozen=True, kw_only=True):
    """What is told to the outside."""

    otlp_endpoint: Annotated[
        Annotated[str, Meta(pattern="^https?://")] | None,
        Meta(description="Where traces are sent (OTLP over HTTP); without it they are not."),
    ] = None
    service_name: Annotated[str, Meta(min_length=1, description="The name that traces carry.")] = "noonday"


class MetricsSettings(Role, frozen=True, kw_only=True):
    """What is counted besides what always is."""

    tenants: Annotated[bool, Meta(description="Whether runs are also counted for each tenant.")] = False
    max_tenants: Annotated[
        int,
        Meta(
            ge=1, le=100_000, description="The first so many tenants have a label of their own; all others share one."
        ),
    ] = 100

    @property
    def named_tenants(self) -> int:
        return self.max_tenants if self.tenants else 0


class PostgresSettings(Role, frozen=True, kw_only=True):
    """Where the truth is kept on a cluster."""

    url: Annotated[
        Annotated[str, Meta(pattern="^postgres(ql)?://")] | None,
        Meta(
            description="PostgreSQL 15 or later, such as `postgresql://user:password@host/noonday`.",
            extra={"secret": True},
        ),
    ] = None
    schema: Annotated[
        str, Meta(pattern="^[a-z_][a-z0-9_]{0,62}$", description="The schema that everything is kept in.")
    ] = "noonday"
    sessions: Annotated[int, Meta(ge=2, le=1_000, description="Sessions that one process may have at most.")] = 10
    ca_file: Annotated[
        str | None, Meta(description="Who signed the server's certificate; then sessions are always encrypted.")
    ] = None


class RedisSettings(Role, frozen=True, kw_only=True):
    """Claims, flags and hints on a cluster. It may lose everything at any time."""

    url: Annotated[
        Annotated[str, Meta(pattern="^rediss?://")] | None,
        Meta(
            description="Redis 7 or later, such as `redis://:password@host:6379/0`; `rediss://` for TLS.",
            extra={"secret": True},
        ),
    ] = None
    ca_file: Annotated[str | None, Meta(description="Who signed the server's certificate, for `rediss://`.")] = None


class KafkaSettings(Role, frozen=True, kw_only=True):
    """What carries work to workers and reports back on a cluster."""

    servers: Annotated[
        Annotated[str, Meta(min_length=1)] | None,
        Meta(description="Brokers as `host:port,host:port`; Kafka 3.9 or later."),
    ] = None
    user: Annotated[str | None, Meta(description="The name to authenticate with (SASL).")] = None
    password: Annotated[str | None, Meta(description="Its password.", extra={"secret": True})] = None
    mechanism: Annotated[
        Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"], Meta(description="How the password is shown.")
    ] = "SCRAM-SHA-512"
    tls: Annotated[bool, Meta(description="Whether brokers are spoken to over TLS.")] = False
    ca_file: Annotated[str | None, Meta(description="Who signed the brokers' certificates. Implies tls.")] = None
    message_bytes: Annotated[
        int,
        Meta(
            ge=65_536,
            le=134_217_728,
            description="Largest message that the brokers accept (their `message.max.bytes`). "
            "A payload and a progress of the largest allowed sizes must fit into one.",
        ),
    ] = MESSAGE_BYTES
    pool_partitions: Annotated[
        int,
        Meta(ge=1, le=1_000, description="Partitions of the topics of a pool that is new: most workers that share it."),
    ] = 8
    log_partitions: Annotated[
        int, Meta(ge=1, le=1_000, description="Partitions of a log that is new: most recorders that share it.")
    ] = 16
    replication: Annotated[
        int | None,
        Meta(description="Copies of topics that are new; without it as many as there are brokers, 3 at most."),
    ] = None


class EtcdSettings(Role, frozen=True, kw_only=True):
    """Who is a member of a cluster."""

    urls: Annotated[
        Annotated[str, Meta(pattern="^https?://")] | None,
        Meta(description="Endpoints as `http://host:2379,http://...`; etcd 3.4 or later."),
    ] = None
    user: Annotated[str | None, Meta(description="The name to authenticate with.")] = None
    password: Annotated[str | None, Meta(description="Its password.", extra={"secret": True})] = None
    ca_file: Annotated[str | None, Meta(description="Who signed the servers' certificates.")] = None
    cert_file: Annotated[str | None, Meta(description="Our certificate, if they ask for one.")] = None
    key_file: Annotated[str | None, Meta(description="The key of our certificate.")] = None


class ClusterSettings(Role, frozen=True, kw_only=True):
    """What the processes of a cluster have in common."""

    name: Annotated[
        str, Meta(pattern="^[a-z0-9-]{1,40}$", description="Two clusters on the same servers differ in it.")
    ] = "noonday"
    leases: Annotated[Literal["etcd", "redis"], Meta(description="Which server says who is a member.")] = "etcd"
    lease_ttl_sec: Annotated[int, Meta(ge=1, le=60, description="How long a dead process keeps its partitions.")] = 3
    hot_index: Annotated[
        Literal["memory", "redis"],
        Meta(description="Where the near future is kept: in the process that owns it, or in Redis."),
    ] = "memory"
    max_clock_offset_sec: Annotated[
        int, Meta(ge=1, le=86_400, description="A process whose clock is further off than this does not start.")
    ] = 60


class Settings(Role, frozen=True, kw_only=True):
    """All of it. Made by `load_settings`, or by hand in a program that embeds Noonday."""

    data: Annotated[str, Meta(min_length=1, description="The SQLite file; made if it does not exist.")] = "noonday.db"
    host: Annotated[
        str, Meta(min_length=1, description="Address the API listens on. Beyond loopback, [auth] must be configured.")
    ] = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65_535, description="Port of the API; 0 takes a free one.")] = 8080
    log_level: Annotated[
        Literal["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"], Meta(description="The least that is logged.")
    ] = "WARNING"
    log_format: Annotated[Literal["text", "json"], Meta(description="Lines for people, or for programs.")] = "text"
    logs_url_template: Annotated[
        str | None,
        Meta(description="Where an execution's logs are, such as `https://logs/{executionId}`; shown as logsUrl."),
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
        """Raise BadSettings if values that are valid alone do not go together."""
        _refuse(
            [
                *_flaws_of_auth(self.auth),
                *_flaws_of_exposure(self),
                *_flaws_of_template(self),
                *_flaws_of_reach(self),
                *_flaws_of_sizes(self),
                *_flaws_of_networks(self.webhooks),
                *_flaws_of_origins(self.ui),
                *_flaws_of_email(self.email),
            ]
        )


@dataclass(frozen=True)
class SettingDoc:
    """One setting, for documents and for `noonday settings`."""

    key: str
    env: str
    type: str
    default: Any
    help: str
    secret: bool = False


def load_settings(flags: Mapping[str, Any], environ: Mapping[str, str], file: Path | None = None) -> Settings:
    """Settings from flags, then `NOONDAY_*`, then the file, then defaults; checked.

    `flags` are by key (`scheduler.lead_ms`, or `scheduler_lead_ms`); None means not given. `file` is the one named by
    --config; without it NOONDAY_CONFIG, then `noonday.toml` in the working directory. Raises BadSettings that lists
    everything wrong: key, value, where it came from, what is allowed.
    """
    given: dict[str, _Given] = {}
    flaws = list(_flaws_of_second_names(environ))
    for each in (*_given_in_file(file, environ), *_given_in_environment(environ), *_given_in_flags(flags)):
        if each.key in _SHAPES:
            given[each.key] = each
        else:
            flaws.append(each.as_unknown())
    values: dict[str, Any] = {}
    for key, each in given.items():
        try:
            values[key] = _SHAPES[key].read(each)
        except ValueError:
            flaws.append(_SHAPES[key].flaw(each))
    _refuse(flaws)
    settings = _build(values)
    settings.check()
    return settings


def describe_settings() -> list[SettingDoc]:
    """Every setting there is, in the order they are declared."""
    return [
        SettingDoc(key, _variable_of(key), shape.name, shape.default, shape.help, shape.secret)
        for key, shape in _SHAPES.items()
    ]


@dataclass(frozen=True)
class _Given:
    """A value somebody gave, and where."""

    key: str
    value: Any
    source: str
    given_as: str
    known: tuple[str, ...]
    is_text: bool
    """Whether a number or a truth value may be written as text, as in the environment."""

    def as_unknown(self) -> Flaw:
        if self.given_as in _SECTIONS:
            return Flaw(
                _pointer(self.key), f"{self.key} is a section, not a setting ({self.source}): write [{self.key}]"
            )
        guess = nearest(self.given_as, self.known)
        hint = f"; did you mean {guess}?" if guess else ""
        detail = f"{self.given_as} is not a setting ({self.source}){hint}"
        return Flaw(_pointer(self.key), detail, nearest=guess)


@dataclass(frozen=True)
class _Shape:
    """What one setting may be."""

    type: Any
    default: Any
    bare: Type
    optional: bool
    help: str
    secret: bool

    @classmethod
    def of(cls, annotation: Any, default: Any = None) -> "_Shape":
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

    def read(self, each: _Given) -> Any:
        """The value in its type. Raises ValueError (as msgspec does) if it cannot be one."""
        value = os.fspath(each.value) if isinstance(each.value, os.PathLike) else each.value
        if isinstance(value, str) and isinstance(self.bare, LiteralType):
            value = next((one for one in self.bare.values if str(one).lower() == value.lower()), value)
        if value == "":
            raise ValueError
        return msgspec.convert(value, self.type, strict=not (each.is_text and isinstance(value, str)))

    def flaw(self, each: _Given) -> Flaw:
        shown = _HIDDEN if self.secret else _shortened(repr(each.value))
        detail = f"{each.key} is {shown} ({each.source}): must be {self.allowed}"
        return Flaw(_pointer(each.key), detail, None if self.secret else each.value, self.allowed)


_HIDDEN = "(hidden)"


def _given_in_file(file: Path | None, environ: Mapping[str, str]) -> Iterator[_Given]:
    path = _find_file(file, environ)
    if path is None:
        return
    for key, value in _flattened(_read_toml(path)):
        yield _Given(key, value, f"file {path}", key, tuple(_SHAPES), is_text=False)


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


def _given_in_environment(environ: Mapping[str, str]) -> Iterator[_Given]:
    known = (*_BY_VARIABLE, *OTHER_VARIABLES)
    for name in sorted(environ):
        if not name.startswith(PREFIX) or name in OTHER_VARIABLES or not environ[name].strip():
            continue
        key = _BY_VARIABLE.get(name, name)
        yield _Given(key, environ[name].strip(), f"environment variable {name}", name, known, is_text=True)


def _flaws_of_second_names(environ: Mapping[str, str]) -> Iterator[Flaw]:
    for short, key in SHORT_VARIABLES.items():
        if environ.get(short) and environ.get(_variable_of(key)):
            yield Flaw(_pointer(key), f"{short} and {_variable_of(key)} are both set, and mean the same: remove one")


def _given_in_flags(flags: Mapping[str, Any]) -> Iterator[_Given]:
    for name, value in flags.items():
        if value is not None:
            key = _BY_FLAG.get(name, name)
            yield _Given(key, value, f"flag {name}", name, tuple(_SHAPES), is_text=True)


def _build(values: Mapping[str, Any]) -> Settings:
    top = {key: value for key, value in values.items() if "." not in key}
    for section, role in _SECTIONS.items():
        prefix = f"{section}."
        top[section] = role(**{key.removeprefix(prefix): v for key, v in values.items() if key.startswith(prefix)})
    return Settings(**top)


EXAMPLE_SECRETS = ("replace-me", "change-me", "changeme")
"""How secrets begin that were copied from a manual, ours or another."""


def _flaws_of_auth(auth: AuthSettings) -> Iterator[Flaw]:
    if auth.secret is not None and auth.secret.lower().startswith(EXAMPLE_SECRETS):
        detail = "auth.secret is an example that everybody can read; make one with: openssl rand -base64 32"
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
        # The keys of a provider sign tokens for all its users and all their applications.
        for name in ("issuer", "audience"):
            if getattr(auth, name) is None:
                detail = (
                    f"host is {settings.host!r}, which others can reach, and auth.{name} is not set: a token that the "
                    "provider made for another application would be accepted"
                )
                yield Flaw(f"/auth/{name}", detail)
    if auth.secret or auth.jwks_url or auth.jwks_file:
        return
    detail = (
        f"host is {settings.host!r}, which others can reach, and no token is configured to keep them out: "
        "set auth.secret (NOONDAY_AUTH_SECRET, for one: openssl rand -base64 32), "
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
    if template is not None and _places_in(template) != {"executionId"}:
        detail = f"logs_url_template is {template!r}: must hold {{executionId}} and no other {{name}}"
        yield Flaw("/logs_url_template", detail, template)


def _places_in(template: str) -> set[str]:
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


def _listed(text: str | None) -> tuple[str, ...]:
    """The entries of a setting that lists them with commas between."""
    return tuple(each.strip() for each in (text or "").split(",") if each.strip())


def _flaws_of_networks(webhooks: WebhookSettings) -> Iterator[Flaw]:
    try:
        Networks(webhooks.networks)
    except InvalidInput as error:
        for flaw in error.flaws:
            yield Flaw("/webhooks/allow_networks", f"webhooks.allow_networks: {flaw.detail}", flaw.value, flaw.allowed)


def _flaws_of_email(email: EmailSettings) -> Iterator[Flaw]:
    if email.host is not None and email.sender is None:
        yield Flaw("/email/sender", "email.host is set, but email.sender is not: say which address mail comes from")
    if email.sender is not None and (wrong := flaw_of_sender(email.sender)):
        yield Flaw("/email/sender", f"email.sender is {email.sender!r}: {wrong}", email.sender)
    if email.password is not None and email.password_file is not None:
        yield Flaw("/email/password_file", "email.password and email.password_file are both set: remove one")
    has_password = email.password is not None or email.password_file is not None
    if (email.username is not None) != has_password:
        yield Flaw("/email/username", "email.username and email.password (or email.password_file) go together")
    for each in email.allowed_recipients:
        if wrong := flaw_of_allowed(each):
            yield Flaw("/email/recipients", f"email.recipients has {each!r}: {wrong}", each)
    if email.tls and email.starttls == "always":
        detail = "email.tls encrypts from the first byte: email.starttls cannot be always"
        yield Flaw("/email/starttls", detail, email.starttls, ["auto", "never"])


def _flaws_of_reach(settings: Settings) -> Iterator[Flaw]:
    hint, hydrate = settings.scheduler.hint_ahead_sec, settings.scheduler.hydrate_ahead_sec
    if hint <= hydrate:
        detail = (
            f"scheduler.hint_ahead_sec is {hint}: must be more than scheduler.hydrate_ahead_sec ({hydrate}), "
            "or a job stored while the hydrator walks is found late"
        )
        yield Flaw("/scheduler/hint_ahead_sec", detail, hint)


def _flaws_of_sizes(settings: Settings) -> Iterator[Flaw]:
    """Without Kafka nothing has to fit into a message."""
    if settings.kafka.servers is None:
        return
    for kind, needed in settings.sizes.misfits():
        detail = (
            f"kafka.message_bytes is {settings.kafka.message_bytes}, but a {kind} within the limits that are set may take "
            f"{needed}: lower {_LIMITS_OF[kind]}, or raise kafka.message_bytes and the brokers' message.max.bytes to {needed}"
        )
        yield Flaw("/kafka/message_bytes", detail, settings.kafka.message_bytes, f"at least {needed}")


_LIMITS_OF = {
    "dispatch": "limits.payload_bytes or limits.progress_bytes",
    "report": "limits.result_bytes or limits.progress_bytes",
}


def _refuse(flaws: list[Flaw]) -> None:
    if flaws:
        raise BadSettings("\n".join(flaw.detail for flaw in flaws), flaws=tuple(flaws))


def _pointer(key: str) -> str:
    return "/" + key.replace(".", "/")


def _shortened(text: str) -> str:
    return text if len(text) <= 80 else f"{text[:77]}..."


def _variable_of(key: str) -> str:
    return PREFIX + key.replace(".", "_").upper()


def _sections() -> dict[str, type[Role]]:
    return {info.name: info.type for info in msgspec.structs.fields(Settings) if _is_role(info.type)}


def _is_role(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, Role)


def _shapes() -> dict[str, _Shape]:
    shapes = {}
    for info in msgspec.structs.fields(Settings):
        if not _is_role(info.type):
            shapes[info.name] = _Shape.of(info.type, info.default)
    for section, role in _SECTIONS.items():
        for info in msgspec.structs.fields(role):
            shapes[f"{section}.{info.name}"] = _Shape.of(info.type, info.default)
    return shapes


_SECTIONS = _sections()
_SHAPES = _shapes()
_BY_VARIABLE = {_variable_of(key): key for key in _SHAPES} | SHORT_VARIABLES
_BY_FLAG = {key.replace(".", "_"): key for key in _SHAPES}
