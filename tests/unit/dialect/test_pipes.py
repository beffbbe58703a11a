"""The dialect on pipes: one object on each line, bounded, for whoever holds the other ends."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from sandbox.dialect.bounds import MAX_MESSAGE
from sandbox.dialect.handshake import Offer
from sandbox.dialect.model import Limits
from sandbox.dialect.pipes import pipe_of
from sandbox.dialect.service import Place, Service
from sandbox.dialect.talk import Talk
from sandbox.serve.http.endpoint import Endpoint
from sandbox.serve.identity.model import anonymous
from sandbox.transport.descriptors import Descriptor
from tests.dialect_lab import dialect_lab, invocation, shake
from tests.gateway_lab import Server

pytestmark = pytest.mark.anyio

LIMITS = Limits(calls_per_second=1.0, calls_at_once=1, jobs=0, message_bytes=MAX_MESSAGE)


class Client:
    """The other ends of two pipes."""

    def __init__(self, reader: asyncio.StreamReader, out: int, server: Server) -> None:
        self.reader = reader
        self.out = out
        self.server = server

    def send(self, *messages: Any) -> None:
        """Write lines."""
        for message in messages:
            data = message if isinstance(message, bytes) else json.dumps(message).encode()
            os.write(self.out, data + b"\n")

    async def heard(self) -> dict[str, Any] | None:
        """Return the next message, `None` at the end."""
        line = await asyncio.wait_for(self.reader.readline(), 15)
        return dict(json.loads(line)) if line else None

    def end(self) -> None:
        """Close our side."""
        with contextlib.suppress(OSError):
            os.close(self.out)


@contextlib.asynccontextmanager
async def piped(folder: Path) -> AsyncIterator[Client]:
    """Serve the lab's open endpoint on pipes."""
    async with dialect_lab(folder) as lab:
        endpoint = lab.stage.app.endpoints["/mcp/open"]
        assert isinstance(endpoint, Endpoint)
        place = Place(endpoint.door, "", Offer("open", ("stream", "sandbox"), LIMITS))
        service = Service(lab.stage.app.gateway.quotas, None, lab.stage.app.gateway.scope)
        (theirs, out), (back, ours) = os.pipe(), os.pipe()
        pipe = await pipe_of(Descriptor(theirs, pollable=True), Descriptor(ours, pollable=True))
        reader = asyncio.StreamReader(limit=16 * MAX_MESSAGE)
        loop = asyncio.get_running_loop()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(back, "rb", buffering=0))
        serving = asyncio.create_task(pipe.converse(lambda say: Talk(place, anonymous(), service, "stdio", say)))
        client = Client(reader, out, lab.stage.server)
        try:
            yield client
        finally:
            client.end()
            await asyncio.wait_for(serving, 15)


async def test_a_client_shakes_hands_calls_and_hears_progress(tmp_path: Path) -> None:
    """The same conversation as over WebSocket, on lines."""
    async with piped(tmp_path) as client:
        client.send(shake("stdio"))
        agreed = await client.heard()
        client.send(invocation(steps=1, slow=True), {"import": "tools/tool.json"}, {"import": "../x"})
        said = [await client.heard() for _ in range(4)]

    assert agreed is not None
    assert ("stdio", ["stream", "sandbox"]) == (agreed["transport"], agreed["capabilities"])
    kinds = sorted(one.get("status", "file") for one in said if one)
    assert ["error", "file", "in_progress", "success"] == kinds


async def test_what_was_asked_before_the_end_is_answered(tmp_path: Path) -> None:
    """A client that closes its side still hears the answer of the call in progress."""
    async with piped(tmp_path) as client:
        request = invocation(slow=True)
        client.send(shake("stdio", capabilities=[]), request)
        client.end()
        said = [await client.heard(), await client.heard(), await client.heard()]

    assert said[1] is not None
    assert (request["request_id"], "success", None) == (said[1]["request_id"], said[1]["status"], said[2])


@pytest.mark.parametrize("first", [b"no json", b"[]", json.dumps(shake("http")).encode(), b'{"tool_id":"tool"}'])
async def test_what_is_no_handshake_ends_it(tmp_path: Path, first: bytes) -> None:
    """The reason is said, nothing more is read, and no tool was called."""
    async with piped(tmp_path) as client:
        client.send(first, invocation())
        said, after = await client.heard(), await client.heard()

    assert said is not None
    assert ("error", None) == (said["status"], after)
    assert [] == client.server.calls


async def test_a_line_beyond_the_bound_ends_it(tmp_path: Path) -> None:
    """Memory is bounded whatever a client writes, with a line feed or without one."""
    async with piped(tmp_path) as client:
        client.send(shake("stdio"))
        await client.heard()

        async def flood() -> None:
            with contextlib.suppress(BrokenPipeError):
                await asyncio.to_thread(os.write, client.out, b"x" * (4 * MAX_MESSAGE))

        flooding = asyncio.create_task(flood())
        said = await client.heard()
        await asyncio.wait_for(flooding, 15)

    assert said is not None
    assert "DIA-020" == said["error"]["id"]
