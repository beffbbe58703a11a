"""Calls of stateless clients that wait for an answer: each under a token of ours, for the very same request.

A server's own ``requestState`` never leaves this process (the transport echoes it, byte for byte, to the same server),
so there is nothing of it that a client could change, replay or show to another tenant's server. Tokens are random and
good once. A repetition that answers only some of the questions, or none in the form of an answer, is asked for the rest
under a fresh token (2026-07-28, basic/patterns/mrtr); that is bounded, since a call holds a server while it waits.
"""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from sandbox import jsontext
from sandbox.errors import CallRefused
from sandbox.serve.asking import Question
from sandbox.serve.client_model import CallInfo
from sandbox.wire import meta
from sandbox.wire.jsonrpc import Request

MAX_PARKED: Final = 16
"""Calls of one session that wait for the client to repeat them."""

MAX_REPEATS: Final = 8
"""Repetitions of one call that leave questions open."""

_PLAIN: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")

Answers = dict[str, dict[str, Any]]


@dataclass(slots=True)
class Parked:
    """One call that waits: what was asked, by the name that the client answers under, and what came back."""

    call: CallInfo
    questions: Mapping[str, Question]
    fingerprint: str
    result: asyncio.Future[Answers]
    answers: Answers = field(default_factory=dict)
    repeats: int = 0


class Parking:
    """The calls of one session that wait."""

    def __init__(self) -> None:
        self._all: dict[str, Parked] = {}

    def __len__(self) -> int:
        return len(self._all)

    @property
    def calls(self) -> Mapping[str, CallInfo]:
        """What waits, by token."""
        return {token: parked.call for token, parked in self._all.items()}

    def put(self, call: CallInfo, questions: Mapping[str, Question]) -> tuple[str, Parked]:
        """Let a call wait and return its token.

        Raises:
            CallRefused: ``CALL-093``, too many wait already.
        """
        if len(self._all) >= MAX_PARKED:
            raise CallRefused("CALL-093", f"{MAX_PARKED} calls wait for the client's answers already", "answer them")
        made: asyncio.Future[Answers] = asyncio.get_running_loop().create_future()
        parked = Parked(call, questions, fingerprint(call.method, call.params), made)
        return self._keep(parked), parked

    def take(self, request: Request) -> Parked | None:
        """Return the call that a request repeats, with whatever it answers; ``None`` when it repeats none."""
        token = request.params.get("requestState")
        parked = self._all.get(token) if isinstance(token, str) else None
        if parked is None or parked.fingerprint != fingerprint(request.method, request.params):
            return None
        del self._all[str(token)]
        given = request.params.get("inputResponses")
        if isinstance(given, Mapping):
            parked.answers |= {
                name: given[name]
                for name in parked.questions
                if name not in parked.answers and isinstance(given.get(name), dict)
            }
        return parked

    def again(self, parked: Parked) -> tuple[str, Mapping[str, Question]]:
        """Let a call wait on, and return its new token and what is still open.

        Raises:
            CallRefused: ``CALL-093``, it was repeated too often.
        """
        parked.repeats += 1
        if parked.repeats > MAX_REPEATS:
            refusal = CallRefused("CALL-093", "the client repeats the request without answering", "answer, or cancel")
            if not parked.result.done():
                parked.result.set_exception(refusal)  # the call ends too
            raise refusal
        left = {name: one for name, one in parked.questions.items() if name not in parked.answers}
        return self._keep(parked), left

    def drop(self, parked: Parked) -> None:
        """Let a call wait no more."""
        for token in [token for token, one in self._all.items() if one is parked]:
            del self._all[token]

    def close(self) -> list[Parked]:
        """Let nobody wait any more, and return who did."""
        left, self._all = list(self._all.values()), {}
        return left

    def _keep(self, parked: Parked) -> str:
        token = secrets.token_urlsafe(24)
        self._all[token] = parked
        return token


def input_required(token: str, questions: Mapping[str, Question], info: Mapping[str, Any]) -> dict[str, Any]:
    """Return the result that asks."""
    asked = {name: {"method": one.method, "params": one.params} for name, one in questions.items()}
    own = {meta.SERVER_INFO: info}
    return {"resultType": "input_required", "inputRequests": asked, "requestState": token, "_meta": own}


def shown_names(names: list[str]) -> dict[str, str]:
    """Return the server's names of its questions by those that the client sees: the same where they are plain."""
    if all(_PLAIN.fullmatch(name) for name in names):
        return {name: name for name in names}
    return {f"question-{number}": name for number, name in enumerate(names, 1)}


def fingerprint(method: str, params: Mapping[str, Any]) -> str:
    """Return what has to be the same when a request is repeated: all but answer, state and ``_meta``."""
    same = {name: value for name, value in params.items() if name not in ("_meta", "inputResponses", "requestState")}
    return jsontext.digest({"method": method, "params": same})
