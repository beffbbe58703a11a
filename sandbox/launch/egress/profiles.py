"""The seccomp profiles of holder and broker, which lie beside the image's recipe."""

from __future__ import annotations

from typing import Final, Literal

from sandbox import jsontext
from sandbox.errors import PlatformError
from sandbox.launch import seccomp
from sandbox.resources import shipped

Role = Literal["holder", "broker"]

ROLES: Final[tuple[Role, ...]] = ("holder", "broker")


def profile(role: Role) -> str:
    """Return a role's profile as the engine is given it.

    Raises:
        PlatformError: ``EGR-210``, it does not deny by default, or allows something without a reason.
    """
    value = jsontext.parse(shipped("images", "egress", f"{role}.seccomp.json").read_bytes())
    faults = seccomp.faults(value)
    if faults:
        raise PlatformError(
            "EGR-210",
            f"the seccomp profile of the egress {role} is not usable: {'; '.join(faults)}",
            "restore images/egress from the release",
        )
    return jsontext.canonical(value).decode("ascii")
