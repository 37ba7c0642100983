"""JSON Schema constraints for tasks; `contract` has those for jobs."""

from noonday.api.cron_pattern import CRON
from noonday.api.schemas import Schema, choice, constrain, only
from noonday.model.retry import MAX_DELAY_MS
from noonday.model.tasks.wire import GONE_STATUS, MOST_ATTEMPTS
from noonday.model.url import MAX_LENGTH
from noonday.tasks.phrases import ALLOWED, LONGEST
from noonday.tasks.translating import LAST_STATUS, LEAST_STATUS, MOST_STATUSES
from noonday.webhooks.handler import MAX_TIMEOUT_SEC
from noonday.webhooks.headers import MAX_HEADERS

URL = r"^[Hh][Tt][Tt][Pp][Ss]?://[^\s\\]+$"
HEADER_NAME = r"^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,200}$"
HEADER_VALUE = r"^[\t\x20-\x7e]*$"
_FIRST_WORDS = ("every", "hourly", "daily", "weekly", "monthly")
INTERVAL = rf"^\s*({'|'.join(''.join(f'[{c.upper()}{c}]' for c in word) for word in _FIRST_WORDS)})"

_URL: Schema = {"format": "uri", "pattern": URL, "maxLength": MAX_LENGTH}
_DELAY: Schema = {"type": "integer", "minimum": 0, "maximum": MAX_DELAY_MS}
_ATTEMPTS: Schema = {"type": "integer", "minimum": 1, "maximum": MOST_ATTEMPTS}
_STATUS: Schema = {"type": "integer", "minimum": LEAST_STATUS, "maximum": LAST_STATUS, "not": only(GONE_STATUS)}
_STATUSES: Schema = {"type": "array", "items": _STATUS, "maxItems": MOST_STATUSES}
_COMMON = ("name", "payload", "timezone", "retry", "timeout_seconds", "ordering_key")
_VARIANTS: dict[str, tuple[str, str, tuple[str, ...], str]] = {
    "OneTimeTask": ("ONE_TIME", "scheduled_at", ("ordered",), "Called once, at `scheduled_at`."),
    "CronTask": ("RECURRING", "cron_expression", ("end_date", "ordered"), "Called on a cron schedule, in a time zone."),
    "IntervalTask": (
        "RECURRING",
        "interval",
        ("end_date", "ordered"),
        'Called at an interval in words. "every 15 minutes" counts from the creation of the task.',
    ),
}
"""Type, required field, further fields and description, by title."""
_CALL = {"webhook_url": "https://api.example.com/reports", "method": "POST", "body": {"report_type": "daily"}}
_EXAMPLES: dict[str, Schema] = {
    "OneTimeTask": {"type": "ONE_TIME", "payload": _CALL, "scheduled_at": "2040-01-31T09:00:00Z"},
    "CronTask": {
        "name": "Daily Report",
        "type": "RECURRING",
        "payload": _CALL,
        "cron_expression": "0 8 * * *",
        "end_date": "2040-12-31T00:00:00Z",
    },
    "IntervalTask": {
        "type": "RECURRING",
        "payload": _CALL,
        "interval": "weekly on mon 09:00",
        "timezone": "Asia/Tokyo",
    },
}


def narrow(components: dict[str, Schema], ref: str, *, name: str, instant: str) -> None:
    """Add constraints to the generated schemas of tasks. `name` and `instant` are patterns."""
    _narrow_call(components["TaskPayload"]["properties"])
    constrain(components["NewSecret"]["properties"]["endpoint"], ("string",), **_URL)
    _narrow_retry(components, ref)
    for whole in ("TaskSpec", "TaskPatch"):
        _narrow_fields(components[whole]["properties"], ref, name, instant)
    _split_spec(components, ref)
    _split_patch(components, ref)


def _narrow_call(call: Schema) -> None:
    call["webhook_url"] |= _URL
    call["headers"] |= {
        "maxProperties": MAX_HEADERS,
        "propertyNames": {"pattern": HEADER_NAME},
        "additionalProperties": {"type": "string", "pattern": HEADER_VALUE},
    }


def _narrow_retry(components: dict[str, Schema], ref: str) -> None:
    """Split TaskRetry: either a list of delays, or an initial delay. `{}` matches both."""
    whole = components["TaskRetry"]
    delays = {"type": "array", "items": _DELAY, "minItems": 1, "maxItems": 100}
    variants: dict[str, Schema] = {
        "ListRetry": {"backoff": only("LIST"), "delays_ms": delays},
        "GrowingRetry": {"backoff": {"type": "string", "enum": ["EXPONENTIAL", "FIXED"]}, "initial_delay_ms": _DELAY},
    }
    for title, fields in variants.items():
        components[title] = {
            "title": title,
            "type": "object",
            "properties": {"max_attempts": _ATTEMPTS, "statuses": _STATUSES, **fields},
            "required": [],
            "additionalProperties": False,
        }
    components["TaskRetry"] = choice(whole, variants, ref, keyword="anyOf")


def _narrow_fields(fields: Schema, ref: str, name: str, instant: str) -> None:
    patterns: dict[str, Schema] = {
        "name": {"pattern": name},
        "ordering_key": {"pattern": name},
        "scheduled_at": {"pattern": instant},
        "end_date": {"pattern": instant},
        "cron_expression": {"format": "cron", "pattern": CRON, "examples": ["0 8 * * *"]},
        "interval": {"format": "interval", "pattern": INTERVAL, "maxLength": LONGEST, "examples": list(ALLOWED)},
    }
    for field, pattern in patterns.items():
        constrain(fields[field], ("string",), **pattern)
    fields["timezone"]["anyOf"][0] = {"$ref": ref.format(name="TimeZone")}
    fields["timeout_seconds"] |= {"minimum": 0.001, "maximum": MAX_TIMEOUT_SEC}


def _split_spec(components: dict[str, Schema], ref: str) -> None:
    whole = components["TaskSpec"]
    for title, (type_, needed, others, about) in _VARIANTS.items():
        fields = {field: whole["properties"][field] for field in (*_COMMON, *others)}
        if type_ == "ONE_TIME":
            fields["ordered"] = only(False)
        field_schema = next(option for option in whole["properties"][needed]["anyOf"] if option["type"] != "null")
        components[title] = whole | {
            "title": title,
            "description": about,
            "properties": {"type": only(type_), needed: field_schema, **fields},
            "required": ["type", needed, "payload"],
            "examples": [_EXAMPLES[title]],
        }
    components["TaskSpec"] = choice(whole, _VARIANTS, ref)


def _split_patch(components: dict[str, Schema], ref: str) -> None:
    whole = components["TaskPatch"]
    fields = dict(whole["properties"])
    status = {"status": fields.pop("status")}
    pause = {
        "title": "TaskStatusChange",
        "description": "Pauses or resumes the task.",
        "properties": status,
        "required": ["status"],
    }
    change = {"title": "TaskChange", "description": "Fields to change.", "properties": fields, "minProperties": 1}
    components |= {"TaskStatusChange": whole | pause, "TaskChange": whole | change}
    components["TaskPatch"] = choice(whole, ["TaskStatusChange", "TaskChange"], ref)
