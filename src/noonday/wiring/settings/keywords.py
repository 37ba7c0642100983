"""The keyword arguments that set settings in an application. `scripts/write-settings-doc` writes this file."""

from typing import Literal, TypedDict


class SettingKeywords(TypedDict, total=False):
    """Settings by key, with an underscore in place of the dot: `worker_concurrency=50`."""

    host: str
    port: int
    log_level: Literal["CRITICAL", "DEBUG", "ERROR", "INFO", "WARNING"]
    log_format: Literal["json", "text"]
    logs_url_template: str | None
    auth_secret: str | None
    auth_algorithm: Literal["ES256", "HS256", "RS256"]
    auth_jwks_url: str | None
    auth_jwks_file: str | None
    auth_audience: str | None
    auth_issuer: str | None
    encryption_keys: str | None
    store_synchronous: Literal["FULL", "NORMAL"]
    store_cache_mb: int
    store_busy_timeout_ms: int
    scheduler_lead_ms: int
    scheduler_batch: int
    scheduler_hydrate_ahead_sec: int
    scheduler_hint_ahead_sec: int
    scheduler_index_entries: int
    scheduler_sweep_every_ms: int
    scheduler_grace_ms: int
    worker_concurrency: int
    worker_threads: int
    worker_processes: int
    worker_drain_sec: int
    worker_beat_sec: int
    worker_cancel_grace_sec: int
    worker_max_abandoned: int
    worker_retry_breaker_min_runs_per_minute: int
    worker_hook_timeout_sec: int
    worker_failure_log_level: Literal["CRITICAL", "DEBUG", "ERROR", "INFO", "WARNING"]
    worker_handler_log_level: Literal["CRITICAL", "DEBUG", "ERROR", "INFO", "WARNING"]
    remote_lease_sec: int
    remote_concurrency: int
    remote_pools: str
    webhooks_concurrency: int
    webhooks_allow_networks: str | None
    webhooks_max_timeout_sec: int
    webhooks_share_percent: int
    webhooks_ca_file: str | None
    notifications_concurrency: int
    notifications_retention_days: int
    shell_allow: bool
    shell_tenants: str
    shell_concurrency: int
    shell_output_bytes: int
    email_host: str | None
    email_port: int
    email_username: str | None
    email_password: str | None
    email_password_file: str | None
    email_tls: bool
    email_starttls: Literal["always", "auto", "never"]
    email_ca_file: str | None
    email_sender: str | None
    email_timeout_sec: int
    email_recipients: str | None
    alerts_late_after_sec: int
    alerts_slow_after_sec: int
    retention_succeeded_days: int
    retention_cancelled_days: int
    retention_expired_days: int
    retention_dead_days: int
    retention_jobs_days: int
    retention_decisions_days: int
    retention_audit_days: int
    retention_alerts_days: int
    limits_payload_bytes: int
    limits_progress_bytes: int
    limits_result_bytes: int
    limits_log_bytes: int
    limits_enqueued_jobs: int
    limits_enqueued_bytes: int
    limits_batch_jobs: int
    limits_idempotency_hours: int
    limits_connections: int
    ui_origins: str | None
    telemetry_otlp_endpoint: str | None
    telemetry_service_name: str
    metrics_tenants: bool
    metrics_max_tenants: int
    postgres_url: str | None
    postgres_schema: str
    postgres_sessions: int
    postgres_ca_file: str | None
    redis_url: str | None
    redis_ca_file: str | None
    kafka_servers: str | None
    kafka_user: str | None
    kafka_password: str | None
    kafka_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
    kafka_tls: bool
    kafka_ca_file: str | None
    kafka_message_bytes: int
    kafka_pool_partitions: int
    kafka_log_partitions: int
    kafka_replication: int | None
    etcd_urls: str | None
    etcd_user: str | None
    etcd_password: str | None
    etcd_ca_file: str | None
    etcd_cert_file: str | None
    etcd_key_file: str | None
    cluster_name: str
    cluster_leases: Literal["etcd", "redis"]
    cluster_lease_ttl_sec: int
    cluster_hot_index: Literal["memory", "redis"]
    cluster_max_clock_offset_sec: int
