"""When a server that keeps ending may be started again: back-off, then a circuit breaker. Pure; time is passed in.

Each end that nobody asked for counts as a failure, a start that does not become a vetted server too. After the n-th
failure in a row the next start waits ``first * 2**(n-1)`` seconds, at most ``longest``. With ``failures`` of them in
``window`` seconds the breaker opens: starts are refused for ``open_for`` seconds, then one is tried; when that one
fails too, the breaker stays open twice as long. An instance that lasted ``steady`` seconds closes it.

Keys are pairs of driver and tenant: a tenant whose calls kill its server delays nobody else.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

BACKOFF_FIRST: Final = 0.5
"""Seconds until the first restart: what ended once by accident is back before a person notices."""

BACKOFF_LONGEST: Final = 30.0
"""Seconds that a restart waits at most while the breaker is closed."""

BREAKER_FAILURES: Final = 5
"""Failures within the window that open the breaker: a crash loop, not bad luck."""

BREAKER_WINDOW: Final = 120.0
"""Seconds in which failures are counted together."""

BREAKER_OPEN: Final = 60.0
"""Seconds for which an open breaker refuses; a start costs the engine a second of work."""

BREAKER_LONGEST: Final = 900.0
"""Seconds that an open breaker refuses at most, however often the trial fails."""

STEADY: Final = 60.0
"""Seconds after which an instance counts as sound; reference servers that fail do so in their first seconds."""

MAX_BREAKERS: Final = 10_000
"""Pairs of driver and tenant remembered; the one that failed longest ago is forgotten first."""

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Patience:
    """How restarts are spaced; seconds, but for ``failures``."""

    first: float = BACKOFF_FIRST
    longest: float = BACKOFF_LONGEST
    failures: int = BREAKER_FAILURES
    window: float = BREAKER_WINDOW
    open_for: float = BREAKER_OPEN
    open_longest: float = BREAKER_LONGEST
    steady: float = STEADY


@dataclass(slots=True)
class _State:
    times: list[float] = field(default_factory=list)
    in_a_row: int = 0
    opened: int = 0
    next_start: float = 0.0
    open_until: float = 0.0


class Breaker(Generic[K]):
    """Remembers the failures of each key."""

    def __init__(self, patience: Patience | None = None, most: int = MAX_BREAKERS) -> None:
        self.patience = patience or Patience()
        self._most = most
        self._states: OrderedDict[K, _State] = OrderedDict()

    def refuses(self, key: K, now: float) -> float:
        """Return the seconds for which starts are refused, 0 when one may be tried."""
        state = self._states.get(key)
        return 0.0 if state is None else max(0.0, state.open_until - now)

    def wait(self, key: K, now: float) -> float:
        """Return the seconds that the next start has to wait, 0 for at once."""
        state = self._states.get(key)
        return 0.0 if state is None else max(0.0, state.next_start - now)

    def failed(self, key: K, now: float, lasted: float = 0.0) -> None:
        """Count a failure of an instance that had lasted some seconds."""
        if lasted >= self.patience.steady:
            self.sound(key)
        state = self._states.setdefault(key, _State())
        self._states.move_to_end(key)
        rules = self.patience
        state.in_a_row += 1
        state.times = [*(one for one in state.times if now - one < rules.window), now]
        state.next_start = now + min(rules.longest, rules.first * 2.0 ** (state.in_a_row - 1))
        if len(state.times) >= rules.failures or (state.opened and now >= state.open_until):
            state.open_until = now + min(rules.open_longest, rules.open_for * 2.0**state.opened)
            state.next_start = state.open_until
            state.opened = min(state.opened + 1, 32)
            state.times.clear()
        while len(self._states) > self._most:
            self._states.popitem(last=False)

    def forget(self, which: Callable[[K], bool]) -> None:
        """Forget the failures of some keys: what failed was changed."""
        for key in [one for one in self._states if which(one)]:
            del self._states[key]

    def sound(self, key: K) -> None:
        """Forget the failures of a key: its instance lasted."""
        self._states.pop(key, None)
