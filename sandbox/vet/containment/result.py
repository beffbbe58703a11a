"""The questions' options and answers, as frozen values."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from sandbox.vet.containment.budget import DEFAULT_STEPS
from sandbox.vet.containment.dialect import Dialect

DEFAULT_SECONDS: Final = 0.8
"""Wall time of one decision where a clock is given; the acceptance bound is one second."""


@dataclass(frozen=True, slots=True)
class Options:
    """How a question is meant.

    Attributes:
        formats: ``unknown`` (default): a validator may or may not assert ``format`` and ``content*``, a *yes*
            holds either way; ``annotation``: none does.
        dialect: dialect of schemas without ``$schema``; ``None`` recognises it, and where that is ambiguous an answer
            holds in every plausible reading (see :mod:`dialect`).
        steps: work that may be spent, in units of :mod:`budget`.
        clock: seconds of a monotonic clock, for callers that need a bound in time on a busy machine; the package
            itself has none.
        seconds: time that may be spent when there is a clock.
    """

    formats: Literal["unknown", "annotation"] = "unknown"
    dialect: Dialect | None = None
    steps: int = DEFAULT_STEPS
    clock: Callable[[], float] | None = None
    seconds: float = DEFAULT_SECONDS


@dataclass(frozen=True, slots=True)
class Yes:
    """Proved.

    Attributes:
        vacuous: the first schema has no instance at all, which is hardly what its author meant.
    """

    vacuous: bool = False

    def __bool__(self) -> bool:
        """Return true, so that an answer can stand in a condition; *no* and *unknown* are false."""
        return True


@dataclass(frozen=True, slots=True)
class No:
    """Refuted by an instance, which the reference implementation has confirmed.

    Attributes:
        witness: a JSON value that is valid under the first schema and not under the second.
        path: where in the witness the second schema refuses it, as member names and indexes.
        keyword: the keyword of the second schema that refuses.
        message: why, in one clause: "`head` must be string".
    """

    witness: Any
    path: tuple[str | int, ...] = ()
    keyword: str = ""
    message: str = ""

    def __bool__(self) -> bool:
        """Return false."""
        return False


@dataclass(frozen=True, slots=True)
class Unknown:
    """Not decided; callers that protect something treat it as a *no*.

    Attributes:
        reason: why, in one clause.
    """

    reason: str

    def __bool__(self) -> bool:
        """Return false."""
        return False


Answer: TypeAlias = Yes | No | Unknown


class Relation(enum.Enum):
    """How the instances of one schema relate to those of another."""

    EQUAL = "equal"
    NARROWER = "narrower"
    WIDER = "wider"
    INCOMPARABLE = "incomparable"
    UNKNOWN = "unknown"
