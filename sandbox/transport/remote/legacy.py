"""HTTP+SSE of 2024-11-05: one stream for everything the server says, one address for everything it is told.

The stream's first event names that address. It must have the origin of the stream: anything else would let the server
send a client's words, and its credentials, somewhere else (MCP 2024-11-05, basic/transports; TypeScript and Python SDK
check the same). A stream that ends is the end of the server: this transport knows no resumption.
"""

from __future__ import annotations

import asyncio
import contextlib

from sandbox.errors import PlatformError, SandboxError, ServerFault
from sandbox.limits import HANDSHAKE_TIMEOUT
from sandbox.transport.interface import Receiver
from sandbox.transport.remote.address import Target, joined
from sandbox.transport.remote.channel import EVENTS, JSON, RemoteChannel, wrong_kind
from sandbox.transport.remote.http import HttpClient
from sandbox.wire.jsonrpc import Message, Request, encode
from sandbox.wire.sse import Event, EventDecoder

_OK = 200


class LegacyChannel(RemoteChannel):
    """A channel over one stream.

    Args:
        client: to the server.
        stream: URL of the driver.
    """

    def __init__(self, client: HttpClient, stream: Target) -> None:
        super().__init__(client)
        self._stream = stream
        self._where: asyncio.Future[Target] = asyncio.get_running_loop().create_future()

    def start(self, receiver: Receiver) -> None:
        """Open the stream."""
        super().start(receiver)
        self.spawn(self._listen())

    def send(self, message: Message) -> None:
        """Post one message; its answer comes over the stream."""
        self.spawn(self._post(message))

    def event(self, event: Event) -> None:
        """Take the address once, and messages."""
        if event.kind != "endpoint":
            super().event(event)
        elif not self._where.done():
            there = joined(self._stream, event.data.decode("utf-8", "replace"))
            if there.origin != self._stream.origin:
                message = f"the server names an address of another origin: {there}"
                raise ServerFault("WIRE-072", message, "report it to the server's author")
            self._where.set_result(there)

    async def _listen(self) -> None:
        response = await self._client.send("GET", self._stream, {"Accept": EVENTS}, {})
        if response.status != _OK or response.kind != EVENTS:
            response.close()
            raise wrong_kind(response)
        self._stream = response.target  # after redirects: what the address is held against
        with contextlib.suppress(PlatformError):
            await self.events(response, EventDecoder())
        if self._receiver is not None and not self._over:
            self._receiver.input_ended()

    async def _post(self, message: Message) -> None:
        request = message if isinstance(message, Request) else None
        try:
            async with asyncio.timeout(HANDSHAKE_TIMEOUT):
                there = await asyncio.shield(self._where)
            body = encode(message).rstrip(b"\n")
            response = await self._client.send("POST", there, {"Content-Type": JSON, "Accept": JSON}, {}, body)
            if request is None:
                response.close()
            elif not await self.refused(response, request):
                with contextlib.suppress(ServerFault):
                    await self.body(response)  # `Accepted`; the answer comes over the stream
        except TimeoutError:
            raise ServerFault("WIRE-072", "the server named no address to send to", "report it to its author") from None
        except SandboxError as error:
            if request is not None:
                self.failed(request.id, error)
