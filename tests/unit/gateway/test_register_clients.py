"""Clients of registries: what an editor and an agent platform ask of a register, and that what they install works."""

from __future__ import annotations

import argparse
import asyncio
import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from sandbox.cli import client as client_command
from sandbox.registry.project import OFFICIAL
from tests.gateway_lab import ISSUER, SECRET, Lab
from tests.register_lab import register_lab

pytestmark = pytest.mark.anyio


class Editor:
    """Asks for exactly what the registry client of a widespread editor asks for (its releases of 2025 and 2026).

    - which version of the API is there: ``/v0.1/servers?limit=1``, then ``v0``;
    - pages of 50 with ``version=latest``; a cursor goes into the address as it came, a search encoded;
    - one server: its name as one segment, encoded whole; any 4xx stands for none;
    - an entry without text name, description and version, or without ``_meta``, spoils the list.

    Args:
        url: of the register.
        get: carries a GET.
    """

    def __init__(self, url: str, get: Any) -> None:
        self.servers, self._url, self._get = "", url, get

    async def find(self) -> None:
        """Find the version of the API."""
        for version in ("v0.1", "v0"):
            answer = await self._get(f"{self._url}/{version}/servers?limit=1")
            if 200 <= answer.status_code < 300:
                self.servers = f"{self._url}/{version}/servers"
                return
        raise AssertionError("no version of the API is spoken")

    async def list(self, size: int = 50, search: str = "") -> list[dict[str, Any]]:
        """List the gallery."""
        found: list[dict[str, Any]] = []
        cursor = ""
        for _ in range(20):
            url = f"{self.servers}?limit={size}&version=latest"
            url += f"&cursor={cursor}" if cursor else ""
            url += f"&search={quote(search, safe='')}" if search else ""
            body = (await self._get(url)).json()
            found += [self._entry(one) for one in body["servers"]]
            cursor = body["metadata"].get("nextCursor", "")
            if not cursor:
                return found
        raise AssertionError("the pages do not end")

    async def one(self, name: str, version: str = "latest") -> dict[str, Any] | None:
        """Look one server up."""
        answer = await self._get(f"{self.servers}/{quote(name, safe='')}/versions/{quote(version, safe='')}")
        return None if 400 <= answer.status_code < 500 else self._entry(answer.json())

    def _entry(self, given: dict[str, Any]) -> dict[str, Any]:
        server, official = given["server"], given["_meta"].get(OFFICIAL)
        assert all(isinstance(server[name], str) and server[name] for name in ("name", "description", "version"))
        return {**server, "status": official["status"], "isLatest": official["isLatest"]}

    @staticmethod
    def installed(entry: dict[str, Any]) -> dict[str, Any]:
        """Return what it writes into its configuration: the first remote, with the fields that it names."""
        remote = entry["remotes"][0]
        fields = {
            field["name"]: field.get("value", f"${{input:{field['name']}}}") for field in remote.get("headers", [])
        }
        return {"type": "http", "url": remote["url"], **({"headers": fields} if fields else {})}


async def editor_of(stage: Lab, **headers: str) -> Editor:
    """Return an editor that found the register."""

    async def get(url: str) -> httpx2.Response:
        return await stage.client.get(url, headers=headers)

    editor = Editor(stage.url, get)
    await editor.find()
    return editor


async def use(entry: dict[str, Any], http: httpx2.AsyncClient | None = None) -> str:
    """Connect with the SDK as a client does that has this entry, list the tools, call one and return its text."""
    assert "headers" not in entry
    transport = streamable_http_client(entry["url"], **({"http_client": http} if http else {}))
    async with asyncio.timeout(20), Client(transport) as session:
        tools = await session.list_tools()
        assert ["tool"] == [tool.name for tool in tools.tools]
        result = await session.call_tool("tool", {})
        return str(result.content[0].text)  # type: ignore[union-attr]


async def test_an_editor_lists_pages_searches_and_picks(tmp_path: Path) -> None:
    """Only the latest version of each, whatever the size of a page; a build's plus sign survives the address."""
    async with register_lab(tmp_path) as stage:
        editor = await editor_of(stage)
        whole, single = await editor.list(), await editor.list(size=1)
        found, nothing = await editor.list(search="OPE"), await editor.list(search="n/o & w")
        latest, old = await editor.one("com.example/open"), await editor.one("com.example/open", "1.1.0-rc.1")
        exact = await editor.one("com.example/open", "1.2.0+build.7")
        absent = [await editor.one(name) for name in ("com.example/closed", "com.example/gone", "com.example/x", "x")]

    assert [("com.example/open", "1.2.0+build.7", "active")] == [(e["name"], e["version"], e["status"]) for e in whole]
    assert whole == single == found
    assert [] == nothing
    assert latest == exact == whole[0]
    assert ("deprecated", False) == ((old or {})["status"], (old or {})["isLatest"])
    assert [None] * 4 == absent


