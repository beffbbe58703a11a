"""A plan while it is being derived: what was asked, and the refusals and reasons collected on the way.

Every step looks at everything it can judge, so that one refusal does not hide the next; only at the end are all of them
raised together. A step that refused returns whatever keeps the following steps meaningful; the plan is never handed
out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

from sandbox.errors import PlanProblems, Problem
from sandbox.plan.model import Reason

if TYPE_CHECKING:  # pydantic is not needed to derive a plan, and costs most of a start
    from sandbox.plan.model import HostFacts
    from sandbox.policy.ceiling_values import Ceiling
    from sandbox.spec.model import DriverSpec


@dataclass(frozen=True, slots=True)
class Overrides:
    """What the command line changes; it may re-point and narrow, never widen.

    Attributes:
        roots: declared path inside → host path to mount there instead (``--root AT=HOSTPATH``).
        runtime: OCI runtime, at least as strong as the driver's (``--runtime``).
        memory_bytes: at most the driver's (``--memory``).
    """

    roots: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    runtime: str = ""
    memory_bytes: int | None = None


@dataclass(slots=True)
class Draft:
    """The inputs of one derivation, and what the steps found."""

    spec: DriverSpec
    ceiling: Ceiling
    host: HostFacts
    overrides: Overrides
    problems: list[Problem] = field(default_factory=list)
    reasons: list[Reason] = field(default_factory=list)
    unsafe: list[str] = field(default_factory=list)

    def at(self, path: str) -> str:
        """Return ``file:line`` of a field of the driver."""
        return str(self.spec.where(path))

    def refuse(
        self,
        id_: str,
        path: str,
        message: str,
        *,
        found: object = "",
        allowed: str = "",
        mend: str = "",
        flag: str = "",
    ) -> None:
        """Note one refusal at a field of the driver, or at the command line flag that caused it."""
        origin = self.spec.where(path)
        file, line = (flag, 0) if flag else (origin.file, origin.line)
        self.problems.append(Problem(id_, file, line, path, message, str(found)[:200], allowed, mend))

    def because(self, path: str, value: object, why: str, source: str) -> None:
        """Note why a field of the plan has its value."""
        self.reasons.append(Reason(path, str(value), why, source))

    def weaken(self, name: str) -> bool:
        """Return whether the operator switched a weakening on; note its use in the plan."""
        entry = self.ceiling.unsafe_on(name)
        if entry is None:
            return False
        if name not in self.unsafe:
            self.unsafe.append(name)
            self.because("unsafe", name, entry.reason, entry.source)
        return True

    def finish(self) -> None:
        """Raise every refusal.

        Raises:
            PlanProblems: at least one was noted.
        """
        if self.problems:
            unique = tuple(dict.fromkeys(self.problems))
            raise PlanProblems(tuple(sorted(unique, key=lambda problem: (problem.file, problem.line, problem.id))))
