"""Plausible values for generated requests, which no schema knows: pools that exist, the present time, keys that were used
before.

Requests that are meant to be wrong are left unchanged.
"""

from typing import Any
from uuid import uuid4

import schemathesis
from hypothesis import strategies as st

from noonday.model import cron_parsing
from noonday.tasks import phrases

CRONS = (
    "0 3 * * *",
    "*/5 * * * *",
    "0 0 9-17 * * MON-FRI",
    "15,45 8 L * *",
    "0 12 * JAN-MAR 5#2",
    *cron_parsing.ALIASES,
)


URL = "https://api.example.com/reports"


def register_formats() -> None:
    schemathesis.openapi.format("cron", st.sampled_from(CRONS))
    schemathesis.openapi.format(
        "timezone", st.sampled_from(("UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata"))
    )
    schemathesis.openapi.format("interval", st.sampled_from(phrases.ALLOWED))


def make_plausible(case: schemathesis.Case) -> None:
    if case.meta is None or not case.meta.generation.mode.is_positive:
        return
    if "Idempotency-Key" in case.headers:
        case.headers["Idempotency-Key"] = str(uuid4())
    if isinstance(case.body, dict):
        for job in [case.body, *case.body.get("jobs", [])]:
            _place_in_pool_and_time(job)
    if case.query and {"from", "to"} <= case.query.keys():
        _order(case.query)
    if case.query and case.query.get("endpoint"):
        case.query["endpoint"] = URL
    if case.query and "page" in case.query:
        case.query["page"] = 1


def _place_in_pool_and_time(job: dict[str, Any]) -> None:
    if job.get("target"):
        job["target"]["pool"] = "demo"
    for field, year in _YEARS.items():
        if job.get(field):
            job[field] = year + job[field][4:]
    if isinstance(job.get("payload"), dict) and "webhook_url" in job["payload"]:
        job["payload"]["webhook_url"] = URL
    if isinstance(job.get("channel"), dict):
        job["channel"] = {"type": "EMAIL", "address": "ops@example.com"}
    if job.get("endpoint"):
        job["endpoint"] = URL
    if job.get("interval"):
        job["interval"] = phrases.ALLOWED[0]
    if "from" in job and "to" in job:
        _order(job)


_YEARS = {"runAt": "2996", "startAt": "2996", "endAt": "8988", "scheduled_at": "2996", "end_date": "8988"}


def _order(span: dict[str, Any]) -> None:
    span["to"] = span["from"]
