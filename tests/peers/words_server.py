"""A server as an author writes it with `MCPServer`, for tests; run as a program."""

from __future__ import annotations

import asyncio
from typing import Annotated

import pydantic

from sandbox.dialect import MCPServer

server = MCPServer(id="com.example/words", version="1.2.0", capabilities=["async"])


class Counted(pydantic.BaseModel):
    """What is counted."""

    words: int


@server.tool("count_words", description="Count words.", latency="1ms", cost_estimate=0.0)
def count(text: Annotated[str, pydantic.Field(max_length=1000)], least: int = 0) -> Counted:
    """Count the words of a text."""
    print("printing does not disturb the conversation")  # noqa: T201 - what this is for
    return Counted(words=max(least, len(text.split())))


@server.tool()
async def wait(seconds: float) -> str:
    """Wait."""
    await asyncio.sleep(seconds)
    return "done"


@server.tool("fails")
def fail() -> None:
    """Raise."""
    raise ValueError("on purpose")


if __name__ == "__main__":
    server.start()
