"""Bounds of calls that an operator sets: section ``[calls]`` of a policy file, beside the ceiling of plans.

Each bound is a table with ``max`` and ``reason``. The shipped file has every one with the value of its named constant;
a file that narrows may only lower them. Units: sizes in bytes, times in seconds, ``rate`` in calls a second.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final

from sandbox.policy.ceiling_file import Reader

SECTION: Final = "calls"

UNITS: Final[Mapping[str, str]] = {
    "message": "size",
    "depth": "count",
    "in_flight": "count",
    "rate": "cores",
    "burst": "count",
    "running": "count",
    "running_of_tenant": "count",
    "waiting_of_tenant": "count",
    "wait": "time",
    "result": "size",
    "stderr": "size",
    "questions": "count",
    "sampling_tokens": "count",
    "session_tokens": "count",
    "instances": "count",
    "instances_of_tenant": "count",
    "idle": "time",
}
"""Bound → kind of amount (``cores`` is any number above zero)."""


@dataclass(frozen=True, slots=True)
class CallBounds:
    """Every bound of calls.

    Attributes:
        message: bytes of one JSON-RPC message, from clients and servers.
        depth: nesting of one message.
        in_flight: requests of one client that wait for an answer.
        rate: calls a second of one tenant to one tool, in the long run.
        burst: the same at once.
        running: calls that run at once.
        running_of_tenant: of one tenant.
        waiting_of_tenant: calls of one tenant that wait for their turn.
        wait: seconds that a call waits for its turn.
        result: characters of one result.
        stderr: bytes of a server's stderr that are kept.
        questions: questions of a server to one session's client.
        sampling_tokens: tokens of one sampling request.
        session_tokens: tokens of all of them in one session.
        instances: servers of one supervisor.
        instances_of_tenant: of one tenant.
        idle: seconds without use after which a server is ended.
    """

    message: int
    depth: int
    in_flight: int
    rate: float
    burst: int
    running: int
    running_of_tenant: int
    waiting_of_tenant: int
    wait: float
    result: int
    stderr: int
    questions: int
    sampling_tokens: int
    session_tokens: int
    instances: int
    instances_of_tenant: int
    idle: float


def load_call_bounds(data: bytes, name: str, base: CallBounds | None = None) -> CallBounds:
    """Return the bounds of one policy file, put over ``base``.

    Args:
        data: bytes of the TOML file.
        name: the file as the operator named it, for messages.
        base: bounds of the shipped file; needed unless this is it.

    Raises:
        CeilingError: ``PLAN-081`` … ``PLAN-084``, ``PLAN-086``.
    """
    reader = Reader(data, name)
    table = reader.table(SECTION, reader.values.get(SECTION, {}), tuple(UNITS))
    found: dict[str, Any] = {}
    for key, entry in ((key, table[key]) for key in UNITS if key in table):
        path = f"{SECTION}.{key}"
        checked = reader.table(path, entry, ("max", "reason"))
        reader.text(path, checked, "reason")
        found[key] = reader.amount(path, checked, "max", UNITS[key])
        if base is not None and "narrows" in reader.values and found[key] > getattr(base, key):
            reader.bad(
                "PLAN-086",
                f"{path}.max",
                "a narrowing file may not allow more than the file below it",
                found=f"{found[key]:g}",
                allowed=f"at most {getattr(base, key):g}",
                mend='lower it, or write a complete file with replaces = "default"',
            )
    missing = [one.name for one in fields(CallBounds) if one.name not in found]
    if base is None and missing:
        reader.bad("PLAN-084", SECTION, "the shipped file sets every bound", allowed=", ".join(missing), mend="add it")
    reader.finish()
    below = {one: getattr(base, one) for one in missing}
    return CallBounds(**{**below, **found})
