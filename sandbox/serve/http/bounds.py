"""Every bound of the gateway, with its unit and its reason."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Final

from sandbox.limits import KIB, MIB

MAX_BODY: Final = 4 * MIB
"""Bytes of one POST. Arguments of tools are small; the SDK's servers take the same."""

MAX_HEAD: Final = 32 * KIB
"""Bytes of a request line with its header fields; a large token has 4 KiB."""

HEAD_TIMEOUT: Final = 15.0
"""Seconds until the head of a request has to be there; without it idle connections could be held for ever."""

BODY_TIMEOUT: Final = 20.0
"""Seconds until its body has to be there."""

WRITE_TIMEOUT: Final = 60.0
"""Seconds that a client may take to read a :data:`PIECE`."""

PIECE: Final = 64 * KIB
"""Bytes of an answer that are handed to a connection at once: a client that does not read holds no more than a few."""

MAX_CONNECTIONS: Final = 4096
"""Connections at once; each costs about 40 KiB here."""

MAX_SESSIONS: Final = 10_000
"""Handshake sessions at once; each keeps at most :data:`MAX_KEPT_BYTES` and one last answer."""

MAX_SESSIONS_OF_TENANT: Final = 500
"""The same of one tenant."""

SESSION_IDLE: Final = 1800.0
"""Seconds without a request or an open stream after which a handshake session ends and lets go of its server."""

MAX_ACTIVE: Final = 2048
"""Requests in progress at once; an answer may have 16 MiB, so that this bounds memory."""

MAX_ACTIVE_OF_TENANT: Final = 256
"""The same of one tenant."""

MAX_WAITING_BYTES: Final = 1 * MIB
"""Bytes of notifications that wait on one stream for a client that does not read; further ones are dropped and
counted. Answers are never dropped."""

MAX_KEPT_EVENTS: Final = 256
"""Events of one stream that are kept for a client that comes back with ``Last-Event-ID``."""

MAX_KEPT_BYTES: Final = 256 * KIB
"""Bytes of them, and of all streams of one session that have ended; the newest is kept whatever its size."""

MAX_KEPT_STREAMS: Final = 64
"""Streams of one session that can be resumed; older ones that have ended are forgotten."""

JSON_WAIT: Final = 0.5
"""Seconds in which a first answer goes out as plain JSON; after that the response becomes an event stream, so that
proxies in between see it alive and a client of a session that loses its connection finds the answer again."""

HEARTBEAT: Final = 15.0
"""Seconds between comments on a quiet event stream: proxies close what is silent for 30 to 60."""

RETRY_MS: Final = 1000
"""Milliseconds after which a client should resume a broken stream."""

DRAIN: Final = 20.0
"""Seconds that requests in progress may still take after SIGTERM; common supervisors send SIGKILL after 30."""

RETRY_AFTER: Final = 2
"""Seconds after which a client refused for want of room may try again."""

REFUSALS_PER_SECOND: Final = 20
REFUSALS_AT_ONCE: Final = 100
"""Refusals that are recorded one by one; beyond it they are counted into the next record, so that who is refused
cannot fill the trail."""


@dataclass(slots=True)
class HttpBounds:
    """The bounds that tests and operators change; see the constants.

    A gateway has one of them, and whoever holds it reads it at each use: what a reload writes (:meth:`renew`) holds for
    the next request, and what is in progress or open goes on.
    """

    body: int = MAX_BODY
    body_timeout: float = BODY_TIMEOUT
    sessions: int = MAX_SESSIONS
    sessions_of_tenant: int = MAX_SESSIONS_OF_TENANT
    session_idle: float = SESSION_IDLE
    active: int = MAX_ACTIVE
    active_of_tenant: int = MAX_ACTIVE_OF_TENANT
    json_wait: float = JSON_WAIT
    heartbeat: float = HEARTBEAT
    drain: float = DRAIN

    def renew(self, other: HttpBounds) -> None:
        """Become like another one."""
        for each in fields(self):
            setattr(self, each.name, getattr(other, each.name))
