"""The server of ``sdk_server.py`` over HTTP, with the public Python SDK: Streamable HTTP and HTTP+SSE.

``http_server.py KIND ADDRESS PORT [CERT KEY]``; KIND is ``http`` or ``sse``. Prints a line for each request: method,
path and what of the headers a test wants to see.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import uvicorn
from mcp.server.lowlevel.server import NotificationOptions
from mcp.server.sse import SseServerTransport
from mcp.server.streamable_http import EventMessage, EventStore
from mcp.server.transport_security import TransportSecuritySettings
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Mount, Route

sys.path.insert(0, str(Path(__file__).parent))
import sdk_server

SHOWN = (
    "authorization",
    "mcp-session-id",
    "mcp-protocol-version",
    "mcp-method",
    "mcp-name",
    "mcp-param-region",
    "last-event-id",
    "accept-encoding",
)
OPEN = TransportSecuritySettings(enable_dns_rebinding_protection=False)


class Events(EventStore):
    """Keeps every event of every stream."""

    def __init__(self):
        self.kept = []

    async def store_event(self, stream_id, message):
        """Keep one."""
        self.kept.append((stream_id, message))
        return str(len(self.kept))

    async def replay_events_after(self, last_event_id, send_callback):
        """Send what came after one."""
        at = int(last_event_id)
        stream = self.kept[at - 1][0]
        for number, (stream_id, message) in enumerate(self.kept[at:], at + 1):
            if stream_id == stream and message is not None:
                await send_callback(EventMessage(message, str(number)))
        return stream


def told(app):
    """Return an ASGI application that tells of each request."""

    async def telling(scope, receive, send):
        if scope["type"] == "http":
            headers = {name.decode(): value.decode("latin-1") for name, value in scope["headers"]}
            seen = {name: headers[name] for name in SHOWN if name in headers}
            sys.stdout.write(json.dumps({"method": scope["method"], "path": scope["path"], **seen}) + "\n")
            sys.stdout.flush()
        await app(scope, receive, send)

    return telling


def sse_app():
    """Return the application of the older transport."""
    server = sdk_server.build()
    transport = SseServerTransport("/messages/", security_settings=OPEN)

    async def stream(request):
        async with transport.connect_sse(request.scope, request.receive, request._send) as (reading, writing):
            options = server.create_initialization_options(NotificationOptions(True, True, True))
            await server.run(reading, writing, options)
        return Response()

    return Starlette(routes=[Route("/sse", stream), Mount("/messages/", app=transport.handle_post_message)])


def main():
    """Serve."""
    kind, address, port, *pem = sys.argv[1:]
    if kind == "sse":
        app = sse_app()
    else:
        app = sdk_server.build().streamable_http_app(event_store=Events(), retry_interval=300, transport_security=OPEN)
    cert, key = pem or (None, None)
    uvicorn.run(
        told(app), host=address, port=int(port), ssl_certfile=cert, ssl_keyfile=key, log_level="warning", http="h11"
    )


if __name__ == "__main__":
    main()
