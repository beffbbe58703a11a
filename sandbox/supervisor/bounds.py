"""How many instances there may be, and for how long; every bound with its unit and reason."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from sandbox.supervisor.breaker import Patience
from sandbox.supervisor.headroom import Reserve

MAX_INSTANCES: Final = 200
"""Instances of one supervisor, warm ones included. Memory is bounded by the host's figures; this bounds what else an
instance costs: two descriptors here, a shim process and a network name space on the host."""

MAX_INSTANCES_OF_TENANT: Final = 16
"""Instances of one tenant: one for each driver that it uses at a time."""

MAX_STARTING: Final = 2
"""Starts at once. The engine does them one after the other where it matters; more only make each slower."""

MAX_STARTING_OF_TENANT: Final = 1
"""Starts at once for one tenant: the other stays free for others."""

MAX_WAITING_STARTS_OF_TENANT: Final = 32
"""Requests of one tenant that wait for a start."""

START_PATIENCE: Final = 60.0
"""Seconds that a request waits for its turn to start an instance, and for room."""

IDLE_TIMEOUT: Final = 300.0
"""Seconds without a lease after which an instance is ended; a conversation pauses for minutes, not for hours."""

IDLE_LEAST: Final = 5.0
"""Seconds without a lease after which an instance may be ended early, when another tenant waits for room."""

HEALTH_AFTER: Final = 30.0
"""Seconds without a lease after which a server has to answer a ping before it is handed out again."""

HEALTH_TIMEOUT: Final = 5.0
"""Seconds for that answer; a host that swaps answers late."""

WARM: Final = 0
"""Started, vetted and paused instances that wait for a tenant, for each driver; each costs the memory of an idle
server, so that nobody gets them unasked."""


@dataclass(frozen=True, slots=True)
class PoolBounds:
    """The bounds of one pool; see the constants for units and reasons."""

    instances: int = MAX_INSTANCES
    of_tenant: int = MAX_INSTANCES_OF_TENANT
    starting: int = MAX_STARTING
    starting_of_tenant: int = MAX_STARTING_OF_TENANT
    waiting_of_tenant: int = MAX_WAITING_STARTS_OF_TENANT
    patience: float = START_PATIENCE
    idle: float = IDLE_TIMEOUT
    idle_least: float = IDLE_LEAST
    health_after: float = HEALTH_AFTER
    health_timeout: float = HEALTH_TIMEOUT
    warm: int = WARM
    restarts: Patience = field(default_factory=Patience)
    reserve: Reserve = field(default_factory=Reserve)
