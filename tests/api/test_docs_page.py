import json
import re

import pytest

from tests.api.asgi import Client


async def test_the_front_page_leads_to_the_docs(client: Client):
    client.headers.clear()
    response = await client.get("/")
    assert (response.status, response.headers["location"]) == (307, "/docs")


async def test_the_docs_bring_all_they_need(client: Client):
    client.headers.clear()
    response = await client.get("/docs")
    assert (response.status, response.headers["content-type"]) == (200, "text/html; charset=utf-8")
    page = response.body.decode()
    assert not re.search(r"https?://", page)
    assert not re.search(r"<(link|img|iframe)\b|\bsrc=|@import|\burl\(", page)
    assert 'fetch("/openapi.json")' in page


async def test_docs_page_may_connect_to_no_other_host(client: Client):
    policy = (await client.get("/docs")).headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "connect-src 'self'" in policy


@pytest.mark.slow
async def test_docs_show_every_verb_of_the_api(client: Client):
    shown = re.search(r"const VERBS = (\[.*?\]);", (await client.get("/docs")).body.decode())
    assert shown is not None
    paths = (await client.get("/openapi.json")).json["paths"]
    assert {verb for operations in paths.values() for verb in operations} <= set(json.loads(shown[1]))
