"""Evidence that a flood cannot make unbounded, and that loses nothing silently.

The first occurrence of each different event is told at once. Repetitions within a window are one event with a
``count``. When there are more different ones than the bounds allow, the rest is one number. Every event is therefore
in exactly one count.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Final

from sandbox.launch.egress.inside.bounds import TALLY_BURST, TALLY_KEYS, TALLY_RATE, TALLY_WINDOW
from sandbox.launch.egress.inside.reasons import FLOOD

Event = dict[str, Any]

REFUSALS: Final[Event] = {"ev": "flood", "reason": FLOOD}
QUESTIONS: Final[Event] = {"ev": "dns", "name": "*", "type": "", "transport": "", "reason": "", "address": ""}
"""Further questions about allowed names."""


class Tally:
    """Counts events by key and passes on a bounded number of them.

    Args:
        emit: takes each event that is told.
        clock: monotonic seconds.
        rest: what stands for events beyond the bounds.
    """

    def __init__(self, emit: Callable[[Event], None], clock: Callable[[], float], rest: Event = REFUSALS) -> None:
        self._emit = emit
        self._clock = clock
        self._rest = rest
        self._tokens = float(TALLY_BURST)
        self._filled = self._window = clock()
        self._seen: dict[Hashable, tuple[Event, int]] = {}
        self._beyond = 0

    def note(self, key: Hashable, event: Event) -> None:
        """Take one event; ``key`` says which ones are the same."""
        now = self._clock()
        if now - self._window >= TALLY_WINDOW:
            self.flush()
        known = self._seen.get(key)
        if known is not None:
            self._seen[key] = (known[0], known[1] + 1)
        elif len(self._seen) >= TALLY_KEYS:
            self._beyond += 1
        elif self._take(now):
            self._seen[key] = (event, 0)
            self._emit({**event, "count": 1})
        else:
            self._seen[key] = (event, 1)

    def lost(self, count: int) -> None:
        """Count events of which nothing but their number is known."""
        self._beyond += count

    def flush(self) -> None:
        """Tell what has been counted and begin a new window."""
        for event, count in self._seen.values():
            if count:
                self._emit({**event, "count": count})
        if self._beyond:
            self._emit({**self._rest, "count": self._beyond})
        self._seen.clear()
        self._beyond = 0
        self._window = self._clock()

    @property
    def pending(self) -> bool:
        """Whether something has been counted and not told."""
        return self._beyond > 0 or any(count for _, count in self._seen.values())

    def _take(self, now: float) -> bool:
        self._tokens = min(TALLY_BURST, self._tokens + (now - self._filled) * TALLY_RATE)
        self._filled = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True
