"""Who a call is for.

There is no ambient default: whoever needs a tenant is handed one. ``run`` makes it from its flags, the gateway from
verified token claims; nothing ever takes it from a client's message (requirement S0-71).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NewType

TenantId = NewType("TenantId", str)

LOCAL: Final = TenantId("local")
"""The tenant of a ``run`` without ``--tenant``: one person on one machine."""


@dataclass(frozen=True, slots=True)
class TenantContext:
    """Verified facts about the caller.

    Attributes:
        tenant: the isolation boundary; instances are never shared across it.
        user: subject within the tenant, empty when unknown.
        claims: further verified claims, by name.
        source: how they were verified: ``flags``, ``token``, ``mtls``, ``key`` (on stdio), ``anonymous``, ``unsafe``.
    """

    tenant: TenantId = LOCAL
    user: str = ""
    claims: dict[str, str] = field(default_factory=dict)
    source: str = "flags"
