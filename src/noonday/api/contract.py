"""JSON Schema constraints for the rules that `model.job` validates.

Schemas generated from the types allow too much: any number as `timeoutSec`, a `schedule` for a one-time job. This module
narrows them to what the server accepts, except for rules that no schema can express: which pools exist, the current time, and
the order of two instants. A test compares the constraints with `model.job.check`.
"""

from noonday.api import contract_of_notifications, contract_of_preferences, contract_of_tasks
from noonday.api.cron_pattern import CRON
from noonday.api.schemas import Schema, choice, constrain, drop_empty_defaults, only
from noonday.model.job import JOB_BOUNDS, YEAR_SEC, JobType, wire_name
from noonday.model.retry import MAX_DELAY_MS
from noonday.model.skip import MOST_SKIPS
from noonday.model.tenancy import IN_POOL_BOUNDS, POOL_BOUNDS, TENANT_BOUNDS

TARGET_NAME = r"^[A-Za-z0-9][A-Za-z0-9._:-]{0,99}$"
NAME = r"^[^\x00-\x1f\x7f]{1,200}$"
ZONE = r"^[A-Z][A-Za-z0-9_+-]{1,31}(/[A-Za-z0-9_+-]{1,31}){0,2}$"
# A margin inside the years 1971 to 9000, so that an offset cannot leave them.
INSTANT = r"^(19[89][0-9]|[2-7][0-9]{3}|8[0-8][0-9]{2}|89[0-8][0-9])-"

_BOUNDS: dict[str, dict[str, tuple[float, float]]] = {
    "JobSpec": {wire_name(field): bounds for field, bounds in JOB_BOUNDS.items()},
    "CatchUp": {"windowSec": (10, 10 * YEAR_SEC)},
    "Concurrency": {"limit": (1, 1_000_000)},
    "RetryPolicy": {
        "maxAttempts": (1, 100),
        "initialDelayMs": (0, MAX_DELAY_MS),
        "multiplier": (1, 100),
        "maxDelayMs": (0, MAX_DELAY_MS),
    },
    "SkipRequest": {"next": (1, MOST_SKIPS)},
    "PoolSettings": POOL_BOUNDS,
    "PreviewRequest": {"everySec": (1, 10**9), "phaseSec": (0, 10**9)},
    "TenantSettings": TENANT_BOUNDS,
    "TenantInPool": IN_POOL_BOUNDS,
}
_SCHEDULE: Schema = {"format": "cron", "pattern": CRON, "examples": ["0 3 * * *"]}
_PATTERNS: dict[str, dict[str, Schema]] = {
    "JobSpec": {
        "name": {"pattern": NAME},
        "uniqueKey": {"pattern": NAME},
        "schedule": _SCHEDULE,
        "runAt": {"pattern": INSTANT},
        "startAt": {"pattern": INSTANT},
        "endAt": {"pattern": INSTANT},
    },
    "Target": {"pool": {"pattern": TARGET_NAME}, "handler": {"pattern": TARGET_NAME}},
    "Concurrency": {"key": {"pattern": NAME}},
    "PreviewRequest": {"schedule": _SCHEDULE, "from": {"pattern": INSTANT}},
    "BackfillRequest": {"from": {"pattern": INSTANT}, "to": {"pattern": INSTANT}},
    "SkipRequest": {"at": {"pattern": INSTANT}},
    "AcknowledgeRequest": {"until": {"pattern": INSTANT}},
}
_RECURRING = {"startAt", "endAt", "maxRuns", "catchUp"}
_TIMING_FIELDS_OF_TYPE: dict[JobType, set[str]] = {
    JobType.ONE_TIME: {"runAt"},
    JobType.DELAYED: {"delaySec"},
    JobType.CRON: {"schedule", "timezone", "dst", *_RECURRING},
    JobType.INTERVAL: {"everySec", "phaseSec", *_RECURRING},
}
_TIMING_FIELDS = set[str]().union(*_TIMING_FIELDS_OF_TYPE.values())
_REQUIRED: dict[JobType, tuple[str, ...]] = {
    JobType.DELAYED: ("delaySec",),
    JobType.CRON: ("schedule",),
    JobType.INTERVAL: ("everySec",),
}
_VARIANTS = {
    "JobSpec": {type_: f"{''.join(word.capitalize() for word in type_.split('_'))}Job" for type_ in JobType},
    "PreviewRequest": {JobType.CRON: "CronPreview", JobType.INTERVAL: "IntervalPreview"},
}
_DESCRIPTIONS = {
    JobType.ONE_TIME: "Runs once, at `runAt`, or immediately without it.",
    JobType.DELAYED: "Runs once, `delaySec` seconds after it is accepted.",
    JobType.CRON: "Runs on a cron schedule (5 fields, or 6 with seconds first) in a time zone.",
    JobType.INTERVAL: "Runs every `everySec` seconds, counted from the Unix epoch plus `phaseSec`.",
}
_TARGET = {"pool": "demo", "handler": "demo.echo"}
_EXAMPLES: dict[str, list[Schema]] = {
    "OneTimeJob": [{"type": "ONE_TIME", "target": _TARGET, "payload": {"hello": "world"}}],
    "DelayedJob": [{"type": "DELAYED", "target": _TARGET, "delaySec": 60}],
    "CronJob": [
        {
            "type": "CRON",
            "name": "daily-invoice-gen",
            "target": _TARGET,
            "schedule": "0 3 * * *",
            "timezone": "America/Los_Angeles",
            "retryPolicy": {"maxAttempts": 3, "backoff": "EXPONENTIAL", "initialDelayMs": 30_000},
            "timeoutSec": 600,
        }
    ],
    "IntervalJob": [{"type": "INTERVAL", "target": _TARGET, "everySec": 15}],
    "CronPreview": [{"type": "CRON", "schedule": "30 2 * * *", "timezone": "Europe/Berlin", "count": 5}],
    "IntervalPreview": [{"type": "INTERVAL", "everySec": 90, "count": 5}],
}


