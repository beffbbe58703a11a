"""The bounds of one containment decision, and the one way to run out of them.

Work is counted, not timed: this package has no clock. One unit is about two microseconds of CPython on one slow core,
so that :data:`DEFAULT_STEPS` stays well below the second that a pair may take. Every loop whose length an author of a
schema can influence spends from the same :class:`Budget`; when it is empty the answer is *unknown*, never a guess.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

DEFAULT_STEPS: Final = 90_000
"""Units of one decision. Real tool schemas need hundreds to a few thousand; the rest is head room for unions."""

MAX_SCHEMA_NODES: Final = 20_000
"""Subschemas of one document that are read. The largest real tool schema known has about 1,200."""

MAX_DEPTH: Final = 40
"""Nesting of values that a decision follows; every level costs several Python frames. Real schemas stay below 15."""

MAX_INPLACE_DEPTH: Final = 60
"""Nesting of applicators on the same value (``allOf`` in ``anyOf`` in …). Real schemas stay below 6."""

MAX_BOXES: Final = 400
"""Disjuncts of one set of strings or numbers before it counts as too complex."""

MAX_UNIVERSE: Final = 64
"""Values of a small finite set that are enumerated, for ``uniqueItems`` and counting."""

MAX_ARRAY: Final = 256
"""Positions of one array that are considered one by one."""

MAX_WITNESS_CHARS: Final = 5_000
"""Characters of one string in a witness; longer ones prove the same and help nobody."""


ASK_EVERY: Final = 500
"""Units between two looks at the caller's clock: about a millisecond."""


class UndecidedError(Exception):
    """The question cannot be answered within the bounds or the supported fragment; ``reason`` says why.

    Internal to the package: the public functions turn it into an ``Unknown``.
    """

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


class Budget:
    """Counts the work of one decision.

    Args:
        steps: units that may be spent.
        expired: asked every now and then whether time is up; the package itself has no clock.

    Attributes:
        left: units that remain.
    """

    __slots__ = ("_ask_at", "_expired", "left", "steps")

    def __init__(self, steps: int = DEFAULT_STEPS, expired: Callable[[], bool] | None = None) -> None:
        self.steps = steps
        self.left = steps
        self._expired = expired
        self._ask_at = -1 if expired is None else steps - ASK_EVERY

    def spend(self, units: int = 1) -> None:
        """Take units.

        Raises:
            UndecidedError: none are left.
        """
        self.left -= units
        if self.left < 0:
            raise UndecidedError(f"the schemas are too complex to compare within {self.steps} steps")
        if self.left < self._ask_at:
            self._ask_at = self.left - ASK_EVERY
            if self._expired is not None and self._expired():
                self.left = -1
                raise UndecidedError("the schemas are too complex to compare in the time that is allowed")
