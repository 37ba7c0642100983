from starlette.applications import Starlette

from noonday.api.context import RequestContext
from noonday.api.operations import resources
from noonday.api.routing import Route
from noonday.intake.idempotency import AlreadyAnswered
from noonday.model.view import JobView
from tests.api.asgi import Client
from tests.api.engine import Backstage


async def fail_as_before(_context: RequestContext) -> JobView:
    raise AlreadyAnswered(409, b'{"type": "https://noonday.dev/problems/conflict"}')


async def test_stored_problem_is_replayed_as_a_problem(backstage: Backstage):
    route = Route("POST", "/again", fail_as_before, scope="write", status=201)
    client = Client(Starlette(routes=resources([route], backstage.api_services())), {"authorization": "Bearer write"})
    response = await client.post("/again")
    assert (response.status, response.code) == (409, "conflict")
    assert response.headers["idempotency-replay"] == "true"


async def test_refusal_is_replayed_under_its_key(client: Client, backstage: Backstage):
    wanted = {"type": "ONE_TIME", "target": {"pool": "later", "handler": "echo"}}
    first = await client.post("/v1/jobs", wanted, idempotency_key="k1")
    assert (first.status, "idempotency-replay" in first.headers) == (422, False)
    await client.call("PUT", "/v1/pools/later", {})
    again = await client.post("/v1/jobs", wanted, idempotency_key="k1")
    assert (again.status, again.headers["idempotency-replay"], again.json) == (422, "true", first.json)
    assert (await client.post("/v1/jobs", wanted, idempotency_key="k2")).status == 201
