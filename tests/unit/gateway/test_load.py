"""Many clients of many tenants at once while servers die: nobody gets another's answer, and nothing is left."""

from __future__ import annotations

import asyncio
import gc
import json
import random

import pytest

from sandbox.serve.ratelimit import Rate
from sandbox.supervisor.breaker import Patience
from tests.gateway_lab import Lab, Server, call, lab, modern

pytestmark = pytest.mark.anyio
PATIENT = Patience(first=0.01, longest=0.05, failures=10_000, window=5.0, open_for=0.1, open_longest=0.2, steady=30.0)
CLOSED = "/mcp/closed"


async def one_client(stage: Lab, tenant: str, number: int, chance: random.Random) -> dict[str, int]:
    """Call again and again in one era; count what came, and stop the test at the first wrong answer."""
    token, counts = stage.token(tenant=tenant, sub=f"user-{number}"), {"ok": 0, "failed": 0}
    headers: dict[str, str] = {}
    for step in range(12):
        mark = f"{tenant}/{number}/{step}"
        arguments = {"mark": mark, "die": chance.random() < 0.01}
        if number % 2:
            body, fields = modern("tools/call", {"name": "tool", "arguments": arguments}, step)
        else:
            headers = headers or await stage.session(CLOSED, token)
            body, fields = call(step + 10, **arguments), headers
        answer = await stage.post(CLOSED, body, token, **fields)
        result = answer.json().get("result") if answer.headers["content-type"] == "application/json" else None
        if answer.status_code == 404:
            headers = {}
        if result is None or result.get("isError"):
            counts["failed"] += 1
            continue
        said = result["structuredContent"]
        assert (mark, body["id"]) == (said["mark"], answer.json()["id"])
        counts["ok"] += 1
    return counts


@pytest.mark.claim("P-GATE-08")
@pytest.mark.timeout(120)
async def test_no_answer_reaches_anybody_else_while_servers_die() -> None:
    """Sixty clients of ten tenants, both eras, servers that end in the middle: every answer is its asker's own."""
    chance, server = random.Random(11), Server()
    async with lab(server, pool={"restarts": PATIENT, "of_tenant": 4}, json_wait=5.0) as stage:
        tenants = [f"tenant-{number % 10}" for number in range(60)]
        done = await asyncio.gather(
            *(one_client(stage, tenant, number, chance) for number, tenant in enumerate(tenants))
        )
        calls = stage.server.calls

    total = {name: sum(one[name] for one in done) for name in ("ok", "failed")}
    assert total["ok"] + total["failed"] == 60 * 12
    assert total["ok"] > 500, json.dumps(total)
    assert [] == [one for one in calls if one.get("die") and one["mark"].count("/") != 2]
    assert server.starts > 10


@pytest.mark.parametrize("era", ["handshake", "stateless"])
async def test_calls_leave_nothing_in_memory(era: str) -> None:
    """After hundreds of calls the gateway holds as many objects as after the first ones."""
    async with lab(rate=Rate(1e6, 1_000_000)) as stage:
        headers = await stage.session() if era == "handshake" else {}

        async def held(calls: int) -> int:
            """Make calls and return how many objects live then, but for what the lab notes."""
            for number in range(calls):
                body, fields = modern("tools/call", {"name": "tool", "arguments": {}}, number + 1)
                if era == "handshake":
                    body, fields = call(number + 10), headers
                assert 200 == (await stage.post("/mcp/open", body, **fields)).status_code
            stage.recorder.facts.clear()
            stage.server.calls.clear()
            return living()

        await held(60)
        before = await held(60)
        after = await held(600)

    assert after - before < 150  # less than one object for four calls


def living() -> int:
    """Count the objects of this process, without cancelled timers and their contexts.

    The event loop lets go of those in batches, some hundred at a time, whoever made them.
    """
    gc.collect()
    objects = gc.get_objects()
    return len(objects) - 2 * sum(isinstance(one, asyncio.TimerHandle) and one.cancelled() for one in objects)
