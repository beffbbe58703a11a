"""An entity without DRIVER.md → the DRIVER.md that stands for it; pure.

Theory: an entity says what a server is called, who may use it, and, where it names one, what to reach or run. It cannot
say what the server may do. So the driver that is made of it may do nothing beyond that: its only destination is the
address that the entity names, there are no folders, no programs, no variables; and it offers the tools that have a
contract beside the entity and no other. It then goes through the same checks, plan and vetting as any driver.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sandbox.registry.kno.server import OWN, PACKAGES, named, refused
from sandbox.spec.written import manifest

TOOLS: Final = f"{OWN}tools"
"""Key of ``_meta``: the server's name of a tool → id of its contract, where they differ."""


@dataclass(frozen=True, slots=True)
class Contract:
    """A TOOL.md beside an entity.

    Attributes:
        path: relative to the folder.
    """

    path: str
    id: str
    version: str


def driver_md(values: Mapping[str, Any], file: str, contracts: Sequence[Contract]) -> str:
    """Return the text of DRIVER.md for an entity without errors.

    Args:
        values: fields of the entity.
        file: of the entity, for messages.
        contracts: of the tools that are offered.

    Raises:
        SpecError: ``KNO-020`` it names no server, ``KNO-021`` … ``KNO-023`` it names one in a way that cannot be run,
            ``KNO-024`` no tool has a contract.
    """
    found = named(values, file)
    if found is None:
        mend = f"write DRIVER.md beside it, an address in `remotes`, or a package in `_meta` under `{PACKAGES}`"
        raise refused("KNO-020", file, "remotes", "the entity names no server that could be run or reached", mend)
    if not contracts:
        message = "no tool has a contract beside the entity, so nothing could be called"
        raise refused(
            "KNO-024", file, "", message, "put a TOOL.md for each tool into `tools/NAME/`, or write DRIVER.md"
        )
    slug = str(values["slug"])
    matter: dict[str, Any] = {
        "name": str(values.get("title") or values.get("name") or slug)[:80],
        "id": slug.removeprefix("pspace-"),
        "description": str(values["description"]),
        "version": str(values["version"]),
        "kind": "mcp",
        "server": dict(found.server),
        "transport": found.transport,
        "network": {"egress": list(found.egress)},
        "mcp_tools": _tools(values, file, contracts),
        "implements": [{"tool": f"./{one.path}", "version": f"={one.version}"} for one in contracts],
        "tags": ["mcp", "kno"],
    }
    if found.install:
        matter["install"] = [dict(one) for one in found.install]
    return manifest(
        matter, "# Made from an entity\n\nMay do what the entity says, which is nothing but reach its server."
    )


def _tools(values: Mapping[str, Any], file: str, contracts: Sequence[Contract]) -> dict[str, str]:
    """Return the server's tool → contract for every contract; the contract's id is the name where none is said."""
    said = values.get("_meta", {}).get(TOOLS, {})
    good = isinstance(said, Mapping) and all(isinstance(one, str) for one in said.values())
    if not good or set(said.values()) - {one.id for one in contracts}:
        message = "it is no mapping from the server's tools to ids of contracts that are here"
        raise refused("KNO-025", file, f"_meta.{TOOLS}", message, "write `server_tool: contract-id`")
    plain = {one.id: one.id for one in contracts if one.id not in said.values()}
    return {**dict(said), **plain}
