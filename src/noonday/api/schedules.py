"""/v1/schedules: previews of schedules."""

import msgspec

from noonday.api.context import RequestContext
from noonday.api.instants import bounded_ms
from noonday.api.routing import Route
from noonday.model.errors import InvalidInput
from noonday.model.filters import PreviewRequest
from noonday.model.job import JobType
from noonday.model.view import Preview


async def preview_schedule(context: RequestContext, body: PreviewRequest) -> Preview:
    """Preview the next fire times of a schedule, local and UTC, with clock changes marked. Creates no job."""
    _refuse_foreign_fields(body)
    if body.from_ is not None:
        bounded_ms(body.from_, "/from")
    return await context.intake.previewer.preview(body)


def _refuse_foreign_fields(body: PreviewRequest) -> None:
    """Raise InvalidInput for a field that does not belong to the type, as for a job."""
    foreign = ("every_sec", "phase_sec") if body.type is JobType.CRON else ("schedule", "timezone", "dst")
    for name in foreign:
        value = getattr(body, name)
        if value != getattr(_DEFAULTS, name):
            wire = _WIRE[name]
            raise InvalidInput.of(
                f"/{wire}", f"{wire} is not allowed with type {body.type}", msgspec.to_builtins(value)
            )


_DEFAULTS = PreviewRequest()
_WIRE = {field.name: field.encode_name for field in msgspec.structs.fields(PreviewRequest)}

ROUTES = (Route("POST", "/v1/schedules/preview", preview_schedule, scope="read", is_safe=True),)
