"""Collects, once and whole, what a live server says it offers: every page of every list that matters to its driver."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from sandbox.errors import ServerFault
from sandbox.spec.model import DriverSpec
from sandbox.vet.model import Era, ServerSurface


class Peer(Protocol):
    """The part of :class:`sandbox.transport.peer.ServerPeer` that vetting needs."""

    @property
    def era(self) -> Era:
        """Era that was settled."""

    @property
    def protocol_version(self) -> str:
        """Version that was settled."""

    @property
    def server_info(self) -> Mapping[str, Any]:
        """What the server calls itself."""

    @property
    def capabilities(self) -> Mapping[str, Any]:
        """What it says it can."""

    @property
    def instructions(self) -> str:
        """What it says to models."""

    async def list_all(self, method: str) -> Sequence[dict[str, Any]]:
        """Return every item of one ``*/list``, following every page."""


async def collect(
    peer: Peer, spec: DriverSpec, client_capabilities: Mapping[str, Any], *, everything: bool = False
) -> ServerSurface:
    """Return the surface of a connected server.

    Prompts and resources are asked for only when the driver declares some: what is not declared is not exposed, and
    asking would start code that nobody needs. ``everything`` asks anyway, for whoever writes the driver.

    Raises:
        ServerFault: ``VET-002``, a list holds something that is not a named object, or a name twice.
    """
    tools = _by_name(await peer.list_all("tools/list"), "tools/list") if "tools" in peer.capabilities else {}
    prompts: Mapping[str, Mapping[str, Any]] = {}
    resources: Sequence[Mapping[str, Any]] = ()
    templates: Sequence[Mapping[str, Any]] = ()
    if (spec.prompts or everything) and "prompts" in peer.capabilities:
        prompts = _by_name(await peer.list_all("prompts/list"), "prompts/list")
    if (spec.resources or everything) and "resources" in peer.capabilities:
        resources = await peer.list_all("resources/list")
        templates = await peer.list_all("resources/templates/list")
    return ServerSurface(
        era=peer.era,
        protocol_version=peer.protocol_version,
        server_info=peer.server_info,
        capabilities=peer.capabilities,
        instructions=peer.instructions,
        client_capabilities=client_capabilities,
        tools=tools,
        prompts=prompts,
        resources=tuple(resources),
        resource_templates=tuple(templates),
    )


def _by_name(items: Sequence[dict[str, Any]], method: str) -> dict[str, Mapping[str, Any]]:
    named: dict[str, Mapping[str, Any]] = {}
    for item in items:
        name = item.get("name")
        if not isinstance(name, str) or not name:
            raise ServerFault("VET-002", f"{method} holds an item without a name", "report it to the server's author")
        if name in named:
            raise ServerFault("VET-002", f"{method} names `{name[:80]}` twice", "report it to the server's author")
        named[name] = item
    return named
