"""Settings of those who call: tokens, encryption, browsers and limits."""

from typing import Annotated, Literal

from msgspec import Meta

from noonday.wiring.settings.section import Section, comma_separated


class AuthSettings(Section, frozen=True, kw_only=True):
    """Tokens that the API accepts."""

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
    log_bytes: Annotated[
        int,
        Meta(
            ge=0,
            le=1_048_576,
            description="Maximum size of the log lines that are kept of each attempt, in bytes: the last ones. 0 keeps none.",
        ),
    ] = 65_536
    enqueued_jobs: Annotated[
        int, Meta(ge=0, le=10_000, description="Maximum number of jobs that one attempt of a handler may enqueue.")
    ] = 1_000
    enqueued_bytes: Annotated[
        int,
        Meta(
            ge=0,
            le=67_108_864,
            description="Maximum size of the jobs that one attempt of a handler may enqueue, with their payloads, in bytes.",
        ),
    ] = 262_144
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
    """Access of browsers to the server."""

    origins: Annotated[
        str | None,
        Meta(
            description="URLs under which browsers reach this server, such as `https://jobs.example.com`, separated by commas. "
            "A server on loopback also accepts localhost."
        ),
    ] = None

    @property
    def known_origins(self) -> tuple[str, ...]:
        return comma_separated(self.origins)
