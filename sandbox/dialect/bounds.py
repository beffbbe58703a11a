"""Every bound of the dialect, with its unit and its reason."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sandbox.limits import KIB, MIB

MAX_MESSAGE: Final = 1 * MIB
"""Bytes of one message over WebSocket, and of a handshake or invocation over HTTP: arguments of tools are small."""

MESSAGES_PER_SECOND: Final = 50
MESSAGES_AT_ONCE: Final = 100
"""Messages of one WebSocket, of whatever kind. Calls are held to the gateway's rates besides."""

MAX_SOCKETS: Final = 512
MAX_SOCKETS_OF_TENANT: Final = 64
"""WebSockets at once: each may have messages and answers in memory."""

HANDSHAKE_TIMEOUT: Final = 10.0
"""Seconds until the first message of a WebSocket has to be there."""

MAX_OPEN_CALLS: Final = 32
"""Invocations of one WebSocket or pipe that may wait for their answer."""

MAX_SESSIONS: Final = 10_000
MAX_SESSIONS_OF_TENANT: Final = 500
"""Agreements that are remembered; each is a few hundred bytes."""

SESSION_IDLE: Final = 1800.0
"""Seconds without a request after which an agreement is forgotten. Jobs do not depend on it."""

POLL_AFTER: Final = 2.0
"""Seconds after which a job should be asked for."""

JOB_TTL: Final = 86_400.0
"""Seconds for which the outcome of a job is kept after its end: a client that was away for a day finds it."""

MAX_JOB_TTL: Final = 7 * 86_400.0
"""Longest that a client may ask for."""

MAX_JOBS: Final = 10_000
"""Jobs that are kept in all."""

MAX_JOBS_OF_TENANT: Final = 1000
"""The same of one tenant, ended ones included."""

MAX_UNFINISHED: Final = 256
"""Jobs of one tenant that may wait or run."""

RUNNING_OF_TENANT: Final = 8
"""Jobs of one tenant that run at once; the others wait for their turn."""

TASK_AFTER: Final = 10.0
"""Seconds after which a call over MCP becomes a task, where its client can have one: longer than most calls take, and
shorter than proxies wait."""

MAX_RESULT: Final = 4 * MIB
"""Bytes of one job's outcome on disk."""

MAX_ARGUMENTS: Final = 256 * KIB
"""Bytes of one job's arguments on disk."""


@dataclass(frozen=True, slots=True)
class JobBounds:
    """The bounds of jobs that tests and operators change; see the constants."""

    ttl: float = JOB_TTL
    jobs: int = MAX_JOBS
    of_tenant: int = MAX_JOBS_OF_TENANT
    unfinished: int = MAX_UNFINISHED
    running: int = RUNNING_OF_TENANT
    result: int = MAX_RESULT
    arguments: int = MAX_ARGUMENTS
    poll_after: float = POLL_AFTER
    task_after: float = TASK_AFTER
