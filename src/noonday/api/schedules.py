"""/v1/schedules: schedules without jobs."""

import msgspec

from noonday.api.call import Call
from noonday.api.instants import bounded_ms
from noonday.api.routing import Route
from noonday.intake.filters import PreviewRequest
from noonday.model.errors import InvalidInput
from noonday.model.job import JobType
from noonday.model.view import Preview


async def preview_schedule(call: Call, body: PreviewRequest) -> Preview:
    """Show the next times of a schedule, local and UTC, with marks where the clocks change. No job is made."""
    _refuse_foreign_fields(body)
    if body.from_ is not None:
        bounded_ms(body.from_, "/from")
    return await call.reading.preview(body)


def _refuse_foreign_fields(body: PreviewRequest) -> None:
    """As for a job: what does not belong to the type is a mistake, not something to pass over."""
    foreign = ("every_sec", "phase_sec") if body.type is JobType.CRON else ("schedule", "timezone", "dst")
    for name in foreign:
        value = getattr(body, name)
        if value != getattr(_DEFAULTS, name):
            wire = _WIRE[name]
            raise InvalidInput.of(f"/{wire}", f"{wire} does not go with type {body.type}", msgspec.to_builtins(value))


_DEFAULTS = PreviewRequest()
_WIRE = {field.name: field.encode_name for field in msgspec.structs.fields(PreviewRequest)}

ROUTES = (Route("POST", "/v1/schedules/preview", preview_schedule, scope="read", is_safe=True),)
