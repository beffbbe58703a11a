"""Names of the OpenTelemetry semantic conventions for MCP, and our own beside them.

The conventions are in development (open-telemetry/semantic-conventions-genai, ``model/mcp``), and the published Python
constants are deprecated, so the names that we follow stand here. What is ours begins with ``mcp_sandbox.``.
"""

from __future__ import annotations

from typing import Final

SCOPE: Final = "mcp_sandbox"
"""Instrumentation scope."""

SERVICE: Final = "mcp-sandbox"
"""``service.name`` unless OTEL_SERVICE_NAME or OTEL_RESOURCE_ATTRIBUTES says otherwise."""

METHOD: Final = "mcp.method.name"
PROTOCOL: Final = "mcp.protocol.version"
SESSION: Final = "mcp.session.id"
RESOURCE_URI: Final = "mcp.resource.uri"
TOOL: Final = "gen_ai.tool.name"
PROMPT: Final = "gen_ai.prompt.name"
OPERATION: Final = "gen_ai.operation.name"
EXECUTE_TOOL: Final = "execute_tool"
REQUEST_ID: Final = "jsonrpc.request.id"
ERROR: Final = "error.type"
TOOL_ERROR: Final = "tool_error"
NETWORK: Final = "network.transport"
NETWORK_PROTOCOL: Final = "network.protocol.name"
HTTP: Final = "http"
PIPE: Final = "pipe"
TCP: Final = "tcp"
ADDRESS: Final = "server.address"
PORT: Final = "server.port"

STATELESS_SINCE: Final = "2026-07-28"
"""Protocol version from which on there are no sessions, so that ``mcp.session.id`` must not be set."""

OWN: Final = "mcp_sandbox."

SERVER_DURATION: Final = "mcp.server.operation.duration"
CLIENT_DURATION: Final = "mcp.client.operation.duration"
SERVER_SESSION: Final = "mcp.server.session.duration"
CLIENT_SESSION: Final = "mcp.client.session.duration"
OVERHEAD: Final = "mcp_sandbox.overhead.duration"
DECISIONS: Final = "mcp_sandbox.decisions"
CONNECTIONS: Final = "mcp_sandbox.egress.connections"
EGRESS_IO: Final = "mcp_sandbox.egress.io"
CPU_TIME: Final = "container.cpu.time"
MEMORY: Final = "container.memory.usage"
MEMORY_PEAK: Final = "mcp_sandbox.memory.peak"
PIDS: Final = "mcp_sandbox.pids"

SECONDS: Final = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
"""Bucket boundaries of the conventions' durations."""

SUB_MILLISECOND: Final = (
    0.00005,
    0.0001,
    0.0002,
    0.0003,
    0.0005,
    0.00075,
    0.001,
    0.0015,
    0.002,
    0.005,
    0.01,
    0.05,
)
"""Bucket boundaries of what we add to a call, seconds: theirs begin with 10 ms, which would hold all of it."""

HISTOGRAMS: Final[dict[str, tuple[tuple[float, ...], str]]] = {
    SERVER_DURATION: (SECONDS, "Duration of a request as seen by its receiver"),
    CLIENT_DURATION: (SECONDS, "Duration of a request as seen by its sender"),
    SERVER_SESSION: (SECONDS, "Duration of a session as seen by the MCP server"),
    CLIENT_SESSION: (SECONDS, "Duration of a session as seen by the MCP client"),
    OVERHEAD: (SUB_MILLISECOND, "What mcp-sandbox adds to a request"),
}
"""Histogram → boundaries in seconds, description."""

COUNTERS: Final[dict[str, tuple[str, str]]] = {
    DECISIONS: ("{decision}", "Requests allowed and denied"),
    CONNECTIONS: ("{connection}", "Connections and lookups allowed and denied"),
    EGRESS_IO: ("By", "Bytes between servers and allowed hosts"),
    CPU_TIME: ("s", "Processor time of an instance"),
}
"""Counter → unit, description."""

GAUGES: Final[dict[str, tuple[str, str]]] = {
    MEMORY: ("By", "Memory of an instance that counts against its limit"),
    MEMORY_PEAK: ("By", "Largest memory of an instance so far"),
    PIDS: ("{process}", "Processes and threads of an instance"),
}
"""Gauge → unit, description."""
