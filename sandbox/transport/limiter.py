"""A token bucket; time comes in as an argument."""

from __future__ import annotations


class TokenBucket:
    """Allows ``rate`` events each second on average and ``size`` at once.

    Args:
        rate: events per second.
        size: of the bucket; as many as come in one second when it is not given.
    """

    __slots__ = ("_rate", "_size", "_then", "_tokens")

    def __init__(self, rate: int, size: int | None = None) -> None:
        self._rate = float(rate)
        self._size = float(rate if size is None else size)
        self._tokens = self._size
        self._then = 0.0

    def take(self, now: float, cost: int = 1) -> bool:
        """Return whether one more event of a cost is within the rate.

        Args:
            now: seconds of a clock that never goes back.
            cost: how much of the rate it uses.
        """
        if self._then:
            self._tokens = min(self._size, self._tokens + (now - self._then) * self._rate)
        self._then = now
        if self._tokens < cost:
            return False
        self._tokens -= cost
        return True
