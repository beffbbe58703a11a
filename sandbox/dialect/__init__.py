"""The 2025-11 dialect: an informal protocol of that name, spoken beside real MCP and off by default.

It is no version of the Model Context Protocol: it has its own handshake, reads descriptors of tools as files, and calls
tools with a request that may become a job. What stands here translates only. Each request is decided, bounded, carried
and recorded as the same call would be over MCP, because it *is* that call: :mod:`sandbox.dialect.invoke` puts it to a
session of its own in front of the same door.

==================  ================================================================================================
``versions``        releases, their distance, which one two sides agree on
``model``           the shapes on the wire, each with its schema
``refusals``        what a refusal looks like
``handshake``       agreements, and to whom they belong
``files``           descriptors as a virtual, read-only folder
``invoke``          one call, from its request to its response
``jobs``            calls that outlive their connection, and this process
``site``            all of it over HTTP; ``sockets`` over WebSocket; ``pipes`` over standard input and output
==================  ================================================================================================
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sandbox.dialect.server import MCPServer

__all__ = ["MCPServer"]


def __getattr__(name: str) -> Any:
    """Return :class:`~sandbox.dialect.server.MCPServer`, imported when it is first used."""
    if name != "MCPServer":
        raise AttributeError(name)
    from sandbox.dialect.server import MCPServer  # noqa: PLC0415 - pydantic, which only authors need

    return MCPServer
