"""Multi round-trip requests (2026-07-28, basic/patterns/mrtr): what we answer for the client, and what we refuse.

Only ``roots/list`` is answered, from the plan's roots, as in the handshake era. ``requestState`` is echoed unread and
only to the same server. A server that asks for anything else gets nothing: sampling would let it talk to the client's
model, and elicitation to its user. Rounds are bounded.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from sandbox.limits import MAX_INPUT_ROUNDS
from sandbox.transport.outcomes import InputRequired

Ask = Callable[[Mapping[str, Any]], Awaitable[tuple[str, dict[str, Any]]]]
"""Repeats the request with further parameters and a new id; returns outcome and neutral result."""


async def answered_rounds(ask: Ask, result: dict[str, Any], roots: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Answer what may be answered until the result is complete.

    Args:
        ask: repeats the request.
        result: the first ``input_required`` result.
        roots: MCP ``Root`` objects; empty when none are offered.

    Raises:
        InputRequired: ``WIRE-051``, something else is asked for, or after ``MAX_INPUT_ROUNDS``.
    """
    for _ in range(MAX_INPUT_ROUNDS):
        wanted, state = result.get("inputRequests", {}), result.get("requestState")
        if not _only_roots(wanted) or (wanted and not roots) or not isinstance(state, str | None):
            break
        more: dict[str, Any] = {"inputResponses": {key: {"roots": list(roots)} for key in wanted}} if wanted else {}
        if state is not None:
            more["requestState"] = state
        outcome, result = await ask(more)
        if outcome == "complete":
            return result
    wanted = result.get("inputRequests")
    raise InputRequired(wanted if isinstance(wanted, dict) else {}, result.get("requestState"))


def _only_roots(wanted: Any) -> bool:
    return isinstance(wanted, dict) and all(
        isinstance(one, dict) and one.get("method") == "roots/list" for one in wanted.values()
    )
