"""Runs a command behind the real wire, transport and session code: ``python -m sandbox.testing.through CMD …``.

For measurements and for tests with real clients. Everything that the server offers is exposed under its own names;
nothing is isolated, decided or recorded. Not for use.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import anyio

from sandbox.errors import SandboxError
from sandbox.events import Fact, Scope, Trace
from sandbox.limits import CALL_TIMEOUT, HANDSHAKE_TIMEOUT
from sandbox.serve.client_model import SessionOptions
from sandbox.serve.forwarding import ForwardingHandler
from sandbox.serve.session import ClientSession
from sandbox.spec.model import Binding, Origin, PromptDecl, ResourceDecl, ToolContract
from sandbox.transport.peer import ServerPeer
from sandbox.transport.process import spawn
from sandbox.transport.stdio import serve_stdio
from sandbox.vet.model import ExposedTool, Exposure, ServerSurface


class Forgetful:
    """A recorder that keeps nothing."""

    def record(self, fact: Fact) -> None:
        """Forget."""


def expose_everything(peer: ServerPeer, lists: Mapping[str, Sequence[Mapping[str, Any]]]) -> Exposure:
    """Return an exposure of all that a server listed, under its own names."""
    surface = ServerSurface(
        era=peer.era,
        protocol_version=peer.protocol_version,
        server_info=peer.server_info,
        capabilities=peer.capabilities,
        tools={str(tool["name"]): tool for tool in lists["tools"]},
        prompts={str(prompt["name"]): prompt for prompt in lists["prompts"]},
        resources=tuple(lists["resources"]),
        resource_templates=tuple(lists["templates"]),
    )
    uris = [str(one["uri"]) for one in lists["resources"]] + [str(one["uriTemplate"]) for one in lists["templates"]]
    return Exposure(
        tools={name: _exposed(tool) for name, tool in surface.tools.items()},
        prompts={name: PromptDecl(name=name, integrate_as="raw") for name in surface.prompts},
        resources=tuple(ResourceDecl(uri_template=uri, integrate_as="raw") for uri in uris),
        instructions=peer.instructions,
        surface=surface,
    )


def _exposed(tool: Mapping[str, Any]) -> ExposedTool:
    name, here = str(tool["name"]), Origin(file="test")
    contract = ToolContract(
        id=name, name=name, description="", version="1.0.0", inputs={}, outputs={}, origin=here, digest=""
    )
    return ExposedTool(
        name, tool, name, tool, Binding(contract=contract, version_range="*", tool_name=name, origin=here)
    )


async def read_lists(peer: ServerPeer) -> dict[str, Sequence[Mapping[str, Any]]]:
    """Return every list that the server's capabilities name."""
    has = peer.capabilities
    return {
        "tools": await peer.list_all("tools/list") if "tools" in has else (),
        "prompts": await peer.list_all("prompts/list") if "prompts" in has else (),
        "resources": await peer.list_all("resources/list") if "resources" in has else (),
        "templates": await peer.list_all("resources/templates/list") if "resources" in has else (),
    }


async def serve(argv: Sequence[str], version: str = "", call_timeout: float = CALL_TIMEOUT) -> None:
    """Serve this process's stdio from a child process.

    Raises:
        SandboxError: as the server or the client deserves it.
    """
    client = await serve_stdio()
    scope = Scope(Forgetful(), Trace.new())
    info = {"name": "mcp-sandbox", "version": "0"}
    server = await spawn(argv)
    peer = await ServerPeer.connect(
        server,
        client_info=info,
        capabilities={},
        scope=scope,
        protocol_version=version,
        timeout=min(HANDSHAKE_TIMEOUT, call_timeout),
    )
    try:
        exposure = expose_everything(peer, await read_lists(peer))
        options = SessionOptions(call_timeout=call_timeout)
        await ClientSession(client, exposure, peer, ForwardingHandler(), scope, options).run()
        await client.wait_closed()
    finally:
        await peer.close()
    fault = await peer.wait_closed()
    if fault is not None:
        raise fault


def main() -> int:
    """Run from the command line; exit status and message are those of the error."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--version", default="", help="protocol version of the server; empty to find out")
    parser.add_argument("--call-timeout", type=float, default=CALL_TIMEOUT, help="seconds")
    parser.add_argument("argv", nargs=argparse.REMAINDER)
    given = parser.parse_args()
    options = {"use_uvloop": True}
    try:
        anyio.run(serve, given.argv, given.version, given.call_timeout, backend="asyncio", backend_options=options)
    except SandboxError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
