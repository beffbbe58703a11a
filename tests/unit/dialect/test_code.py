"""Code of a caller: what it may call, what its calls are held to, its bounds, and what it says that it saved.

The sandbox is a stand-in here (the runner as a process of this host); ``tests/engine/test_dialect_code.py`` runs it in
a container and attacks it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import uuid
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.cli.gateway.code import RUNNER
from sandbox.dialect import code as module
from sandbox.dialect.code import Code, CodeRequest, Import, Step, name_of
from sandbox.dialect.handshake import Offer
from sandbox.dialect.model import Limits, ToolResponse, convert
from sandbox.dialect.refusals import DialectRefused
from sandbox.dialect.service import Place, Service, Who
from sandbox.tenant import TenantContext, TenantId
from tests.dialect_lab import OPEN, dialect_lab, shake, until

pytestmark = pytest.mark.anyio


@contextlib.asynccontextmanager
async def process(_identity: Any) -> AsyncIterator[Step]:
    """Start the runner as a process of this host and yield what carries a run one step further."""
    pipe = asyncio.subprocess.PIPE
    running = await asyncio.create_subprocess_exec(
        sys.executable, str(RUNNER / "runner.py"), stdin=pipe, stdout=pipe, limit=1 << 22
    )
    assert running.stdin is not None
    assert running.stdout is not None

    async def step(given: Mapping[str, Any]) -> dict[str, Any]:
        call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "step", "arguments": dict(given)}}
        running.stdin.write(json.dumps(call).encode() + b"\n")
        value: dict[str, Any] = json.loads(await running.stdout.readline())["result"]["structuredContent"]
        return value

    try:
        yield step
    finally:
        running.kill()
        await running.wait()


@contextlib.asynccontextmanager
async def running(folder: Path, opener: Any = process) -> AsyncIterator[Any]:
    """Yield what runs code at a gateway's open endpoint."""
    async with dialect_lab(folder) as lab:
        app = lab.stage.app
        endpoint = app.endpoints["/mcp/open"]
        identity = await app.gateway.keeper.admit({}, "/mcp/open", endpoint.door.access)
        service = Service(app.gateway.quotas, None, app.gateway.scope)
        limits = Limits(calls_per_second=1, calls_at_once=1, jobs=1, message_bytes=1)
        place = Place(endpoint.door, OPEN, Offer("x", (), limits, frozenset()))
        code = Code(service, opener, app.gateway.scope)

        async def run(text: str, *imports: str, tenant: str = "") -> ToolResponse:
            own = replace(identity, tenant=TenantContext(TenantId(tenant))) if tenant else identity
            request = CodeRequest(
                request_id=uuid.uuid4(), code=text, imports=tuple(Import(path=f"tools/{one}.json") for one in imports)
            )
            return await code.run(Who(place, own, (), "http"), request)

        run.lab = lab  # type: ignore[attr-defined]
        run.code = code  # type: ignore[attr-defined]
        yield run


async def test_code_uses_what_it_imports(tmp_path: Path) -> None:
    """A loop over a tool gives one small value; the calls went through the gateway, and their tokens were spared."""
    text = "total = 0\nfor n in range(20):\n    total += tool(a=n)['a']\nprint('done')\nresult = {'total': total}"
    async with running(tmp_path) as run:
        answer = await run(text, "tool")
        calls = run.lab.stage.server.calls

    assert ("success", {"total": 190}, "done\n", 20) == (
        answer.status, answer.result["value"], answer.result["printed"], answer.result["calls"],
    )  # fmt: skip
    assert [{"a": n} for n in range(20)] == calls
    tokens = answer.result["tokens"]
    assert tokens["used"] < tokens["direct"]
    assert tokens["used"] == answer.metadata.tokens_used


async def test_code_calls_nothing_else(tmp_path: Path) -> None:
    """Without the import the tool has no name in the code, and asking for it by name is refused; nothing was called."""
    async with running(tmp_path) as run:
        unknown = await run("result = tool(a=1)")
        asked = await run("result = tools['tool'](a=1)")
        reached = await run("tools.tools = {'x': 'tool'}\nresult = tools['tool'](a=1)")

        assert [] == run.lab.stage.server.calls
    assert {"error"} == {one.status for one in (unknown, asked, reached)}
    assert "NameError" in unknown.error["message"]
    assert "not imported" in reached.error["message"]


async def test_imports_are_files_of_the_callers_view(tmp_path: Path) -> None:
    """Paths out of `tools/`, unknown files and two of one name are refused before anything is started."""
    started: list[int] = []

    @contextlib.asynccontextmanager
    async def never(_identity: Any) -> AsyncIterator[Step]:
        started.append(1)
        yield None  # type: ignore[misc]

    async with running(tmp_path, never) as run:
        for path in ("nothing", "../tools/tool", "tool/../tool"):
            with pytest.raises(DialectRefused, match="DIA-060"):
                await run("", path)
        with pytest.raises(DialectRefused, match="DIA-061"):
            await run("", "tool", "tool")

    assert [] == started


