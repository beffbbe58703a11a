"""The response to one answer of a model, in the semantics that was asked for.

A result is handed to the conversation in the role ``user`` and named as data (ADR 0116): in the role ``system``, as the
published base class has it, a file that somebody else wrote would speak with the operator's voice.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Final

from sandbox.errors import AuditUnavailable, CallRefused, PlatformError, ServerFault, UsageError
from sandbox.mcs.contract import DriverResponse
from sandbox.mcs.prompts import Prompts
from sandbox.mcs.replies import Call
from sandbox.mcs.settings import Semantics
from sandbox.mcs.tools import text_of

NOT_THE_MODELS: Final = (AuditUnavailable, PlatformError)
"""Errors that no other answer of a model mends."""

_OWN_FAULTS: Final = frozenset(("MCS-006", "MCS-008", "MCS-013"))


class Answering:
    """Makes the response to one answer, in the semantics that was asked for."""

    def __init__(self, texts: Prompts, reply: str | dict[str, Any], semantics: Semantics) -> None:
        self._texts, self._reply, self._old = texts, reply, semantics == "0.2"
        self._results: list[Any] = []
        self._told: list[str] = []

    def nothing(self) -> Any:
        """Return that there was no call."""
        return self._reply if self._old else DriverResponse()

    def unclear(self, problem: str) -> Any:
        """Return that a call cannot be read in one way, or raise it."""
        return self._problem(CallRefused("MCS-002", problem, "answer with one call that stands alone"), "no_tool_field")

    def unknown(self, name: str, tools: Iterable[str]) -> Any:
        """Return that there is no such tool, or raise it."""
        names = ", ".join(sorted(tools))
        error = CallRefused("MCS-003", f"there is no tool {name[:80]!r}", f"use one of {names}")
        return self._problem(error, "unknown_tool", tool_name=name[:80], available=names)

    def add(self, call: Call, value: Any) -> None:
        """Take what a call gave."""
        self._results.append(value)
        self._told.append(self._texts.told(call.tool, text_of(value)))

    def failed(self, call: Call, error: Exception, wanted: int) -> Any:
        """Return that one of ``wanted`` calls failed, or raise it; what no answer of a model mends is always raised."""
        if isinstance(error, NOT_THE_MODELS) or getattr(error, "id", "") in _OWN_FAULTS:
            raise error
        known = isinstance(error, CallRefused | ServerFault | UsageError)
        shown = error if known else ServerFault("MCS-005", f"the driver failed: {type(error).__name__}: {error}")
        if wanted > 1:
            done = f"{len(self._results)} of {wanted} calls were carried out before it"
            self._told.append(done)
        return self._problem(shown, "execution_failed", cause=error, tool_name=call.tool)

    def done(self) -> Any:
        """Return what the calls gave."""
        result = self._results[0] if len(self._results) == 1 else self._results
        if self._old:
            return result
        return DriverResponse(
            tool_call_result=result, call_executed=True, messages=self._messages("\n\n".join(self._told))
        )

    def _problem(self, error: Exception, kind: str, cause: Exception | None = None, **values: str) -> Any:
        if self._old:
            raise error from cause
        retry = self._texts.again(kind, error=str(error)[:2_000], **values)
        return DriverResponse(
            tool_call_result=list(self._results) or None,
            call_failed=True,
            call_detail=str(error),
            retry_prompt=retry,
            messages=self._messages("\n\n".join((*self._told, retry))),
        )

    def _messages(self, text: str) -> list[dict[str, Any]]:
        said = self._reply if isinstance(self._reply, str) else _written(self._reply)
        return [{"role": "assistant", "content": said}, {"role": "user", "content": text}]


def _written(reply: Any) -> str:
    """Return a message as JSON; one that nests too deep to be written, as a note of that."""
    try:
        return json.dumps(reply, ensure_ascii=False, default=str)
    except (ValueError, RecursionError):
        return "(a message that cannot be written as JSON)"


def envelope(response: Any) -> dict[str, Any]:
    """Return a response of contract 0.6 as ``{"result", "status", "error"}`` (section 12).

    ``status`` is 200 when a call was carried out, 204 when there was none, 422 when it was not carried out.
    """
    status = 200 if response.call_executed else 422 if response.call_failed else 204
    return {"result": response.tool_call_result, "status": status, "error": response.call_detail}
