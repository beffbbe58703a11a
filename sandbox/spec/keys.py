"""The keys of DRIVER.md's top level: which are read, which other spellings are, and what an unknown one means.

AIP-30 leaves the top level open, so an unknown key is a warning there. But a permission, a limit or a binding that
nothing reads would be granted or dropped without anybody noticing. So an unknown key is an error when it is nearly the
name of such a block, or the name of something that belongs into one (ADR 0012).
"""

from __future__ import annotations

from typing import Any, Final

from sandbox.spec.report import Source, join, shorten
from sandbox.spec.shape import closest, unknown_key

UNIVERSAL: Final = (
    "name",
    "id",
    "description",
    "version",
    "kind",
    "implements",
    "install",
    "version_check",
    "auth",
    "region",
    "policy_tags",
    "cost_override",
    "timeout_override_ms",
    "retry_override",
    "health_check",
    "requires",
    "examples",
    "tags",
    "metadata",
)
"""AIP-30, read by ``fields.universal``; ``network`` and ``runner`` are read with the permissions."""

MCP: Final = ("transport", "protocol_version", "prompts", "resources", "connection_options", "mcp_tools")
"""AIP-32, read by ``fields.mcp``; ``server`` has a module of its own."""

PERMISSIONS: Final = ("server", "network", "runner", "sandbox", "limits")
"""Blocks that say what a server may do."""

MARKS: Final = ("spec", "schema", "driver_kind")
"""Marks of the document's type, tolerated (T0-12)."""

KNOWN: Final = (*UNIVERSAL, *MCP, *PERMISSIONS, *MARKS)

DOCTYPES: Final = frozenset({"agentdriver/v1", "agentmcp/v1", "agentproto/driver/v1", "agentproto/mcp/v1", "mcp"})

DECISIVE: Final = (
    *PERMISSIONS,
    "implements",
    "transport",
    "connection_options",
    "timeout_override_ms",
    "retry_override",
    "mcp_tools",
    "protocol_version",
    "prompts",
    "resources",
    "auth",
    "region",
    "policy_tags",
    "requires",
    "install",
    "version_check",
    "kind",
)
"""Keys whose misspelling would grant or drop something: close to one of them, an unknown key is an error."""

MISPLACED: Final[dict[str, str]] = {
    "egress": "network.egress",
    "ingress": "network.ingress",
    "hosts": "network.egress",
    "allowed_hosts": "network.egress",
    "ports": "server.port",
    "fs": "sandbox.fs",
    "filesystem": "sandbox.fs",
    "mounts": "sandbox.fs",
    "volumes": "sandbox.fs",
    "roots": "sandbox.fs",
    "read": "sandbox.fs.read",
    "write": "sandbox.fs.write",
    "deny": "sandbox.fs.deny",
    "exec": "sandbox.exec",
    "spawn": "sandbox.exec.spawn",
    "env": "server.env",
    "environment": "server.env",
    "secrets": "SECRETS.md",
    "runtime": "sandbox.runtime",
    "trust_host_ca": "sandbox.trust_host_ca",
    "permissions": "sandbox",
    "capabilities": "sandbox",
    "cap_add": "sandbox",
    "privileged": "sandbox",
    "devices": "sandbox",
    "security_opt": "sandbox",
    "network_mode": "network",
    "user": "sandbox",
    "resources_limits": "limits",
    "quotas": "limits",
    "memory_mb": "limits.memory_mb",
    "memory": "limits.memory_mb",
    "cpus": "limits.cpus",
    "cpu_ms": "limits.cpus",
    "pids": "limits.pids",
    "nofile": "limits.nofile",
    "fsize_mb": "limits.fsize_mb",
    "tmp_mb": "limits.tmp_mb",
    "lifetime_s": "limits.lifetime_s",
    "timeout_ms": "limits.timeout_ms",
    "timeout": "limits.timeout_ms",
    "command": "server",
    "args": "server.args",
    "image": "server.image",
    "package": "server.package",
    "url": "server.url",
    "headers": "server.headers",
    "tool_name": "implements[].metadata.mcp.tool_name",
    "argument_mapping": "implements[].metadata.mcp.argument_mapping",
    "result_extract": "implements[].metadata.mcp.result_extract",
    "context": "implements[].metadata.mcp.context",
    "schema_narrowing": "implements[].schema_narrowing",
}
"""Names that mean a permission, a limit or a binding, and where that is read."""

