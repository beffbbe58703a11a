"""An implementation of a package → the driver folder that runs it (ADR 0095); pure but for reading our own programs.

The folder::

    DRIVER.md                what it may do: one destination or none, the person's grants, nothing else
    SECRETS.md               the credential's slug; the container sees a placeholder, the broker puts the value in
    tools/<contract>/TOOL.md the tool with the package's two schemas
    serve_mcp.py | .mjs      our program that speaks MCP for the tool, copied into an image layer by digest
    inside/serve.json        what it does, mounted read-only at /mcpkg
    inside/package/…         the package's files, mounted read-only with it
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from sandbox.errors import PlanRefused
from sandbox.mcpkg.bounds import MAX_RESULT_BYTES
from sandbox.mcpkg.model import HttpEndpoint, Implementation, LocalEndpoint, Manifest
from sandbox.mcpkg.select import Runtime, program_of

INSIDE: Final = "inside"
PACKAGE: Final = f"{INSIDE}/package"
_AT: Final = "/mcpkg"
_PROGRAMS: Final = {"python": "serve_mcp.py", "node": "serve_mcp.mjs"}
_SAFE_METHODS: Final = frozenset({"GET", "HEAD"})
_MAX_LINE: Final = 80
_GRACE_MS: Final = 2000
"""Milliseconds between the tool's own time-out and the call's, so that the better message arrives."""


@dataclass(frozen=True, slots=True)
class Grant:
    """A folder that the person who installs a package lets it see."""

    path: str
    at: str
    writable: bool = False


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the person who installs says about the sandbox; the package itself can ask for nothing.

    Attributes:
        grants: folders of the host.
        trust_host_ca: whether the container gets the host's CA bundle.
    """

    grants: tuple[Grant, ...] = ()
    trust_host_ca: bool = False


def contract_id(manifest: Manifest) -> str:
    """Return the contract's and driver's id: the tool's with ``_`` written as ``-`` (AIP-14 has no underscore)."""
    return manifest.tool_id.replace("_", "-")


def project(
    manifest: Manifest, implementation: Implementation, runtime: Runtime | None, wishes: Wishes
) -> dict[str, bytes]:
    """Return path → contents of the driver folder, without the package's own files.

    Args:
        manifest: of the package.
        implementation: the chosen one.
        runtime: that it runs on; ``None`` for an HTTP endpoint.
        wishes: of the person who installs.

    Raises:
        PlanRefused: ``PKG-030``, the credential cannot be put in by the broker.
    """
    program = _PROGRAMS[runtime.name if runtime else "python"]
    tool, wrap = _server_tool(manifest)
    serve: dict[str, Any] = {
        "tool": tool,
        "version": manifest.version,
        "wrap": wrap,
        "timeout": implementation.endpoint.timeout_ms / 1000,
        "max_result": MAX_RESULT_BYTES,
        **_work(manifest, implementation, runtime),
    }
    contract = contract_id(manifest)
    secrets = _secrets(manifest, implementation)
    files = {
        "DRIVER.md": _driver(manifest, implementation, program, wishes, secrets=bool(secrets)),
        f"tools/{contract}/TOOL.md": _tool(manifest, implementation, wishes),
        program: (Path(__file__).parent / "inside" / program).read_bytes(),
        f"{INSIDE}/serve.json": json.dumps(serve, ensure_ascii=False, indent=1).encode() + b"\n",
    }
    return {**files, "SECRETS.md": secrets} if secrets else files


def _work(manifest: Manifest, implementation: Implementation, runtime: Runtime | None) -> dict[str, Any]:
    endpoint = implementation.endpoint
    if isinstance(endpoint, HttpEndpoint):
        return {"http": {"method": endpoint.method, "url": endpoint.url, "headers": _headers(manifest)}}
    argv = program_of(endpoint, runtime) if runtime else endpoint.argv
    return {"local": {"argv": list(argv), "cwd": f"{_AT}/package"}}


def _headers(manifest: Manifest) -> dict[str, list[str]]:
    """Return header → prefix and variable; the variable holds a placeholder inside the container."""
    if manifest.auth.type == "none":
        return {}
    prefix = "" if manifest.auth.type == "api_key" else "Bearer "
    return {manifest.auth.header: [prefix, manifest.auth.env[0]]}


def _server_tool(manifest: Manifest) -> tuple[dict[str, Any], bool]:
    """Return the tool as our program lists it, and whether a result that is no object is wrapped for MCP."""
    outputs = dict(manifest.output_schema)
    wrap = outputs.get("type") != "object"
    if wrap:
        definitions = {"$defs": outputs.pop("$defs")} if "$defs" in outputs else {}
        outputs = {"type": "object", "properties": {"result": outputs}, "required": ["result"], **definitions}
    tool = {
        "name": manifest.tool_id,
        "description": manifest.description,
        "inputSchema": manifest.input_schema,
        "outputSchema": outputs,
    }
    return tool, wrap


