"""/v1/schedules: schedules without jobs."""

from noonday.api.call import Call
from noonday.api.instants import bounded_ms
from noonday.api.routing import Route
from noonday.intake.filters import PreviewRequest
from noonday.model.view import Preview


async def preview_schedule(call: Call, body: PreviewRequest) -> Preview:
    """Show the next times of a schedule, local and UTC, with marks where the clocks change. No job is made."""
    if body.from_ is not None:
        bounded_ms(body.from_, "/from")
    return await call.reading.preview(body)


ROUTES = (Route("POST", "/v1/schedules/preview", preview_schedule, scope="read", is_safe=True),)