_CLOSE: Final = 0.75
"""Likeness (difflib) from which an unknown key counts as a misspelling."""

ALIASES: Final[dict[str, str]] = {
    "versionCheck": "version_check",
    "policyTags": "policy_tags",
    "costOverride": "cost_override",
    "timeoutOverrideMs": "timeout_override_ms",
    "retryOverride": "retry_override",
    "healthCheck": "health_check",
    "protocolVersion": "protocol_version",
    "connectionOptions": "connection_options",
    "mcpTools": "mcp_tools",
    "server_ref": "server",
    "serverRef": "server",
}
"""Other spellings: those of ``defineDriver`` (S0-51) and of older manifests (AIP-30 EXAMPLES §5)."""

TOOL_ALIASES: Final[dict[str, str]] = {
    "toolName": "tool_name",
    "argumentMapping": "argument_mapping",
    "resultExtract": "result_extract",
}
"""Other spellings in ``metadata.mcp``: those of the reference implementation (T0-8)."""


def normalise(source: Source, values: dict[str, Any]) -> dict[str, Any]:
    """Return the front matter with the usual spelling of each key; two spellings of one key are reported."""
    found = _renamed(source, "", values, ALIASES)
    entries = found.get("implements")
    if isinstance(entries, list):
        found["implements"] = [_entry(source, index, entry) for index, entry in enumerate(entries)]
    return found


def _entry(source: Source, index: int, entry: Any) -> Any:
    metadata = entry.get("metadata") if isinstance(entry, dict) else None
    per_tool = metadata.get("mcp") if isinstance(metadata, dict) else None
    if not isinstance(per_tool, dict) or not isinstance(metadata, dict):
        return entry
    renamed = _renamed(source, f"implements[{index}].metadata.mcp", per_tool, TOOL_ALIASES)
    return {**entry, "metadata": {**metadata, "mcp": renamed}}


def _renamed(source: Source, path: str, values: dict[str, Any], aliases: dict[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in values.items():
        name = aliases.get(key, key)
        if name != key:
            source.alias(join(path, name), join(path, key))
        if name in found or (name != key and name in values):
            source.error(
                "SPEC-050",
                join(path, key),
                f"{shorten(key)} is another spelling of `{name}`, which stands here too",
                mend=f"keep `{name}`",
            )
        else:
            found[name] = value
    return found


def unknown(source: Source, values: dict[str, Any]) -> None:
    """Report the keys of the top level that nothing reads."""
    for key in values:
        if key in KNOWN:
            continue
        near = closest(key, DECISIVE, _CLOSE)
        place = MISPLACED.get(key)
        if place is not None:
            source.error(
                "SPEC-051",
                key,
                f"{shorten(key)} is not read here, so it would neither grant nor limit anything",
                mend=f"write it as `{place}`, or remove it",
            )
        elif near:
            source.error(
                "SPEC-052",
                key,
                f"{shorten(key)} is not known, and looks like `{near}`",
                mend=f"write `{near}`, or remove it",
            )
        else:
            unknown_key(source, key, key, KNOWN, warning=True)
    for mark in MARKS:
        if mark in values and str(values[mark]) not in DOCTYPES:
            source.warn(
                "SPEC-053",
                mark,
                "this mark does not say `MCP driver`",
                found=values[mark],
                allowed=", ".join(sorted(DOCTYPES)),
                mend="remove it",
            )
