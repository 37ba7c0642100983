import json
import re

import pytest

from tests.api.asgi import Client

FILES = ("/docs", "/docs/page.css", "/docs/page.js")


async def test_the_front_page_leads_to_the_docs(client: Client):
    client.headers.clear()
    response = await client.get("/")
    assert (response.status, response.headers["location"]) == (307, "/docs")


async def test_the_docs_bring_all_they_need(client: Client):
    client.headers.clear()
    types = []
    for path in FILES:
        response = await client.get(path)
        assert response.status == 200
        types.append(response.headers["content-type"].partition(";")[0])
        text = response.body.decode()
        assert not re.search(r"https?://", text)
        assert not re.search(r"<(img|iframe)\b|@import|\burl\(", text)
        for loaded in re.findall(r'\b(?:src|href)="([^"#]+)"', text):
            assert loaded in (*FILES, "/openapi.json", "data:,")
    assert types == ["text/html", "text/css", "text/javascript"]
    assert 'fetch("/openapi.json")' in text


async def test_docs_page_has_nothing_inline(client: Client):
    page = (await client.get("/docs")).body.decode()
    assert not re.search(r"<style|\bstyle=|\bon\w+=|<script(?![^>]*\bsrc=)", page)
    script = (await client.get("/docs/page.js")).body.decode()
    assert not re.search(r"innerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function|\.style\b", script)


@pytest.mark.parametrize("path", FILES)
async def test_docs_page_allows_its_own_files_only(client: Client, path: str):
    headers = (await client.get(path)).headers
    policy = headers["content-security-policy"]
    for rule in ("default-src 'none'", "script-src 'self'", "style-src 'self'", "connect-src 'self'"):
        assert rule in policy
    assert "unsafe" not in policy
    assert (headers["x-content-type-options"], headers["referrer-policy"]) == ("nosniff", "no-referrer")


@pytest.mark.slow
async def test_docs_show_every_verb_of_the_api(client: Client):
    shown = re.search(r"const VERBS = (\[.*?\]);", (await client.get("/docs/page.js")).body.decode())
    assert shown is not None
    paths = (await client.get("/openapi.json")).json["paths"]
    assert {verb for operations in paths.values() for verb in operations} <= set(json.loads(shown[1]))
