"""Checks of settings that are valid alone and contradict each other."""

from collections.abc import Iterator
from ipaddress import ip_address
from string import Formatter

from noonday.mail.addresses import flaw_of_allowed, flaw_of_sender
from noonday.model.errors import BadSettings, Flaw, InvalidInput
from noonday.model.origin import host_of
from noonday.webhooks.addresses import Networks
from noonday.wiring.settings import Settings
from noonday.wiring.settings.access import AuthSettings, UiSettings
from noonday.wiring.settings.outgoing import EmailSettings, WebhookSettings

EXAMPLE_SECRETS = ("replace-me", "change-me", "changeme")
"""Prefixes of example secrets in manuals, which users may copy."""


def check(settings: Settings) -> None:
    """Check combinations of values. Raises BadSettings if values that are valid alone contradict each other."""
    raise_flaws(
        [
            *_flaws_of_auth(settings.auth),
            *_flaws_of_exposure(settings),
            *_flaws_of_template(settings),
            *_flaws_of_horizons(settings),
            *_flaws_of_sizes(settings),
            *_flaws_of_networks(settings.webhooks),
            *_flaws_of_origins(settings.ui),
            *_flaws_of_email(settings.email),
        ]
    )


def raise_flaws(flaws: list[Flaw]) -> None:
    if flaws:
        raise BadSettings("\n".join(flaw.detail for flaw in flaws), flaws=tuple(flaws))


def is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


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
    "report": "limits.result_bytes, limits.progress_bytes or limits.enqueued_bytes",
}
