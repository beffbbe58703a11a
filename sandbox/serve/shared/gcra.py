"""The rate rule: GCRA (ITU-T I.371, the generic cell rate algorithm), in whole microseconds.

A bucket is one number, the *theoretical arrival time*: the moment at which it would be full again. A request moves it
on by one period; it is admitted when the bucket is then full again within its window. So in any span of ``t``
microseconds at most ``burst + t / period`` requests pass, and the number is exact: nothing is rounded but the period,
once, upwards. Every store computes the same, in its own language, in one step.
"""

from __future__ import annotations

from sandbox.serve.ratelimit import MICRO, Standing
from sandbox.serve.shared.interface import Bucket


def decide(full_at: int, now: int, bucket: Bucket) -> tuple[bool, int]:
    """Return whether one more request passes, and when the bucket is full again after it.

    Args:
        full_at: before it; any earlier time means a full bucket.
        now: microseconds; never before an earlier one of the same bucket.
        bucket: see :class:`~sandbox.serve.shared.interface.Bucket`.
    """
    rate = bucket.rate
    after = (max(now, full_at)) + rate.period
    return (True, after) if after - now <= rate.span else (False, full_at)


def standing(allowed: bool, full_at: int, now: int, bucket: Bucket) -> Standing:
    """Return where a caller stands after a decision."""
    rate = bucket.rate
    room = rate.span - full_at + now if full_at > now else rate.span
    if allowed:
        return Standing(True, rate.burst, rate.window, room // rate.period)
    return Standing(False, rate.burst, rate.window, max(0, room) // rate.period, max(0, rate.period - room) / MICRO)
