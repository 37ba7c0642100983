"""JSON Schema constraints for alert preferences; `contract` has those for jobs."""

from noonday.api.contract_of_tasks import URL
from noonday.api.schemas import Schema, choice, only
from noonday.mail.addresses import ADDRESS, LONGEST
from noonday.model.url import MAX_LENGTH

_ID = r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"
_CHANNELS: dict[str, tuple[str, str, Schema, str]] = {
    "Email": ("EMAIL", "address", {"pattern": ADDRESS, "maxLength": LONGEST}, "Email to an address."),
    "OperationalWebhook": (
        "WEBHOOK",
        "url",
        {"format": "uri", "pattern": URL, "maxLength": MAX_LENGTH},
        "Signed HTTP request to a URL.",
    ),
    "Push": (
        "PUSH",
        "address",
        {"minLength": 1, "maxLength": 1000},
        "Address that a configured push channel understands.",
    ),
}
"""Type, required field, schema of that field and description, by title."""
_EXAMPLE = {
    "channel": {"type": "EMAIL", "address": "ops@example.com"},
    "kinds": ["EXHAUSTED", "RECOVERED"],
    "digest_seconds": 300,
}


def narrow(components: dict[str, Schema], ref: str, *, name: str, pool: str) -> None:
    """Add constraints to the generated schemas of preferences. `name` and `pool` are patterns."""
    whole = components["PreferenceSpec"]
    fields = whole["properties"]
    fields["user"]["anyOf"][0] |= {"pattern": name}
    fields["pools"]["items"] |= {"pattern": pool}
    for ids in ("task_ids", "job_ids"):
        fields[ids]["items"] |= {"pattern": _ID, "format": "uuid"}
    whole["examples"] = [_EXAMPLE]
    _split_channel(components, ref)


def _split_channel(components: dict[str, Schema], ref: str) -> None:
    whole = components["Recipient"]
    for title, (type_, needed, form, about) in _CHANNELS.items():
        properties = {"type": only(type_), needed: {"type": "string", **form}}
        variant = {"title": title, "description": about, "properties": properties, "required": ["type", needed]}
        components[title] = whole | variant
    components["Recipient"] = choice(whole, _CHANNELS, ref)
