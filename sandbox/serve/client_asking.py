"""Puts a server's question to the client, in the terms of the client's era, and brings back the answer.

A handshake client is sent a request of ours. A stateless client gets ``input_required`` as the answer to its call and
repeats the call with the answer; in between the call waits here, under a token of ours as ``requestState``. The
server's own ``requestState`` never leaves this process (the transport echoes it, byte for byte, to the same server), so
there is nothing of it that a client could change, replay or show to another tenant's server. Tokens are random, known
to one session only, and good once, for the very same request.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Mapping
from typing import Any, Final

from sandbox import jsontext
from sandbox.errors import CallRefused, SandboxError
from sandbox.serve.asking import ASKABLE, Asking, Question, answer_of
from sandbox.serve.calls import Caller
from sandbox.serve.client_model import CallInfo
from sandbox.serve.client_replies import invalid_params
from sandbox.transport.interface import Channel
from sandbox.transport.pending import OWN_PREFIX
from sandbox.wire import meta
from sandbox.wire.jsonrpc import Failure, Notification, Request, RequestId, Result

MAX_PARKED: Final = 16
"""Calls of one session that wait for the client to repeat them."""

KEY: Final = "question"
"""Name of the one question that is asked at a time."""


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
        self._parked: dict[str, tuple[CallInfo, str, asyncio.Future[dict[str, Any]]]] = {}
        self._numbers = 0

    def offered(self, call: CallInfo) -> frozenset[str]:
        """Return the methods that the client of a request can be asked."""
        return frozenset(method for method, name in ASKABLE.items() if name in call.client_capabilities)

    async def ask(self, call: CallInfo, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """Return the client's answer to a question that a server has while it carries a call.

        Raises:
            CallRefused: it may not be asked; ``CALL-093`` the client cannot be, or did not answer.
            AuditUnavailable: it could not be recorded, so it was not asked.
        """
        scope = call.scope
        try:
            if method not in self.offered(call):
                raise CallRefused("CALL-093", f"the client takes no {ASKABLE.get(method, method[:40])}", "use another")
            question = self._asking.judge(method, params, self._caller)
        except SandboxError as refusal:
            record = {"decision": "deny", **getattr(refusal, "record", {})}
            scope.fact("ask.decide", method=method[:64], reason=refusal.id, **record)
            raise
        digest = jsontext.digest(question.params)
        scope.intent("ask.forward", method=method, rules=list(question.rules), question=digest)
        status = "error"
        try:
            put = self._park if call.era == "stateless" else self._send
            async with asyncio.timeout(call.remaining()):
                answer = answer_of(method, await put(call, question))
            status = str(answer.get("action", "ok"))[:16]
        except TimeoutError:
            raise CallRefused("CALL-093", "the client did not answer in time", "raise the time limit") from None
        finally:
            scope.outcome("ask.forward", method=method, status=status)
        return answer

    # --- handshake clients -----------------------------------------------------------------------------------------
    async def _send(self, _call: CallInfo, question: Question) -> dict[str, Any]:
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
    async def _park(self, call: CallInfo, question: Question) -> dict[str, Any]:
        if len(self._parked) >= MAX_PARKED:
            raise CallRefused("CALL-093", f"{MAX_PARKED} calls wait for the client's answers already", "answer them")
        token = secrets.token_urlsafe(24)
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._parked[token] = (call, _fingerprint(call.method, call.params), answer)
        result = {
            "resultType": "input_required",
            "inputRequests": {KEY: {"method": question.method, "params": question.params}},
            "requestState": token,
            "_meta": {meta.SERVER_INFO: self._server_info},
        }
        self._put_aside(call)
        self._channel.send(Result(call.request_id, result))
        try:
            return await answer
        finally:
            self._parked.pop(token, None)

    def resume(self, request: Request) -> bool:
        """Go on with a call that the client repeats with its answer; false when this is no repetition.

        Raises:
            ProtocolMisuse: ``SESS-018``, it answers a question that was never asked here, or for another request.
        """
        if "requestState" not in request.params and "inputResponses" not in request.params:
            return False
        token, given = request.params.get("requestState"), request.params.get("inputResponses")
        found = self._parked.get(token) if isinstance(token, str) else None
        answer = given.get(KEY) if isinstance(given, Mapping) else None
        if found is None or not isinstance(answer, dict) or found[1] != _fingerprint(request.method, request.params):
            message = "no input was asked for under this state and for this request"
            raise invalid_params("SESS-018", message, "repeat the request as it was, with what the result asked for")
        call, _, waiting = self._parked.pop(str(token))
        call.request_id = request.id
        call.progress_token = meta.of(request.params).get(meta.PROGRESS_TOKEN)
        self._take_up(call)
        if not waiting.done():
            waiting.set_result(answer)
        return True

    def close(self) -> None:
        """Let nobody wait any more."""
        for waiting in [*self._sent.values(), *(parked[2] for parked in self._parked.values())]:
            waiting.cancel()
        for call in [parked[0] for parked in self._parked.values()]:
            if call.task is not None:
                call.task.cancel()


def _fingerprint(method: str, params: Mapping[str, Any]) -> str:
    """Return what has to be the same when a request is repeated: all but answer, state and `_meta`."""
    same = {name: value for name, value in params.items() if name not in ("_meta", "inputResponses", "requestState")}
    return jsontext.digest({"method": method, "params": same})
