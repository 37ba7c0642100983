"""Factories of task requests."""

from typing import Any

import msgspec

from noonday.model.tasks.wire import TaskSpec
from tests.support.factories import HOUR, NOW_MS, instant

URL = "https://api.example.com/reports"
LATER = instant(NOW_MS + HOUR)


def decoded(**fields: Any) -> TaskSpec:
    """A daily task by default."""
    usual: dict[str, Any] = {"type": "RECURRING", "payload": {"webhook_url": URL}}
    if not fields.keys() & {"type", "interval", "cron_expression"}:
        usual["cron_expression"] = "0 8 * * *"
    return msgspec.json.decode(msgspec.json.encode({**usual, **fields}), type=TaskSpec)


def once(**fields: Any) -> TaskSpec:
    return decoded(**{"type": "ONE_TIME", "scheduled_at": LATER, **fields})