def narrow(components: dict[str, Schema], ref: str) -> None:
    """Add constraints to generated component schemas. `ref` is the template of a reference."""
    for name, bounds in _BOUNDS.items():
        for field, (low, high) in bounds.items():
            constrain(components[name]["properties"][field], ("number", "integer"), minimum=low, maximum=high)
    for name, patterns in _PATTERNS.items():
        for field, constraints in patterns.items():
            constrain(components[name]["properties"][field], ("string",), **constraints)
    _narrow_lists(components)
    _narrow_batch(components, ref)
    _describe_zones(components, ref)
    drop_empty_defaults(components)
    for name, variants in _VARIANTS.items():
        _split(components, name, variants, ref)
    contract_of_tasks.narrow(components, ref, name=NAME, instant=INSTANT)
    contract_of_preferences.narrow(components, ref, name=NAME, pool=TARGET_NAME)
    contract_of_notifications.narrow(components, ref, instant=INSTANT, zone=ZONE)


def _narrow_lists(components: dict[str, Schema]) -> None:
    job, retry = components["JobSpec"]["properties"], components["RetryPolicy"]["properties"]
    job["tags"] |= {"maxItems": 50, "items": {"type": "string", "pattern": NAME}}
    delay = {"type": "integer", "minimum": 0, "maximum": MAX_DELAY_MS}
    retry["delaysMs"] |= {"minItems": 1, "maxItems": 100, "items": delay}
    components["TenantSettings"]["properties"]["pools"]["propertyNames"] = {"pattern": TARGET_NAME}
    ordered = {"properties": {"ordered": only(True)}, "required": ["ordered"]}
    components["Concurrency"] |= {"if": ordered, "then": {"properties": {"limit": only(1)}}}


def _narrow_batch(components: dict[str, Schema], ref: str) -> None:
    created, refused = {"$ref": ref.format(name="JobView")}, {"$ref": ref.format(name="Problem")}
    components["JobBatch"]["properties"]["jobs"]["items"] = {"$ref": ref.format(name="JobSpec")}
    components["BatchView"]["properties"]["jobs"]["items"] = {"anyOf": [created, refused]}


def _describe_zones(components: dict[str, Schema], ref: str) -> None:
    """Describe zones by a pattern. A list of 600 names would become 600 constants of a generated client, some with one name."""
    components["TimeZone"] = {
        "title": "TimeZone",
        "description": "An IANA time zone. The server refuses an unknown name, and suggests the nearest one.",
        "type": "string",
        "format": "timezone",
        "pattern": ZONE,
        "examples": ["Europe/Berlin"],
    }
    for name in ("JobSpec", "PreviewRequest"):
        components[name]["properties"]["timezone"]["anyOf"][0] = {"$ref": ref.format(name="TimeZone")}


def _split(components: dict[str, Schema], name: str, variants: dict[JobType, str], ref: str) -> None:
    """Replace a schema by a choice of variants, one for each type of job."""
    whole = components[name]
    for type_, variant in variants.items():
        components[variant] = _variant(whole, variant, type_)
    components[name] = choice(whole, variants.values(), ref)
    if "type" in whole["required"]:
        refs = {type_.value: ref.format(name=variant) for type_, variant in variants.items()}
        components[name]["discriminator"] = {"propertyName": "type", "mapping": refs}


def _variant(whole: Schema, title: str, type_: JobType) -> Schema:
    foreign = _TIMING_FIELDS - _TIMING_FIELDS_OF_TYPE[type_]
    fields = {field: schema for field, schema in whole["properties"].items() if field not in foreign}
    required_names = {*whole["required"], *_REQUIRED.get(type_, ())}
    if fields["type"].get("default") != type_:
        required_names.add("type")
    fields["type"] = only(type_.value)
    for field in _REQUIRED.get(type_, ()):
        fields[field] = next(option for option in fields[field]["anyOf"] if option["type"] != "null")
    required = [field for field in fields if field in required_names]
    narrowed = {"title": title, "description": _DESCRIPTIONS[type_], "properties": fields, "required": required}
    return whole | narrowed | {"examples": _EXAMPLES[title]}
