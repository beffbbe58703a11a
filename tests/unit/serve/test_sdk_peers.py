"""Real clients and servers of the public Python SDK, in every combination of eras, over real pipes."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.shared import ROOT

pytestmark = [pytest.mark.anyio, pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

PEER = str(ROOT / "tests" / "peers" / "sdk_server.py")
COMBINATIONS = pytest.mark.parametrize(
    ("mode", "server", "spoken"),
    [
        pytest.param("legacy", "2025-11-25", "2025-11-25", id="handshake-to-handshake"),
        pytest.param("legacy", "", "2025-11-25", id="handshake-to-stateless"),
        pytest.param("2026-07-28", "2025-06-18", "2026-07-28", id="stateless-to-handshake"),
        pytest.param("2026-07-28", "", "2026-07-28", id="stateless-to-stateless"),
        pytest.param("auto", "2025-11-25", "2026-07-28", id="auto-to-handshake"),
        pytest.param("auto", "", "2026-07-28", id="auto-to-stateless"),
    ],
)


class Heard:
    """What a client hears outside its answers."""

    def __init__(self) -> None:
        self.logs: list[Any] = []
        self.messages: list[str] = []

    async def log(self, params: Any) -> None:
        self.logs.append((params.level, params.data))

    async def message(self, message: Any) -> None:
        self.messages.append(type(message).__name__)


@asynccontextmanager
async def client(mode: str, server: str, heard: Heard) -> AsyncIterator[Any]:
    """Connect an SDK client through us to an SDK server."""
    from mcp import Client, StdioServerParameters

    arguments = ["-m", "sandbox.testing.through", f"--version={server}", sys.executable, PEER]
    parameters = StdioServerParameters(command=sys.executable, args=arguments, cwd=str(ROOT))
    async with Client(
        parameters,
        mode=mode,
        logging_callback=heard.log,
        message_handler=heard.message,
        log_level="info",
        read_timeout_seconds=60,
    ) as connected:
        yield connected


async def error_of(coroutine: Any) -> tuple[int, str]:
    """Return code and message of a refused request."""
    from mcp.shared.exceptions import MCPError

    with pytest.raises(MCPError) as caught:
        await coroutine
    return caught.value.error.code, caught.value.error.message


@COMBINATIONS
async def test_everything_that_is_forwarded(mode: str, server: str, spoken: str) -> None:
    """Every method that reaches the server gives a real client what it gives without us."""
    from mcp import types

    heard, progress = Heard(), []

    async def step(done: float, total: float | None, message: str | None) -> None:
        progress.append((done, total, message))

    async with client(mode, server, heard) as session:
        tools = await session.list_tools()
        echo = await session.call_tool("echo", {"message": "hé\u2028llo"})
        added = await session.call_tool("add", {"a": 2, "b": 3})
        await session.call_tool("progress", {}, progress_callback=step)
        if mode == "legacy":
            await session.set_logging_level("info")
        await session.call_tool("log", {})
        prompts, prompt = await session.list_prompts(), await session.get_prompt("greet", {"who": "Ada"})
        resources, templates = await session.list_resources(), await session.list_resource_templates()
        read = await session.read_resource("note://one")
        reference = types.PromptReference(type="ref/prompt", name="greet")
        completed = await session.complete(reference, {"name": "who", "value": "a"})
        version = session.protocol_version

    assert spoken == version
    assert {"echo", "add", "slow"} <= {tool.name for tool in tools.tools}
    assert "hé\u2028llo" == echo.content[0].text
    assert ({"sum": 5}, "5") == (added.structured_content, added.content[0].text)
    assert [(n, 3, f"step {n}") for n in (1, 2, 3)] == progress
    assert [("info", "a info message"), ("error", "a error message")] == heard.logs
    assert (["greet"], "hello Ada") == ([one.name for one in prompts.prompts], prompt.messages[0].content.text)
    assert ["note://one"] == [str(one.uri) for one in resources.resources]
    assert ["note://{name}"] == [one.uri_template for one in templates.resource_templates]
    assert "the note" == read.contents[0].text
    assert ["ada", "alan"] == completed.completion.values


@COMBINATIONS
async def test_everything_that_is_refused(mode: str, server: str, spoken: str) -> None:
    """Unknown things, broken tools and cancellations end as they should; what a server may not ask, it does not get."""
    heard = Heard()
    async with client(mode, server, heard) as session:
        unknown = await error_of(session.call_tool("nope", {}))
        broken = await error_of(session.call_tool("break", {}))
        outside = await error_of(session.read_resource("file:///etc/passwd"))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(session.call_tool("slow", {}), 0.3)
        await asyncio.sleep(0.3)
        cancelled = await session.call_tool("cancelled", {})
        try:
            asked: Any = await session.call_tool("ask", {})
        except Exception as error:  # noqa: BLE001 - a handshake server passes our refusal on as an error
            asked = error

    assert (-32602, "unknown tool 'nope'") == unknown
    assert broken[0] in (0, -32603)
    assert outside[0] == (-32602 if spoken == "2026-07-28" else -32002)
    assert "slow" == cancelled.content[0].text
    assert "elicitation/create" in str(asked)


@pytest.mark.parametrize("server", ["2025-11-25", ""], ids=["handshake", "stateless"])
async def test_listening_through_us(server: str) -> None:
    """A stateless client hears of a changed resource of either kind of server."""
    heard = Heard()
    async with (
        client("2026-07-28", server, heard) as session,
        session.listen(resource_subscriptions=["note://one"]) as stream,
    ):
        await session.call_tool("touch", {})
        event = await asyncio.wait_for(anext(aiter(stream)), 30)

    assert "note://one" == event.uri


@pytest.mark.parametrize("server", ["2025-11-25", ""], ids=["handshake", "stateless"])
async def test_subscribing_through_us(server: str) -> None:
    """A handshake client hears of a changed resource of either kind of server."""
    heard = Heard()
    async with client("legacy", server, heard) as session:
        await session.subscribe_resource("note://one")
        await session.call_tool("touch", {})
        await asyncio.sleep(0.5)

    assert "ResourceUpdatedNotification" in heard.messages
