"""Every bound of the project, with its unit and its reason.

No size, count or timeout stands as a literal elsewhere. Bounds that an operator may change appear again, under the same
name, in ``policies/*.toml``; the values here are the defaults and, where said, hard maxima. Durations are seconds,
sizes are bytes, unless the name says otherwise.
"""

from __future__ import annotations

from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * KIB
GIB: Final = 1024 * MIB

# --- wire
MAX_LINE_BYTES: Final = 16 * MIB
"""One JSON-RPC message on stdio. A 10 MB tool result is legal and seen; without a bound one line is a memory bomb."""

MAX_JSON_DEPTH: Final = 128
"""Nesting of one message. 300 levels kill real SDKs; real tool traffic stays below 20."""

MAX_JSON_VALUES: Final = 600_000
"""Values of one JSON text. A value takes two bytes or more on the wire and up to 230 in memory: without a bound, 16 MiB
of ``{"a":1},`` would take 480 MB."""

MAX_ID_BYTES: Final = 256
"""A JSON-RPC id as text. Longer ids have no use and are kept per request in flight."""

MAX_METHOD_BYTES: Final = 256
"""A JSON-RPC method name."""

MAX_IN_FLIGHT: Final = 256
"""Requests of one client that wait for an answer; the next one is refused, not queued."""

MAX_STDERR_BYTES: Final = 256 * KIB
"""Of a server's stderr kept for diagnosis; the rest is counted and dropped."""

MAX_STDERR_LINE_BYTES: Final = 4 * KIB
"""Of one stderr line shown or kept."""

MAX_SERVER_GARBAGE_LINES: Final = 20
"""Lines on stdout that are not JSON-RPC (banners) before the server is at fault. Real servers print at most a few."""

MAX_CLIENT_GARBAGE_LINES: Final = 100
"""Lines of a client that are no use before its session ends; a person who types messages by hand may err a few
times."""

MAX_NOTIFICATIONS_PER_SECOND: Final = 1000
"""Notifications a server may send, averaged over one second; more is a flood and ends the instance."""

MAX_OWN_BYTES_PER_SECOND: Final = 4 * MIB
"""Bytes of the notifications and requests of a server in the long run; nobody reads that much log."""

MAX_OWN_BYTES_AT_ONCE: Final = 32 * MIB
"""The same in a burst: twice the largest line."""

MAX_LIST_PAGES: Final = 100
"""Pages of one ``*/list`` answer that are followed."""

MAX_LIST_ITEMS: Final = 10_000
"""Tools, prompts or resources that one server may offer."""

MAX_WRITE_BUFFER: Final = 64 * MIB
"""Bytes that wait for a peer that does not read. Reading from the other side stops at 1 MiB already; this is the
end."""

WRITE_HIGH_WATER: Final = 1 * MIB
"""Bytes waiting for a peer at which reading from the other side pauses."""

WRITE_LOW_WATER: Final = 256 * KIB
"""Bytes waiting for a peer at which reading from the other side goes on."""

MAX_ABANDONED_IDS: Final = 1024
"""Ids of cancelled requests that are remembered, so that a late answer is not taken for a stray one."""

MAX_INPUT_ROUNDS: Final = 4
"""Times that one request is repeated because the server asked for roots (2026-07-28, multi round-trip requests)."""

MAX_SUBSCRIPTIONS: Final = 1024
"""Resources that one client may watch."""

MAX_REMOTE_TEXT: Final = 4 * KIB
"""Characters of a server's error message that are passed on."""

# --- HTTP, towards remote servers
MAX_HTTP_HEAD: Final = 64 * KIB
"""Status line and header fields of one answer; common servers send at most 16 KiB."""

MAX_HTTP_ERROR: Final = 64 * KIB
"""Of the body of an answer that reports an error."""

MAX_HTTP_BUFFERED: Final = 64 * MIB
"""Bytes of all answers of one server that are being assembled at the same time."""

MAX_OAUTH_BODY: Final = 64 * KIB
"""An answer of an authorization server; common metadata has 2 to 8 KiB, a token at most 4 KiB."""

MAX_TOKEN: Final = 16 * KIB
"""Characters of one access or refresh token; the longest common ones (JWT with group claims) have 8 KiB."""

OAUTH_TIMEOUT: Final = 30.0
"""Seconds of one request to an authorization server, its connection included."""

LOGIN_TIMEOUT: Final = 600.0
"""Seconds in which a person comes back from the authorization server; codes live 10 minutes (RFC 6749 §4.1.2)."""

