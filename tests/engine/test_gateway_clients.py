"""Clients that are nobody's we know, through the gateway to real containers: both eras on both sides."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest
from mcp import Client, types
from mcp.client.streamable_http import streamable_http_client

from tests import conformance_kit as kit
from tests.conformance_kit import V26
from tests.inspector import NODE, PROGRAM
from tests.shared import ROOT

pytestmark = [
    pytest.mark.engine, pytest.mark.anyio, pytest.mark.timeout(240), pytest.mark.filterwarnings("ignore")
]  # fmt: skip

TS = ROOT / "tests" / "peers" / "ts_client.mjs"
SAID = "This is a simple text response for testing."
KEPT = "This is the content of the static text resource."
PROMPT = "Prompt with arguments: arg1='a', arg2='b'"
RESUMED = "Reconnection test completed"
FORM = {"username": "ada", "email": "ada@example.org"}
SEEN = {
    "text": SAID,
    "header": "test_header {'region': 'eu-1'}",
    "progress": [0, 50, 100],
    "cancelled": "cancelled",
    "resource": KEPT,
    "prompt": PROMPT,
    "changed": True,
}
"""What every client sees, whatever it is and whatever the server speaks."""


async def node(*argv: str) -> Any:
    """Run a program on Node.js and return what it prints."""
    environment = {**os.environ, "PATH": f"{NODE}{os.pathsep}{os.environ['PATH']}"}
    process = await asyncio.create_subprocess_exec(
        *argv, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, env=environment
    )
    out, said = await asyncio.wait_for(process.communicate(), 60)
    assert 0 == process.returncode, said.decode()
    return json.loads(out)


async def typescript(line: str, era: str, url: str, what: str = "all") -> Any:
    """Use a client of the TypeScript SDK."""
    return await node(str(kit.NODE), str(TS), str(kit.CACHE / "clients"), line, era, what, url)


async def inspector(era: str, url: str) -> Any:
    """Use the MCP Inspector: list, and call."""
    base = (str(PROGRAM), "--cli", "--format", "json", "--quiet", "--protocol-era", era)
    where = ("--transport", "http", "--server-url", url)
    listed = await node(*base, *where, "--method", "tools/list")
    called = await node(*base, *where, "--method", "tools/call", "--tool-name", "test_simple_text")
    names = [tool["name"] for tool in listed["result"]["tools"]]
    return {"tools": names, "text": called["result"]["content"][0]["text"]}


@contextlib.asynccontextmanager
async def python(mode: str, url: str, **options: Any) -> AsyncIterator[Client]:
    """Connect the client of the Python SDK."""
    http = httpx2.AsyncClient(timeout=60, trust_env=False)
    transport = streamable_http_client(url, http_client=http)
    async with http, Client(transport, mode=mode, **options) as client:  # type: ignore[arg-type]
        yield client


async def sdk(mode: str, url: str) -> dict[str, Any]:
    """Use the client of the Python SDK for everything."""
    changed, progress = asyncio.Event(), []

    async def hear(message: Any) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            changed.set()

    async def answer(_context: Any, _params: Any) -> types.ElicitResult:
        return types.ElicitResult(action="accept", content=FORM)

    async def step(done: float, _total: float | None, _message: str | None) -> None:
        progress.append(done)

    async with python(mode, url, elicitation_callback=answer, message_handler=hear) as client:
        found: dict[str, Any] = {"tools": [tool.name for tool in (await client.list_tools()).tools]}
        found["text"] = said(await client.call_tool("test_simple_text", {}))
        found["header"] = said(await client.call_tool("test_header", {"region": "eu-1"}))
        await client.call_tool("test_tool_with_progress", {}, progress_callback=step)
        found["cancelled"] = await cancelled(client)
        read = (await client.read_resource("test://static-text")).contents[0]
        found["resource"] = read.text if isinstance(read, types.TextResourceContents) else ""
        prompt = await client.get_prompt("test_prompt_with_arguments", {"arg1": "a", "arg2": "b"})
        found["prompt"] = prompt.messages[0].content.text  # type: ignore[union-attr]
        found["elicited"] = said(await client.call_tool("test_elicitation", {"message": "Who?"}))
        async with contextlib.AsyncExitStack() as stack:
            if mode != "legacy":
                stream = await stack.enter_async_context(client.listen(tools_list_changed=True))
            await client.call_tool("test_trigger_tool_change", {})
            async with asyncio.timeout(10):
                await (changed.wait() if mode == "legacy" else anext(aiter(stream)))
        await client.call_tool("test_trigger_tool_change", {})
    return {**found, "progress": [int(one) for one in progress], "changed": True}


async def cancelled(client: Client) -> str:
    """Cancel a call that would take long."""
    task = asyncio.create_task(client.call_tool("test_waits", {}))
    await asyncio.sleep(0.3)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        return said(await task)
    return "cancelled"


async def every_client(server: str, url: str) -> dict[str, Any]:
    """Use every client one after the other, and see that the server was told of every cancelled call."""
    runs = {
        "python legacy": sdk("legacy", url),
        "python modern": sdk(V26, url),
        "ts 1 legacy": typescript("v1", "legacy", url),
        "ts 2 legacy": typescript("v2", "legacy", url),
        "ts 2 modern": typescript("v2", "modern", url),
        "inspector legacy": inspector("legacy", url),
        "inspector modern": inspector("modern", url),
    }
    found = {f"{name} to {server}": await run for name, run in runs.items()}
    async with python("legacy", url) as client:
        assert "5" == said(await client.call_tool("test_cancelled", {})), server
    return found


def said(result: Any) -> str:
    """Return the first text of a result."""
    text: str = result.content[0].text
    return text


class Cutting:
    """A relay that breaks the first connection on which an event stream begins, as networks do."""

    def __init__(self, url: str) -> None:
        self._port = urlsplit(url).port
        self.armed = False
        self.cuts = 0

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Relay one connection."""
        there, back = await asyncio.open_connection("127.0.0.1", self._port)
        with contextlib.suppress(OSError):
            await asyncio.gather(self._up(reader, back), self._down(there, writer))
        for end in (writer, back):
            end.close()

    async def _up(self, reader: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            back.write(data)
            await back.drain()
        back.close()

    async def _down(self, there: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await there.read(65536):
            writer.write(data)
            await writer.drain()
            if b"retry: " in data and self.armed:
                self.armed, self.cuts = False, self.cuts + 1
                await asyncio.sleep(0.1)
                writer.transport.abort()
                raise ConnectionAbortedError


async def resumed(url: str, port: int) -> list[str]:
    """Break the connection of every handshake client in the middle of a call, and return what it gets in the end."""
    relay = Cutting(url)
    through = url.replace(str(urlsplit(url).port), str(port))
    answers = []
    async with await asyncio.start_server(relay, "127.0.0.1", port):
        for line in ("v1", "v2"):
            relay.armed = True
            answers.append((await typescript(line, "legacy", through, "reconnect"))["resumed"])
        async with python("legacy", through) as client:
            relay.armed = True
            answers.append(said(await client.call_tool("test_reconnection", {})))
    return [*answers, f"{relay.cuts} cuts"]


async def test_every_client_gets_everything_through_the_gateway(tmp_path: Path) -> None:
    """Lists, calls, progress, cancellation, resources, prompts, questions, changes, broken streams: in any era."""
    port = kit.free_port()
    async with kit.behind(tmp_path, hosts=[f"localhost:{port}"]) as urls:
        first, second, again = await asyncio.gather(
            *(every_client(server, url) for server, url in urls.items()), resumed(urls[V26], port)
        )

    for who, seen in (first | second).items():  # type: ignore[operator]
        assert {name: SEEN[name] for name in seen if name in SEEN} == {n: v for n, v in seen.items() if n in SEEN}, who
        assert "test_simple_text" in seen["tools"], who
        assert "elicited" not in seen or "ada" in seen["elicited"], who
    assert [RESUMED, RESUMED, RESUMED, "3 cuts"] == again


@pytest.mark.claim("P-ASK-04")
async def test_real_servers_of_both_eras_ask_at_the_endpoint_of_all_and_get_their_own_answers(tmp_path: Path) -> None:
    """Both ask one client at once, with real rules in real containers; each is answered what was said to it alone."""
    seen: list[str] = []

    async def answer(_context: Any, params: Any) -> types.ElicitResult:
        driver = re.findall(r"the MCP server ([a-z0-9-]+),", params.message)[0]
        seen.append(driver)
        async with asyncio.timeout(60):
            while len(seen) % 2:  # noqa: ASYNC110 - until both have asked
                await asyncio.sleep(0.01)
        return types.ElicitResult(action="accept", content={**FORM, "username": f"ada of {driver}"})

    found = {}
    async with kit.behind(tmp_path) as urls:
        url = urls[V26].rpartition("/")[0]
        for mode in ("legacy", V26):
            async with python(mode, url, elicitation_callback=answer) as client:
                names = [tool.name for tool in (await client.list_tools()).tools]
                asking = sorted(name for name in names if name.endswith("__test_elicitation"))
                results = await asyncio.gather(*(client.call_tool(one, {"message": "Who?"}) for one in asking))
                found[mode] = dict(zip(asking, map(said, results), strict=True))

    drivers = sorted(one.rpartition("/")[2] for one in urls.values())
    assert 2 == len(drivers)
    assert [*drivers, *drivers] == [*sorted(seen[:2]), *sorted(seen[2:])]
    for mode, answers in found.items():
        assert [f"{driver}__test_elicitation" for driver in drivers] == list(answers), mode
        assert all(f"ada of {driver}" in answers[f"{driver}__test_elicitation"] for driver in drivers), mode
