"""Redaction of responses to an operator who reads another tenant."""

from collections.abc import Mapping
from typing import Any

import msgspec

from noonday.model.notifications.wire import UserView
from noonday.model.preference import PreferenceView
from noonday.model.tasks.wire import TaskCallView, TaskDeadLetterView, TaskExchangeView, TaskView
from noonday.model.view import AttemptLogsView, ExecutionView, JobView

REDACTED_FIELDS: Mapping[type[msgspec.Struct], tuple[str, ...]] = {
    JobView: ("payload",),
    ExecutionView: ("progress", "result"),
    AttemptLogsView: ("text",),
    TaskView: ("payload",),
    TaskCallView: ("webhook_url",),
    TaskDeadLetterView: ("webhook_url",),
    TaskExchangeView: ("request", "response"),
    PreferenceView: ("channel",),
    UserView: ("email", "phone"),
}
"""Fields of each response type that an operator of another tenant does not see."""


def redacted(value: Any) -> Any:
    """Return the value with these fields null, and `redacted` true in each struct that has them."""
    if isinstance(value, msgspec.Struct):
        changes = {name: redacted(getattr(value, name)) for name in value.__struct_fields__}
        if hidden := REDACTED_FIELDS.get(type(value)):
            changes |= dict.fromkeys(hidden) | {"redacted": True}
        return msgspec.structs.replace(value, **changes)
    if isinstance(value, list | tuple):
        return type(value)(map(redacted, value))
    return value