MAX_REDIRECTS: Final = 3
"""Hops of one request; each is checked like the first address."""

MAX_HEADER_VALUE: Final = 4 * KIB
"""One header field that we send."""

MAX_SESSION_ID: Final = 1 * KIB
"""``Mcp-Session-Id`` of a server; real ones are UUIDs and signed tokens."""

MAX_EVENT_ID: Final = 1 * KIB
"""``id`` of an event, which is sent back when a stream is resumed."""

MAX_EVENT_LINES: Final = 65_536
"""``data`` lines of one event; servers write one, or a pretty-printed document."""

MAX_STREAM_RETRIES: Final = 5
"""Times in a row that a stream is resumed without one new event."""

MAX_IDLE_CONNECTIONS: Final = 4
"""Kept open towards one server between requests."""

HTTP_IDLE: Final = 30.0
"""After which a connection that nobody uses is closed; servers keep them for 5 to 75 seconds."""

HTTP_CONNECT_TIMEOUT: Final = 20.0
"""Name, address and TLS of one connection together."""

STREAM_RETRY_MIN: Final = 0.25
"""Before a stream is resumed, whatever shorter time the server asks for."""

STREAM_RETRY_MAX: Final = 30.0
"""The same, whatever longer time it asks for."""

# --- vetting again
RECHECK_PER_SECOND: Final = 4
"""Readings of a server's lists around calls, on average. One costs a server some milliseconds; models call less often,
so that each of their calls has its own, and a burst of calls goes unread for a quarter of a second at most."""

RECHECK_AT_ONCE: Final = 32
"""The same in a burst."""

RECHECK_IDLE: Final = 60.0
"""Between readings while nobody calls, seconds: a change by time alone is found before anybody depends on it."""

RECHECK_RETRY: Final = 5.0
"""Between readings while a server's lists cannot be read, seconds; everything of it is out of service meanwhile."""

# --- time
HANDSHAKE_TIMEOUT: Final = 60.0
"""From container start to the server's first answer; npm servers on one slow core need seconds."""

PROBE_TIMEOUT: Final = 10.0
"""Wait for an answer to ``server/discover`` before falling back to ``initialize``; some old servers stay silent, and
npm servers take seconds to start on one slow core."""

DRAIN_GRACE: Final = 2.0
"""Requests in flight may still be answered this long after the client closed its side, as in ``printf … | mcp-sandbox
run``."""

CALL_TIMEOUT: Final = 120.0
"""One call when the contract names no ``timeout_ms``."""

STOP_GRACE: Final = 2.0
"""Between closing a server's stdin and SIGKILL; what reference clients grant (MCP, stdio shutdown)."""

ENGINE_TIMEOUT: Final = 60.0
"""One control request to the container engine."""

# --- files
MAX_MANIFEST_BYTES: Final = 256 * KIB
"""DRIVER.md, TOOL.md or SECRETS.md. The largest known manifest has 9 KB."""

MAX_YAML_NODES: Final = 20_000
"""Nodes of one front matter, counted after refusal of aliases."""

MAX_YAML_DEPTH: Final = 64
"""Nesting of one front matter."""

MAX_DRIVER_FILES: Final = 2_000
"""Files of one driver folder that are looked at."""

MAX_DRIVER_BYTES: Final = 16 * MIB
"""All manifests of one driver together; 300 contracts of the largest known size stay below 3 MB."""

MAX_PROBLEMS: Final = 200
"""Problems of one driver folder that are kept; past it the rest is one line. Nobody mends more in one go."""

# --- container defaults (a driver may ask for less or, up to the operator's ceiling, for more)
DEFAULT_MEMORY_BYTES: Final = 512 * MIB
"""A Node server idles at 60–90 MB; the reference servers peak below 200 MB."""

DEFAULT_CPUS: Final = 1.0
"""Cores."""

DEFAULT_PIDS: Final = 128
"""Processes and threads; Node alone uses about 12 threads."""

DEFAULT_NOFILE: Final = 1024
"""Open file descriptors of each process."""

DEFAULT_FSIZE_BYTES: Final = 256 * MIB
"""Largest file that a server may write."""

DEFAULT_TMP_BYTES: Final = 64 * MIB
"""Size of the /tmp tmpfs; counted to the container's memory by the kernel."""

DEFAULT_TMP_INODES: Final = 8192
"""Files in /tmp; without it a million empty files cost kernel memory."""

DEFAULT_LIFETIME: Final = 24 * 3600.0
"""Longest life of one instance."""