async def test_what_a_tool_refuses_the_code_can_read(tmp_path: Path) -> None:
    """A refused call is an exception in the code, which may go on; what it does not catch is the answer."""
    async with running(tmp_path) as run:
        caught = await run("try:\n    tool(a={1: set()})\nexcept TypeError as e:\n    result = 'caught'", "tool")
        wrong = await run("result = 1 / 0", "tool")
        syntax = await run("result = (", "tool")

    assert "caught" == caught.result["value"]
    assert ("DIA-064", True) == (wrong.error["id"], "ZeroDivisionError" in wrong.error["message"])
    assert "line 1" in wrong.error["message"]
    assert "SyntaxError" in syntax.error["message"]


async def test_runs_have_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls, time and runs at once are bounded, and a bound that was reached is told as such."""
    monkeypatch.setattr(module, "MAX_CALLS", 3)
    async with running(tmp_path) as run:
        many = await run("for n in range(9):\n    tool(a=n)", "tool")
        called = len(run.lab.stage.server.calls)
        monkeypatch.setattr(module, "MAX_SECONDS", 0.5)
        long = await run("while True: pass")
        monkeypatch.setattr(module, "MAX_SECONDS", 60)
        monkeypatch.setattr(module, "MAX_RUNS", 0)
        with pytest.raises(DialectRefused, match="DIA-062"):
            await run("result = 1")

    assert ("DIA-063", 3, "DIA-063") == (many.error["id"], called, long.error["id"])


async def test_no_number_of_tenants_starts_more_than_so_many_sandboxes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Attack: one run for each of many tenants; beyond the bound of all they are refused and nothing is started."""
    monkeypatch.setattr(module, "MAX_RUNS_IN_ALL", 3)
    begun, goes_on = [], asyncio.Event()

    @contextlib.asynccontextmanager
    async def waiting(identity: Any) -> AsyncIterator[Step]:
        async def step(_given: Mapping[str, Any]) -> dict[str, Any]:
            begun.append(identity.tenant.tenant)
            await goes_on.wait()
            return {"state": "done", "value": 1}

        yield step

    async with running(tmp_path, waiting) as run:
        runs = [asyncio.create_task(run("", tenant=f"t{number}")) for number in range(10)]
        await until(lambda: len(begun) + sum(one.done() for one in runs) == 10)
        goes_on.set()
        ends = await asyncio.gather(*runs, return_exceptions=True)
        after = await run("", tenant="t9")

    assert ["t0", "t1", "t2", "t9"] == begun
    assert ["success"] * 3 == [one.status for one in ends[:3]]
    assert ["DIA-062"] * 7 == [one.id for one in ends[3:]]
    assert "success" == after.status


async def test_a_sandbox_that_was_taken_over_gains_nothing(tmp_path: Path) -> None:
    """A runner that asks for another tool, whatever its code was, is told that it was not imported."""
    said: list[Mapping[str, Any]] = []

    @contextlib.asynccontextmanager
    async def hostile(_identity: Any) -> AsyncIterator[Step]:
        async def step(given: Mapping[str, Any]) -> dict[str, Any]:
            said.append(given)
            return {"state": "call", "tool": "other"} if len(said) < 3 else {"state": "done", "value": 1}

        yield step

    async with running(tmp_path, hostile) as run:
        await run("", "tool")

        assert [] == run.lab.stage.server.calls
    assert [False, False] == [one["go"]["ok"] for one in said[1:]]


async def test_runs_are_recorded_before_and_after(tmp_path: Path) -> None:
    """The trail has the digest of the code and its tools before it ran, and calls and tokens after."""
    async with running(tmp_path) as run:
        await run("result = tool(a=1)", "tool")
        facts = [one for one in run.lab.stage.recorder.facts if one.name == "code.run"]

    assert ["intent", "outcome"] == [one.phase for one in facts]
    assert (["tool"], 1, "ok") == (facts[0].attrs["tools"], facts[1].attrs["calls"], facts[1].attrs["status"])


@given(st.text(min_size=1, max_size=40))
def test_every_tool_has_a_name_in_the_code(tool: str) -> None:
    """Whatever a tool is called, code can write its name, and it hides nothing that the code is given."""
    name = name_of(tool)

    assert name.isidentifier()
    assert name not in ("tools", "result", "class", "None")


async def test_without_the_switch_there_is_no_code(tmp_path: Path) -> None:
    """A gateway that was not told to run code neither offers the capability nor has the path."""
    async with dialect_lab(tmp_path) as lab:
        agreed = (await lab.send("POST", OPEN + "/handshake", shake())).json()
        answer = await lab.send("POST", OPEN + "/code", {"request_id": str(uuid.uuid4()), "code": "result = 1"})

    assert ("code_exec" in agreed["capabilities"], answer.status_code) == (False, 404)


def test_the_shape_is_the_documents() -> None:
    """Imports are written as the document has them."""
    body = {"request_id": str(uuid.uuid4()), "code": "x", "imports": [{"import": "tools/run_analysis.json"}]}

    assert "tools/run_analysis.json" == convert(CodeRequest, body).imports[0].path
