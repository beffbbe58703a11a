"""Every bound tool must provably fit its contract, or the server is refused at registration (S0-69).

:mod:`sandbox.vet.directions` decides one tool; here all of them are asked and everything that blocks is said at once.
"""

from __future__ import annotations

import time

from sandbox.errors import VetRefused
from sandbox.events import Scope
from sandbox.vet.containment import Options
from sandbox.vet.directions import Fit, fits
from sandbox.vet.findings import blocking
from sandbox.vet.model import Exposure, Fitting


def fit(exposure: Exposure, scope: Scope, policy: Fitting | None = None) -> Exposure:
    """Return the exposure when every bound tool provably fits its contract.

    Raises:
        VetRefused: ``VET-004``, a tool does not fit, or it cannot be decided; every one is named with its
            counterexample and the mend.
    """
    admit = (policy or Fitting()).unsafe_admit_undecided
    options = Options(clock=time.monotonic)
    found = [
        side
        for tool in exposure.tools.values()
        for side in fits(tool.binding, tool.server_definition, options=options, unsafe_accept_undecided=admit)
    ]
    blocked = blocking(finding for side in found for finding in side.findings)
    if blocked:
        raise VetRefused("VET-004", "\n".join(str(finding) for finding in blocked))
    scope.fact(
        "vet.fit",
        proved=_count(found, "proved"),
        at_call_time=sorted(side.tool for side in found if side.status == "at call time"),
        unsafe_undecided=sorted(f"{side.tool} {side.side}" for side in found if side.status == "undecided"),
    )
    return exposure


def _count(found: list[Fit], status: str) -> int:
    return sum(side.status == status for side in found)
