"""Multi round-trip requests (2026-07-28, basic/patterns/mrtr): what we answer for the client, and what we refuse.

``roots/list`` is answered from the plan's roots, as in the handshake era. Sampling and elicitation go to whoever judges
questions for the client of this very request, if anybody does; without such, a server that asks gets nothing: sampling
would let it talk to the client's model, and elicitation to its user. ``requestState`` is echoed unread, byte for byte,
and only to the same server. Rounds are bounded.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from sandbox.limits import KIB, MAX_INPUT_ROUNDS
from sandbox.transport.outcomes import InputRequired

MAX_REQUEST_STATE: Final = 64 * KIB
"""Characters of a server's ``requestState``; it comes with every round, and a handle needs a hundred."""

MAX_INPUT_REQUESTS: Final = 8
"""Questions of one round."""

ASKABLE: Final = frozenset(("sampling/createMessage", "elicitation/create"))
"""What may be put to a client."""


class AskClient(Protocol):
    """Puts questions to a client."""

    def __call__(
        self, wanted: Mapping[str, tuple[str, Mapping[str, Any]]], /, *, by: Any = ...
    ) -> Awaitable[dict[str, dict[str, Any]]]:
        """Return the answers by name; ``by`` says which server asks where a client's session works with several."""


@dataclass(frozen=True, slots=True)
class Questions:
    """Who is asked while a request is carried.

    Attributes:
        owner: the client's session: a handshake server does not say which request its question belongs to, so it may
            ask only while all requests in flight have one owner.
        ask: puts questions, name → (method, params), together and returns their results by name, or raises CallRefused.
        offers: capabilities (MCP ``ClientCapabilities``, names) for which the client of this very request can be asked.
    """

    owner: object
    ask: AskClient
    offers: frozenset[str] = frozenset()


Ask = Callable[[Mapping[str, Any]], Awaitable[tuple[str, dict[str, Any]]]]
"""Repeats the request with further parameters and a new id; returns outcome and neutral result."""


async def answered_rounds(
    ask: Ask, result: dict[str, Any], roots: Sequence[Mapping[str, Any]], questions: Questions | None = None
) -> dict[str, Any]:
    """Answer what may be answered until the result is complete.

    Args:
        ask: repeats the request.
        result: the first ``input_required`` result.
        roots: MCP ``Root`` objects; empty when none are offered.
        questions: who else may be asked.

    Raises:
        InputRequired: ``WIRE-051``, something else is asked for, or after ``MAX_INPUT_ROUNDS``.
        CallRefused: a question may not be put, or was not answered.
    """
    for _ in range(MAX_INPUT_ROUNDS):
        wanted, state = result.get("inputRequests", {}), result.get("requestState")
        if not _answerable(wanted, roots, questions) or not isinstance(state, str | None):
            break
        if state is not None and len(state) > MAX_REQUEST_STATE:
            break
        responses = await _responses(wanted, roots, questions)
        more: dict[str, Any] = {"inputResponses": responses} if responses else {}
        if state is not None:
            more["requestState"] = state
        outcome, result = await ask(more)
        if outcome == "complete":
            return result
    wanted = result.get("inputRequests")
    raise InputRequired(wanted if isinstance(wanted, dict) else {}, result.get("requestState"))


async def _responses(
    wanted: Mapping[str, Mapping[str, Any]], roots: Sequence[Mapping[str, Any]], questions: Questions | None
) -> dict[str, Any]:
    """Return an answer for every question; those for the client are put together."""
    own: dict[str, Any] = {}
    others: dict[str, tuple[str, Mapping[str, Any]]] = {}
    for name, one in wanted.items():
        params = one.get("params")
        if one["method"] == "roots/list" or questions is None:
            own[name] = {"roots": list(roots)}
        else:
            others[name] = (one["method"], params if isinstance(params, dict) else {})
    return own | (await questions.ask(others) if others and questions is not None else {})


def _answerable(wanted: Any, roots: Sequence[Mapping[str, Any]], questions: Questions | None) -> bool:
    if not isinstance(wanted, dict) or len(wanted) > MAX_INPUT_REQUESTS:
        return False
    allowed = {*(("roots/list",) if roots else ()), *(ASKABLE if questions is not None else ())}
    return all(isinstance(one, dict) and one.get("method") in allowed for one in wanted.values())
