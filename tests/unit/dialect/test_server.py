"""`MCPServer`: schemas from signatures, the dialect and MCP over one pipe, and the checks of `validate`."""

from __future__ import annotations

import sys
import uuid
from pathlib import Path
from typing import Any

import pytest
from mcp import Client as McpClient
from mcp.client.stdio import StdioServerParameters, stdio_client

from sandbox.dialect import MCPServer
from sandbox.dialect.client import Client
from sandbox.dialect.links import PipeLink
from sandbox.dialect.validate import Asked, validate
from sandbox.errors import CallRefused, ServerFault
from tests.peers import words_server

pytestmark = pytest.mark.anyio

ARGV = [sys.executable, str(Path(words_server.__file__))]


async def test_it_passes_every_check() -> None:
    """A server in ten lines keeps every rule that means something over a pipe, a call and a job among them."""
    async with PipeLink(ARGV) as link:
        found = await validate(link, Asked(tool="count_words", arguments={"text": "a b"}))

    assert {"headers", "transport"} == {one.check for one in found if one.outcome != "pass"}, found


async def test_schemas_come_from_the_signature() -> None:
    """Types, bounds, defaults and results of the function are the descriptor's; metadata is what the author said."""
    async with PipeLink(ARGV) as link:
        client = Client(link)
        await client.connect()
        found = await client.descriptor("tools/count_words.json")

    assert (["text"], 1000, 0) == (
        found["input_schema"]["required"],
        found["input_schema"]["properties"]["text"]["maxLength"],
        found["input_schema"]["properties"]["least"]["default"],
    )
    assert (False, "integer", "1ms") == (
        found["input_schema"]["additionalProperties"],
        found["output_schema"]["properties"]["words"]["type"],
        found["metadata"]["latency"],
    )


async def test_calls_jobs_and_failures() -> None:
    """A result fits its schema, a job is waited for or cancelled, and a function that raises is a failed call."""
    async with PipeLink(ARGV) as link:
        client = Client(link)
        await client.connect()
        words = await client.call("count_words", {"text": "one two"})
        waited = await client.call("wait", {"seconds": 0.01}, mode="async")
        with pytest.raises(ServerFault, match="on purpose"):
            await client.call("fails", {})
        handle = await client.submit("wait", {"seconds": 60}, mode="async")
        ended = await link._said({"cancel": str(handle.job_id)})
        raw = {"request_id": str(uuid.uuid4()), "tool_id": "count_words", "arguments": {"text": 3}}
        wrong = await link.invoke(raw)

    assert ({"words": 2}, "done") == (words, waited)
    assert ("error", "DIA-016") == (ended.body["status"], ended.body["error"]["id"])
    assert ("error", "DIA-051") == (wrong.body["status"], wrong.body["error"]["id"])


async def test_the_same_program_speaks_mcp() -> None:
    """The SDK's client lists and calls its tools, so a DRIVER.md can run it."""
    parameters = StdioServerParameters(command=ARGV[0], args=ARGV[1:])
    async with McpClient(stdio_client(parameters), mode="legacy") as client:
        tools = {tool.name for tool in (await client.list_tools()).tools}
        good = await client.call_tool("count_words", {"text": "a b c"})
        bad = await client.call_tool("fails", {})

    assert {"count_words", "wait", "fails"} == tools
    assert {"words": 3} == good.structured_content
    assert bad.is_error


def positional(*values: str) -> None:
    """Take parameters that no JSON object names."""


def hidden(value: str, /) -> None:
    """Take one that cannot be named."""


@pytest.mark.parametrize("work", [positional, hidden])
def test_a_signature_that_cannot_be_called_by_name_is_refused(work: Any) -> None:
    """What no arguments object can express is told to the author at once."""
    server = MCPServer(id="x", version="1")
    with pytest.raises(ServerFault, match="DIA-055"):
        server.tool()(work)


def test_names_are_taken_once_and_transports_are_known() -> None:
    """Two tools of one name, and a transport that an author's server has not, are refused."""
    server = MCPServer(id="x", version="1")
    server.tool("a")(test_names_are_taken_once_and_transports_are_known)
    with pytest.raises(ServerFault, match="DIA-055"):
        server.tool("a")(positional)
    with pytest.raises(ServerFault, match="DIA-055"):
        MCPServer(id="x", version="1", transports=["http"])


async def test_arguments_are_checked_before_the_function_runs() -> None:
    """Unknown, missing and ill-typed arguments are refused, and the function is not called."""
    server, called = MCPServer(id="x", version="1"), []

    @server.tool("t")
    def tool(n: int) -> int:
        called.append(n)
        return n

    for given in ({}, {"n": "x"}, {"n": 1, "m": 2}):
        with pytest.raises(CallRefused, match="DIA-051"):
            await server.tools["t"].call(given)

    assert (5, [5]) == (await server.tools["t"].call({"n": 5}), called)
