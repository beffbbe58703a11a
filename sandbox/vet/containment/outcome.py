"""The three answers to "is there a value?", used at every level of a decision.

- :data:`EMPTY`: proved that there is none;
- :class:`Found`: here is one;
- :class:`Open`: not decided. ``candidate`` may hold a value that is worth a try: the final check against the reference
  implementation turns a good one into a witness, and a bad one does no harm.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias


class _Nothing(enum.Enum):
    NOTHING = "nothing"

    def __bool__(self) -> bool:
        return False


NOTHING: Final = _Nothing.NOTHING
"""Marks the absence of a candidate: ``None`` is JSON's null, a value like any other."""


class _Empty(enum.Enum):
    EMPTY = "empty"


EMPTY: Final = _Empty.EMPTY


@dataclass(frozen=True, slots=True)
class Found:
    """A JSON value that satisfies everything asked for."""

    value: Any


@dataclass(frozen=True, slots=True)
class Open:
    """Not decided, and why."""

    reason: str
    candidate: Any = NOTHING


Outcome: TypeAlias = Literal[_Empty.EMPTY] | Found | Open


def doubt(names: Iterable[str]) -> str:
    """Return why opaque predicates leave a question open, as a clause; names are ``format:uri`` and the like."""
    return " and ".join(
        _DOUBTS.get(name.partition(":")[0], "{0} is not understood").format(*_quoted(name)) for name in names
    )


def _quoted(name: str) -> tuple[str, str]:
    keyword, _, value = name.partition(":")
    return name, f"`{keyword}: {value}`"


_DOUBTS: Final = {
    "format": "validators may or may not assert {1}",
    "multipleOf": "validators compute {1} differently",
    "pattern": "what {1} matches is not decided",
    "integer in the sense of draft-04": "whether 1.0 is an {0} is not decided",
}


def value_in(outcome: Found | Open) -> Any:
    """Return the value or the candidate, or :data:`NOTHING`."""
    return outcome.value if isinstance(outcome, Found) else outcome.candidate


def better(one: Open | None, other: Open) -> Open:
    """Return the more useful of two undecided outcomes: the first that has a candidate."""
    if one is None or (one.candidate is NOTHING and other.candidate is not NOTHING):
        return other
    return one
