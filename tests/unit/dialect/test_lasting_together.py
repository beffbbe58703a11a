"""Tasks of the extension at two gateways: asked for at either, known at the one that took them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from sandbox.cli.gateway.dialect import Dialect, speaking
from sandbox.dialect.bounds import MAX_MESSAGE
from sandbox.serve.http.app import App
from sandbox.serve.ratelimit import Rate
from tests.gateway_lab import request
from tests.lasting_lab import DECLARED, SOON, answer_of, said, until
from tests.together_lab import Member, Options, together

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]

FREE, KEPT = "/mcp/open", "/mcp/closed"
"""Endpoints of a driver that is declared stateless, and of one that is not."""


@contextlib.asynccontextmanager
async def pair(folder: Path) -> AsyncIterator[list[Member]]:
    """Open two gateways on one store, each with a file of jobs of its own."""

    def speaks(app: App, number: int) -> Any:
        known = Dialect(
            "com.example", folder / f"jobs-{number}.sqlite", Rate(1000, 1000), lambda _name: True, bounds=SOON
        )
        return speaking(app, known)

    options = Options(speaks=speaks, sockets=MAX_MESSAGE)
    async with together(f"sqlite://{folder}/state.db", options=options) as members:
        yield members


async def ask(
    at: Member, method: str, params: Mapping[str, Any], path: str, token: str, able: Mapping[str, Any] = DECLARED
) -> dict[str, Any]:
    """Send one request to a gateway and return its answer."""
    body, headers = said(method, params, able)
    return answer_of(await at.post(path, body, token, **headers))


@pytest.mark.parametrize("path", [FREE, KEPT], ids=["stateless", "at-home"])
async def test_a_task_is_found_at_either_gateway(tmp_path: Path, path: str) -> None:
    """Taken here, asked for and cancelled there, whoever runs its server; one call, and strangers find nothing."""
    async with pair(tmp_path) as (one, other):
        alice, bob = one.token(), one.token(tenant="other")
        one.server.slow = 3.0
        call = {"name": "tool", "arguments": {"slow": True, "a": 1}}
        made = (await ask(other, "tools/call", call, path, alice))["result"]
        name = {"taskId": made["taskId"]}
        early = [(await ask(at, "tasks/get", name, path, alice))["result"]["status"] for at in (one, other)]
        strange = [(await ask(at, "tasks/get", name, path, bob))["error"]["code"] for at in (one, other)]
        async with asyncio.timeout(60):
            while (done := (await ask(one, "tasks/get", name, path, alice))["result"])["status"] == "working":  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        again = (await ask(other, "tasks/get", name, path, alice))["result"]
        one.server.slow = 30.0
        second = {"taskId": (await ask(other, "tools/call", call, path, alice))["result"]["taskId"]}
        await ask(one, "tasks/cancel", second, path, alice)
        await until(lambda: bool(one.server.cancelled))
        ended = [(await ask(at, "tasks/get", second, path, alice))["result"]["status"] for at in (one, other)]

    assert (["working"] * 2, [-32602] * 2) == (early, strange)
    assert ("completed", 1) == (done["status"], done["result"]["structuredContent"]["a"])
    assert done["result"] == again["result"]
    assert ["cancelled"] * 2 == ended
    assert 2 == len(one.server.calls)


@pytest.mark.claim("P-GATE-61")
async def test_fields_of_a_task_open_no_other_way_past_the_home(tmp_path: Path) -> None:
    """Whatever its body asks for, a request that calls itself one about a task is that or nothing."""
    async with pair(tmp_path) as (one, other):
        alice = one.token()
        await ask(one, "tools/call", {"name": "tool", "arguments": {"a": 1}}, KEPT, alice)
        starts = one.server.starts
        opening = request("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {}})
        bodies = [
            said("tools/call", {"name": "tool", "arguments": {"a": 2}})[0],
            opening,
            request("tools/call", {"name": "tool", "arguments": {"a": 3}}),
            {"jsonrpc": "2.0", "method": "notifications/initialized"},
        ]
        refused = [
            await other.post(
                KEPT, body, alice, mcp_method="tasks/get", mcp_name=name, mcp_protocol_version="2026-07-28"
            )
            for body in bodies
            for name in ("tool", "x")
        ]
        older = await other.post(KEPT, opening, alice, mcp_method="tasks/get")

    assert {400, 404} >= {one.status_code for one in refused}
    assert 200 == older.status_code, "an older client's field says nothing: its session opens at the home"
    assert (starts, [{"a": 1}]) == (one.server.starts, one.server.calls)


async def test_a_task_whose_gateway_is_away_is_not_called_unknown(tmp_path: Path) -> None:
    """It is told to be asked for again later: it may be there."""
    async with pair(tmp_path) as (one, other):
        alice = one.token()
        one.server.slow = 30.0
        call = {"name": "tool", "arguments": {"slow": True}}
        made = (await ask(one, "tools/call", call, FREE, alice))["result"]
        await one.kill()
        body, headers = said("tasks/get", {"taskId": made["taskId"]})
        away = await other.post(FREE, body, alice, **headers)

    assert (503, True) == (away.status_code, "retry-after" in away.headers)
    assert "DIA-080" in away.text
