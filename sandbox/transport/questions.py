"""Questions of a handshake server to the client: which request they belong to, and their answers.

In the handshake era a server's own request does not say which call it belongs to. It is put to a client only while
every request in flight that may be asked about belongs to one session; otherwise one client could be asked for another.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from sandbox.errors import CallRefused, SandboxError
from sandbox.transport.rounds import ASKABLE, Questions
from sandbox.wire.jsonrpc import Failure, Message, Request, Result

ONLY: Final = "question"
"""Name of a question that comes alone."""

MAX_ASKING: Final = 4
"""Questions of one server at a time; a person answers one."""


class ServerQuestions:
    """What one handshake server asks while it carries requests.

    Args:
        send: sends an answer to the server.
    """

    def __init__(self, send: Callable[[Message], None]) -> None:
        self._send = send
        self._open: dict[object, tuple[Questions, set[asyncio.Task[None]]]] = {}

    def enter(self, questions: Questions | None) -> object:
        """Take note of a request in flight; :meth:`leave` has to follow with what this returns."""
        if questions is None:
            return None
        key = object()
        self._open[key] = (questions, set())
        return key

    def leave(self, key: object) -> None:
        """Forget a request that is answered; what was asked for its sake is asked no more."""
        found = self._open.pop(key, None)
        for task in found[1] if found is not None else ():
            task.cancel()

    def take(self, request: Request) -> bool:
        """Put a question to the client, if there is exactly one whom it can be meant for; else return false."""
        if request.method not in ASKABLE or not self._open:
            return False
        entries = list(self._open.values())
        if any(one.owner is not entries[-1][0].owner for one, _ in entries):
            return False
        if sum(len(tasks) for _, tasks in entries) >= MAX_ASKING:
            return False
        questions, tasks = entries[-1]
        task = asyncio.ensure_future(self._put(questions, request))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        return True

    async def _put(self, questions: Questions, request: Request) -> None:
        try:
            answers = await questions.ask({ONLY: (request.method, request.params)})
            self._send(Result(request.id, answers[ONLY]))
        except SandboxError:
            refused = "the client does not allow this"  # why is the operator's, not the server's, to know
            self._send(Failure(request.id, CallRefused.rpc_code, refused))
        except asyncio.CancelledError:
            self._send(Failure(request.id, CallRefused.rpc_code, "the request that this belongs to is over"))
            raise
