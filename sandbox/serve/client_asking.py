"""Puts a server's questions to the client, in the terms of the client's era, and brings back the answers.

A handshake client is sent a request of ours for each. A stateless client gets ``input_required`` as the answer to its
call, with all questions of the round, and repeats the call with the answers; in between the call waits here
(:mod:`sandbox.serve.client_parking`).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from sandbox import jsontext
from sandbox.errors import CallRefused, SandboxError
from sandbox.events import Scope
from sandbox.serve.asking import ASKABLE, Asking, Question, answer_of
from sandbox.serve.calls import Caller
from sandbox.serve.client_model import CallInfo
from sandbox.serve.client_parking import Answers, Parking, input_required, shown_names
from sandbox.serve.client_replies import invalid_params
from sandbox.transport.interface import Channel
from sandbox.transport.pending import OWN_PREFIX
from sandbox.wire import meta
from sandbox.wire.jsonrpc import Failure, Notification, Request, RequestId, Result


class Judge(Protocol):
    """What decides whether a question may be put: :class:`sandbox.serve.asking.Asking`."""

    def judge(self, method: str, params: Mapping[str, Any], caller: Caller) -> Question:
        """Return the question as it may reach the client, or raise SandboxError."""


@dataclass(frozen=True, slots=True)
class AskedBy:
    """Which server asks, where a session works with several.

    Attributes:
        asking: judges its questions.
        scope: where they are recorded.
    """

    asking: Judge
    scope: Scope


class ClientAsker:
    """The questions to one client.

    Args:
        channel: to the client.
        asking: judges each question.
        caller: who uses the session.
        server_info: shown with ``input_required`` results.
        park: called with a call that is answered for now, so that its id is free.
        unpark: called with a call that goes on under the id of its repetition.
    """

    def __init__(
        self,
        channel: Channel,
        asking: Asking,
        caller: Caller,
        server_info: Mapping[str, Any],
        park: Callable[[CallInfo], None],
        unpark: Callable[[CallInfo], None],
    ) -> None:
        self._channel = channel
        self._asking = asking
        self._caller = caller
        self._server_info = server_info
        self._put_aside = park
        self._take_up = unpark
        self._sent: dict[RequestId, asyncio.Future[dict[str, Any]]] = {}
        self.parking = Parking()
        self._numbers = 0

    def offered(self, call: CallInfo) -> frozenset[str]:
        """Return the methods that the client of a request can be asked."""
        return frozenset(method for method, name in ASKABLE.items() if name in call.client_capabilities)

    async def ask(
        self, call: CallInfo, wanted: Mapping[str, tuple[str, Mapping[str, Any]]], *, by: AskedBy | None = None
    ) -> Answers:
        """Return the client's answers to questions that a server has while it carries a call: all of them, or none.

        Args:
            call: the request that is carried.
            wanted: the server's name of each question → method and parameters.
            by: the server; ``None``: the session's only one.

        Raises:
            CallRefused: one may not be asked; ``CALL-093`` the client cannot be, or did not answer.
            AuditUnavailable: it could not be recorded, so it was not asked.
        """
        server = by or AskedBy(self._asking, call.scope)
        names = shown_names(list(wanted))
        questions = {shown: self._judged(call, server, *wanted[name]) for shown, name in names.items()}
        async with _turn(call):
            answers = await self._put(call, server, questions)
        return {names[shown]: answer for shown, answer in answers.items()}

    async def _put(self, call: CallInfo, server: AskedBy, questions: Mapping[str, Question]) -> Answers:
        """Put questions that were judged, recorded; return the answers by name."""
        for one in questions.values():
            digest = jsontext.digest(one.params)
            server.scope.intent("ask.forward", method=one.method, rules=list(one.rules), question=digest)
        answers: Answers = {}
        try:
            put = self._park if call.era == "stateless" else self._send_all
            async with asyncio.timeout(call.remaining()):
                given = await put(call, questions)
            answers = {name: answer_of(one.method, given[name]) for name, one in questions.items()}
        except TimeoutError:
            raise CallRefused("CALL-093", "the client did not answer in time", "raise the time limit") from None
        finally:
            for name, one in questions.items():
                status = str(answers[name].get("action", "ok"))[:16] if name in answers else "error"
                server.scope.outcome("ask.forward", method=one.method, status=status)
        return answers

    def _judged(self, call: CallInfo, server: AskedBy, method: str, params: Mapping[str, Any]) -> Question:
        try:
            if method not in self.offered(call):
                raise CallRefused("CALL-093", f"the client takes no {ASKABLE.get(method, method[:40])}", "use another")
            return server.asking.judge(method, params, self._caller)
        except SandboxError as refusal:
            record = {"decision": "deny", **getattr(refusal, "record", {})}
            server.scope.fact("ask.decide", method=method[:64], reason=refusal.id, **record)
            raise

    # --- handshake clients -----------------------------------------------------------------------------------------
    async def _send_all(self, _call: CallInfo, questions: Mapping[str, Question]) -> Answers:
        """Ask one after the other: a person answers one."""
        return {name: await self._send(one) for name, one in questions.items()}

    async def _send(self, question: Question) -> dict[str, Any]:
        self._numbers += 1
        number = f"{OWN_PREFIX}ask-{self._numbers}"
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._sent[number] = answer
        params = {name: value for name, value in question.params.items() if name != "mode" or value != "form"}
        self._channel.send(Request(number, question.method, params))
        try:
            return await answer
        except asyncio.CancelledError:
            self._channel.send(Notification("notifications/cancelled", {"requestId": number}))
            raise
        finally:
            self._sent.pop(number, None)

    def take(self, message: Result | Failure) -> bool:
        """Take a client's answer; false when nothing was asked under its id."""
        waiting = self._sent.pop(message.id, None) if message.id is not None else None
        if waiting is None:
            return False
        if not waiting.done():
            if isinstance(message, Result):
                waiting.set_result(message.result)
            else:
                waiting.set_exception(CallRefused("CALL-093", "the client answered with an error", "use another tool"))
        return True

    # --- stateless clients -----------------------------------------------------------------------------------------
    async def _park(self, call: CallInfo, questions: Mapping[str, Question]) -> Answers:
        token, parked = self.parking.put(call, questions)
        self._put_aside(call)
        self._channel.send(Result(call.request_id, input_required(token, questions, self._server_info)))
        try:
            return await parked.result
        finally:
            self.parking.drop(parked)

    def resume(self, request: Request) -> bool:
        """Go on with a call that the client repeats with its answers; false when this is no repetition.

        Answers without a state belong to no question, and are not looked at.

        Raises:
            ProtocolMisuse: ``SESS-018``, it answers a question that was never asked here, or for another request.
            CallRefused: ``CALL-093``, it was repeated too often without an answer.
        """
        if "requestState" not in request.params:
            return False
        parked = self.parking.take(request)
        if parked is None:
            message = "no input was asked for under this state and for this request"
            raise invalid_params("SESS-018", message, "repeat the request as it was, with what the result asked for")
        if len(parked.answers) < len(parked.questions):
            token, left = self.parking.again(parked)
            self._channel.send(Result(request.id, input_required(token, left, self._server_info)))
            return True
        call = parked.call
        call.request_id = request.id
        call.progress_token = meta.of(request.params).get(meta.PROGRESS_TOKEN)
        self._take_up(call)
        if not parked.result.done():
            parked.result.set_result(parked.answers)
        return True

    def close(self) -> None:
        """Let nobody wait any more."""
        for waiting in self._sent.values():
            waiting.cancel()
        for parked in self.parking.close():
            parked.result.cancel()
            if parked.call.task is not None:
                parked.call.task.cancel()


def _turn(call: CallInfo) -> AbstractAsyncContextManager[object]:
    """Return what lets one round of a call wait at a time where a call that waits is answered: it has one answer.

    A handshake server asks each question by itself, also two at once.
    """
    if call.era != "stateless":
        return contextlib.nullcontext()
    if call.turn is None:
        call.turn = asyncio.Lock()
    return call.turn
