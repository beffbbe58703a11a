"""How an error reaches a client: as a tool result that a model can read, or as a JSON-RPC error.

MCP separates *tool execution errors* (in the result, ``isError``: a model can correct its arguments) from *protocol
errors* (JSON-RPC errors: it cannot). A refusal of one call is of the first kind; an unknown tool, a broken server, a
failed platform and a misuse of the protocol are of the second. Nothing internal leaves: an unforeseen exception is an
internal error without its text.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from sandbox.errors import CallRefused, SandboxError
from sandbox.serve.codes import error_meta
from sandbox.transport.outcomes import RemoteError
from sandbox.wire.codes import INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND, for_client
from sandbox.wire.errors import WireError
from sandbox.wire.jsonrpc import Failure, RequestId


class ProtocolMisuse(SandboxError):
    """A client used the protocol wrongly; answered with an error, and never reaches the server.

    Attributes:
        code: JSON-RPC code.
        data: further data of the error.
    """

    def __init__(
        self,
        id: str,  # noqa: A002 - the public word for it
        message: str,
        mend: str = "",
        *,
        code: int = INVALID_REQUEST,
        data: Any = None,
    ) -> None:
        super().__init__(id, message, mend)
        self.code = code
        self.data = data


def invalid_params(number: str, message: str, mend: str) -> ProtocolMisuse:
    """Return a misuse that is about the parameters."""
    return ProtocolMisuse(number, message, mend, code=INVALID_PARAMS)


def unknown_method(method: str) -> ProtocolMisuse:
    """Return ``SESS-006`` for a method that does not exist or is not offered."""
    return ProtocolMisuse(
        "SESS-006", f"method `{method[:64]}` is not offered", "use what the capabilities name", code=METHOD_NOT_FOUND
    )


Clean: TypeAlias = Callable[[dict[str, Any]], dict[str, Any]]
"""Removes secrets and control characters from what a server says; see ``SessionOptions.clean``."""


def harmless(clean: Clean, said: dict[str, Any]) -> dict[str, Any] | None:
    """Return what the server said, cleaned, or ``None`` when it cannot be made harmless."""
    try:
        return clean(said)
    except SandboxError:
        return None


def failure(
    request_id: RequestId | None, error: BaseException, version: str, clean: Clean = lambda params: params
) -> Failure:
    """Return the JSON-RPC error for an exception; what the server said in it is cleaned."""
    match error:
        case RemoteError():
            code, data = for_client(error.code, error.data, version)
            said = harmless(clean, {"message": error.text, "data": data})
            if said is None:
                return Failure(request_id, code, "the server's error cannot be shown", {"id": error.id})
            return Failure(request_id, code, str(said.get("message", "")), said.get("data"))
        case ProtocolMisuse():
            return Failure(request_id, error.code, error.message, {**_described(error), **(error.data or {})})
        case WireError():
            return Failure(request_id, error.code, f"received {error.message}", _described(error))
        case SandboxError():
            return Failure(request_id, error.rpc_code, error.message, _described(error))
        case _:
            return Failure(request_id, INTERNAL_ERROR, "internal error", {"id": "SESS-020"})


def _described(error: SandboxError) -> dict[str, Any]:
    return {"id": error.id, "mend": error.mend} if error.mend else {"id": error.id}


def refused_result(refusal: CallRefused) -> dict[str, Any]:
    """Return a refusal of one tool call as a result."""
    text = f"Refused by mcp-sandbox ({refusal.id}): {refusal.message}"
    return {"content": [{"type": "text", "text": text}], "isError": True, "_meta": error_meta(refusal)}