def _driver(
    manifest: Manifest, implementation: Implementation, program: str, wishes: Wishes, *, secrets: bool
) -> bytes:
    endpoint = implementation.endpoint
    server: dict[str, Any] = {"kind": "binary", "path": f"./{program}", "args": [f"{_AT}/serve.json"]}
    if secrets:
        name = manifest.auth.env[0]
        server["env"] = {name: f"${{secrets.{name}}}"}
    read = [{"path": f"./{INSIDE}", "at": _AT}, *(_grant(one) for one in wishes.grants if not one.writable)]
    values: dict[str, Any] = {
        "name": _line(manifest.name),
        "id": contract_id(manifest),
        "description": _line(manifest.description),
        "version": manifest.version,
        "kind": "mcp",
        "server": server,
        "transport": "stdio",
        "network": {"egress": [endpoint.origin] if isinstance(endpoint, HttpEndpoint) else []},
        "sandbox": {
            "fs": {"read": read, "write": [_grant(one) for one in wishes.grants if one.writable]},
            "exec": {"allow": isinstance(endpoint, LocalEndpoint)},
            **({"trust_host_ca": True} if wishes.trust_host_ca else {}),
        },
        "implements": [_binding(manifest)],
        "tags": ["mcp", "mcpkg"],
        "metadata": {"mcpkg": {"toolId": manifest.tool_id, "implementation": implementation.id}},
    }
    if secrets:
        values["auth"] = {"ref": "./SECRETS.md", "state": {"env": [manifest.auth.env[0]]}}
    what = f"Made from the package {manifest.tool_id} {manifest.version}, implementation {implementation.id}."
    return _front_matter(values, f"{what} Install it again instead of editing this.")


def _binding(manifest: Manifest) -> dict[str, Any]:
    extract = "$" if manifest.output_schema.get("type") == "object" else "$.result"
    return {
        "tool": f"./tools/{contract_id(manifest)}/TOOL.md",
        "version": f"={manifest.version.partition('+')[0]}",
        "metadata": {"mcp": {"tool_name": manifest.tool_id, "result_extract": extract}},
    }


def _tool(manifest: Manifest, implementation: Implementation, wishes: Wishes) -> bytes:
    endpoint = implementation.endpoint
    mutates = [f"fs:{grant.at}" for grant in wishes.grants if grant.writable]
    if isinstance(endpoint, HttpEndpoint) and endpoint.method not in _SAFE_METHODS:
        mutates.append(endpoint.origin)
    values: dict[str, Any] = {
        "name": _line(manifest.name),
        "id": contract_id(manifest),
        "description": _line(manifest.description),
        "version": manifest.version,
        "inputs": manifest.input_schema,
        "outputs": manifest.output_schema,
        "mutates": mutates,
        "approval": "on-mutate" if mutates else "auto",
        "timeout_ms": endpoint.timeout_ms + _GRACE_MS,
        "tags": ["mcpkg"],
    }
    return _front_matter(values, "The package does not say what the tool changes, so what it could change is named.")


def _secrets(manifest: Manifest, implementation: Implementation) -> bytes:
    """Return SECRETS.md of a tool that authenticates itself; empty when it does not.

    Raises:
        PlanRefused: ``PKG-030``: the credential would cross the network in clear, or the broker cannot put it in.
    """
    endpoint = implementation.endpoint
    if manifest.auth.type == "none" or not isinstance(endpoint, HttpEndpoint):
        return b""
    parts = urlsplit(endpoint.url)
    if not endpoint.origin.startswith("https://") or not endpoint.origin.endswith(":443"):
        message = f"the credential of {manifest.tool_id} would be sent to {endpoint.origin}"
        raise PlanRefused("PKG-030", message, "the endpoint must be https on port 443; ask the publisher")
    name = manifest.auth.env[0]
    exposure = {
        "kind": "egress-substitute",
        "placeholderName": name,
        "allowedByDefault": True,
        "intendedProviders": [str(parts.hostname)],
    }
    entry = {
        "slug": _slug(name),
        "name": name,
        "description": f"Credential of {manifest.tool_id} at {parts.hostname}.",
        "kind": "opaque",
        "exposures": [exposure],
        "metadata": {"bindings": {"env": [name]}},
    }
    return _front_matter(
        {"secrets": [entry]}, "The container sees a placeholder; only the egress broker has the value."
    )


def _slug(name: str) -> str:
    return name.strip("_").lower().replace("_", "-") or "credential"


def _grant(grant: Grant) -> dict[str, str]:
    return {"path": grant.path, "at": grant.at}


def _line(text: str) -> str:
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())


def _front_matter(values: Mapping[str, Any], body: str) -> bytes:
    """Return a Markdown file whose front matter is one JSON value a line: JSON is YAML (ADR 0010)."""
    lines = [f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in values.items()]
    title = str(values.get("name", "Secrets"))[:_MAX_LINE]
    return "\n".join(["---", *lines, "---", "", f"# {title}", "", body, ""]).encode()