async def test_every_version_is_paged_one_by_one(tmp_path: Path) -> None:
    """A mirror that pages through all versions, cursors as they come, meets each once."""
    async with register_lab(tmp_path) as stage:
        seen, cursor = [], ""
        for _ in range(20):
            url = f"{stage.url}/v0.1/servers?limit=1&include_deleted=true" + (f"&cursor={cursor}" if cursor else "")
            body = (await stage.client.get(url)).json()
            seen += [(one["server"]["name"], one["server"]["version"]) for one in body["servers"]]
            cursor = body["metadata"].get("nextCursor", "")
            if not cursor:
                break

    assert 5 == len([version for name, version in seen if name == "com.example/open"])
    assert ("com.example/gone", "1.2.0+build.7") in seen
    assert len(seen) == len(set(seen))


async def test_what_an_editor_installs_works(tmp_path: Path) -> None:
    """The entry of the register, written as the editor and as ``client install`` write it, reaches the server."""
    async with register_lab(tmp_path) as stage:
        editor = await editor_of(stage)
        entry = editor.installed((await editor.list())[0])
        file = tmp_path / "mcp.json"
        chosen = argparse.Namespace(
            action="install",
            client="vscode",
            name="open",
            url=entry["url"],
            driver=None,
            root=[],
            config=file,
            yes=True,
        )
        status = await asyncio.to_thread(client_command.execute, chosen)
        written = json.loads(file.read_text())["servers"]["open"]
        said = [await use(one) for one in (entry, written)]

    assert 0 == status
    assert entry == written
    assert all(SECRET in one for one in said)


async def test_a_closed_server_is_found_and_used_by_who_signs_in(tmp_path: Path) -> None:
    """Told only with a token; its endpoint says where to sign in (RFC 9728), and the token then works there."""
    async with register_lab(tmp_path) as stage:
        token = stage.token(audience=stage.url)
        editor = await editor_of(stage, authorization=f"Bearer {token}")
        entries = {one["name"]: editor.installed(one) for one in await editor.list()}
        closed = entries["com.example/closed"]
        refused = await stage.post("/mcp/closed", {"jsonrpc": "2.0", "id": 1, "method": "ping"})
        where = refused.headers["www-authenticate"].split('resource_metadata="')[1].split('"')[0]
        described = (await stage.client.get(where)).json()
        async with httpx2.AsyncClient(headers={"authorization": f"Bearer {token}"}, trust_env=False) as http:
            said = await use(closed, http)

    assert 401 == refused.status_code
    assert SECRET not in refused.text
    aid = refused.json()["error"]["data"]["auth_help"]
    assert (where, [ISSUER]) == (aid["resource_metadata"], aid["authorization_servers"])
    assert closed["url"] == described["resource"]
    assert [ISSUER] == described["authorization_servers"]
    assert SECRET in said


@pytest.mark.parametrize(
    "path",
    [
        "/v0.1/servers",
        "/v0.1/servers/com.example%2Fopen/versions/latest",
        "/v0.1/servers/com.example%2Fopen/versions/1.1.0",
        "/v0.1/servers/com.example%2Fnone/versions/latest",
        "/v0.1/servers?limit=x",
    ],
)
async def test_an_agent_platform_reads_the_register_from_its_own_page(tmp_path: Path, path: str) -> None:
    """The three addresses that it asks for, with the CORS fields that it demands on answers, errors and preflights."""
    asked = {"origin": "https://agents.example"}
    ahead = {**asked, "access-control-request-method": "GET", "access-control-request-headers": "authorization"}
    async with register_lab(tmp_path) as stage:
        answers = [
            await stage.client.get(stage.url + path, headers=asked),
            await stage.client.options(stage.url + path, headers=ahead),
        ]

    assert 204 == answers[1].status_code
    for answer in answers:
        fields = answer.headers
        assert "*" == fields["access-control-allow-origin"]
        assert {"GET", "OPTIONS"} <= set(fields["access-control-allow-methods"].split(", "))
        assert "authorization" in fields["access-control-allow-headers"].lower()
        assert "access-control-allow-credentials" not in fields


async def test_an_answer_that_is_known_is_not_sent_again(tmp_path: Path) -> None:
    """ETag by digest: 304 for who names it, alone, weak or among others; another answer for who may see more."""
    async with register_lab(tmp_path) as stage:
        url = stage.url + "/v0.1/servers"
        etag = (await stage.client.get(url)).headers["etag"]
        asked = [etag, f"W/{etag}", f'"x", {etag}', "*", '"x"', ""]
        found = [(await stage.client.get(url, headers={"if-none-match": one})).status_code for one in asked]
        token = {"authorization": f"Bearer {stage.token(audience=stage.url)}"}
        more = await stage.client.get(url, headers={**token, "if-none-match": etag})

    assert [304, 304, 304, 304, 200, 200] == found
    assert 200 == more.status_code
    assert etag != more.headers["etag"]
    assert "authorization" in more.headers["vary"]
    assert "private" in more.headers["cache-control"]
