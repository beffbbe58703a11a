"""How many calls, how fast: token buckets by tenant and tool, and a gate that shares instances fairly (step 9).

- :class:`Buckets` refuse what is too fast. A bucket is two numbers, and time is passed in, so the rule is exact: in any
  span of ``t`` seconds at most ``burst + rate * t`` calls of one tenant to one tool pass.
- :class:`~sandbox.supervisor.fair.Gate` bounds what runs at once, in all and for each tenant, tenants in turn.

The grammar of ``X-MCP-Limit`` (S1-41 names the header and no grammar)::

    X-MCP-Limit = member *( ";" member )     ; in this order
    member      = "limit=" int / "window=" int / "remaining=" int / "retry=" int      ; retry only when refused; seconds

``limit`` calls fit in ``window`` seconds after a pause; ``remaining`` of them are left now.
"""

from __future__ import annotations

import math
import re
from collections import OrderedDict
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from sandbox.errors import CallRefused
from sandbox.serve.calls import Caller
from sandbox.supervisor.fair import Gate
from sandbox.tenant import TenantId
from sandbox.vet.model import ExposedTool

RATE: Final = 20.0
"""Calls each second of one tenant to one tool, sustained. An agent makes a few; the reference servers answer
hundreds."""

BURST: Final = 60
"""Calls of one tenant to one tool at once after a pause: an agent that reads a small repository."""

MICRO: Final = 1_000_000
"""Microseconds in a second."""

MAX_BUCKETS: Final = 100_000
"""Buckets remembered. Only full ones are forgotten, and a full bucket is what a forgotten one becomes."""

_HEADER: Final = re.compile(r"limit=(\d{1,9});window=(\d{1,9});remaining=(\d{1,9})(?:;retry=(\d{1,9}))?")

K = TypeVar("K")


@dataclass(frozen=True, slots=True)
class Rate:
    """What one bucket allows.

    Attributes:
        per_second: tokens that come each second; more than 0.
        burst: tokens that fit; at least 1.
        window: seconds, rounded up, in which an empty bucket fills.
        period: microseconds between two tokens, rounded up: never faster than the rate.
        span: microseconds in which an empty bucket fills, a period for each token.
    """

    per_second: float = RATE
    burst: int = BURST
    window: int = field(init=False, repr=False, compare=False)
    period: int = field(init=False, repr=False, compare=False)
    span: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not (self.per_second > 0 and math.isfinite(self.per_second) and self.burst >= 1):
            raise ValueError("a rate needs a positive number of tokens each second and a burst of at least one")
        period = max(1, math.ceil(MICRO / self.per_second))
        made = {"window": math.ceil(self.burst / self.per_second), "period": period, "span": period * self.burst}
        for name, value in made.items():  # once: every request needs them
            object.__setattr__(self, name, value)


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a caller stands after a call.

    Attributes:
        allowed: whether the call may be made.
        remaining: calls that are possible at once now.
        retry: seconds after which a refused call is possible, 0 when it was allowed.
    """

    allowed: bool
    limit: int
    window: int
    remaining: int
    retry: float = 0.0

    def header(self) -> str:
        """Return the value of ``X-MCP-Limit``."""
        base = f"limit={self.limit};window={self.window};remaining={self.remaining}"
        return base if self.allowed else f"{base};retry={math.ceil(self.retry)}"


def parse_header(value: str) -> Standing:
    """Return what an ``X-MCP-Limit`` header says.

    Raises:
        ValueError: it is not of the grammar above.
    """
    found = _HEADER.fullmatch(value)
    if found is None:
        raise ValueError("not of the form `limit=60;window=60;remaining=59`")
    limit, window, remaining = int(found[1]), int(found[2]), int(found[3])
    return Standing(found[4] is None, limit, window, remaining, float(found[4] or 0))


class Buckets(Generic[K]):
    """One token bucket for each key.

    Args:
        rate: what each allows.
        most: buckets that are remembered.
    """

    def __init__(self, rate: Rate, most: int = MAX_BUCKETS) -> None:
        self.rate = rate
        self._most = most
        self._state: OrderedDict[K, tuple[float, float]] = OrderedDict()
        self._full = Standing(allowed=True, limit=rate.burst, window=rate.window, remaining=rate.burst - 1)

    def take(self, key: K, now: float) -> Standing:
        """Take one token, if there is one.

        Args:
            key: whose bucket.
            now: seconds of a clock that does not go back; an earlier time counts as the latest one seen for the key.
        """
        tokens, last = self._state.get(key, (float(self.rate.burst), now))
        now = max(now, last)
        tokens = min(float(self.rate.burst), tokens + (now - last) * self.rate.per_second)
        allowed = tokens >= 1.0
        tokens -= allowed
        self._keep(key, tokens, now)
        retry = 0.0 if allowed else (1.0 - tokens) / self.rate.per_second
        return Standing(allowed, self.rate.burst, self.rate.window, int(tokens), retry)

    def _keep(self, key: K, tokens: float, now: float) -> None:
        self._state[key] = (tokens, now)
        self._state.move_to_end(key)
        while len(self._state) > self._most:
            tokens, last = next(iter(self._state.values()))
            if tokens + (now - last) * self.rate.per_second < self.rate.burst:
                return  # the oldest is not full yet: forgetting it would give tokens away
            self._state.popitem(last=False)

    def __len__(self) -> int:
        return len(self._state)


class RateLimiter:
    """Step 9 (``sandbox.serve.calls.Limiter``): the bucket of tenant and tool, then the gate.

    Args:
        buckets: keyed by tenant and exposed name.
        gate: shared by everything that runs in one supervisor.
        clock: seconds that never go back.
    """

    def __init__(self, buckets: Buckets[tuple[TenantId, str]], gate: Gate, clock: Callable[[], float]) -> None:
        self._buckets = buckets
        self._gate = gate
        self._clock = clock

    def slot(self, caller: Caller, tool: ExposedTool) -> AbstractAsyncContextManager[None]:
        """Return the context in which a call runs.

        Raises:
            CallRefused: ``CALL-050``, too fast; its ``standing`` is for the header. The context itself may raise
                ``CALL-051`` and ``CALL-052``.
        """
        tenant = caller.tenant.tenant
        standing = self._buckets.take((tenant, tool.name), self._clock())
        if not standing.allowed:
            raise TooFast(tool.name, standing)
        return self._gate.slot(tenant)


class TooFast(CallRefused):
    """A call beyond the rate.

    Attributes:
        standing: for ``X-MCP-Limit`` and ``Retry-After``.
    """

    def __init__(self, name: str, standing: Standing) -> None:
        self.standing = standing
        seconds = math.ceil(standing.retry)
        super().__init__("CALL-050", f"`{name}` is called too fast", f"call again in {seconds} s")
