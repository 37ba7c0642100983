"""Answers to an operator who reads another tenant: without what that tenant's jobs carry."""

from collections.abc import Mapping
from typing import Any

import msgspec

from noonday.alerts.preferences import PreferenceView
from noonday.model.view import ExecutionView, JobView
from noonday.tasks.wire import TaskCallView, TaskDeadLetterView, TaskExchangeView, TaskView

WITHHELD: Mapping[type[msgspec.Struct], tuple[str, ...]] = {
    JobView: ("payload",),
    ExecutionView: ("progress", "result"),
    TaskView: ("payload",),
    TaskCallView: ("webhook_url",),
    TaskDeadLetterView: ("webhook_url",),
    TaskExchangeView: ("request", "response"),
    PreferenceView: ("channel",),
}
"""The fields of each type of answer that an operator of another tenant does not see."""


def withheld(value: Any) -> Any:
    """Return the answer with these fields null, and `redacted` true wherever that is so."""
    if isinstance(value, msgspec.Struct):
        changes = {name: withheld(getattr(value, name)) for name in value.__struct_fields__}
        if hidden := WITHHELD.get(type(value)):
            changes |= dict.fromkeys(hidden) | {"redacted": True}
        return msgspec.structs.replace(value, **changes)
    if isinstance(value, list | tuple):
        return type(value)(map(withheld, value))
    return value
