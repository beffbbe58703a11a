"""Which facts a derivation will ask for, so that whoever may touch the host gathers them before: pure, names only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sandbox.plan.grants import deny_path

if TYPE_CHECKING:
    from sandbox.plan.draft import Overrides
    from sandbox.spec.model import DriverSpec


@dataclass(frozen=True, slots=True)
class Needs:
    """What :class:`~sandbox.plan.model.HostFacts` must hold for one driver.

    Attributes:
        paths: host paths as written (absolute, ``~/…`` or relative to the driver's folder); keys of
            ``HostFacts.paths``. env: names of host variables; keys of ``HostFacts.passed_env``, where they are set.
    """

    paths: tuple[str, ...]
    env: tuple[str, ...]


def needs(spec: DriverSpec, overrides: Overrides | None = None) -> Needs:
    """Return what must be looked up on the host before :func:`~sandbox.plan.derive.derive` can decide."""
    roots = overrides.roots if overrides else {}
    rules = spec.sandbox.fs
    granted = (roots.get(entry.at, entry.path) for entry in (*rules.read, *rules.write))
    denied = (deny_path(entry) for entry in rules.deny)
    return Needs(tuple(dict.fromkeys((*granted, *denied))), tuple(spec.sandbox.env.passed))
