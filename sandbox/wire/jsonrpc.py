"""JSON-RPC 2.0 envelopes as MCP restricts them, read strictly and always written anew.

Strict because two readers of one message must not disagree about what it is: SDKs turn a request with the id ``1.5`` or
``null`` into a notification, drop ``result`` beside ``method``, and take the last of two members of the same name.
Here an envelope is one of four values or a :class:`~sandbox.wire.errors.WireError`:

1. one JSON object (no batches: removed in MCP 2025-06-18), without duplicate members, within depth and size bounds;
2. ``jsonrpc`` is ``"2.0"``;
3. exactly one of ``method``, ``result``, ``error``, and no member that its kind does not have;
4. an id is a string of at most 256 bytes or an integer that a double holds exactly; never null, a float or a boolean;
5. ``params`` and ``result`` are objects; ``error`` has an integer code, a string message and perhaps data.

An error response without an id is legal from 2025-11-25 on (the request's id could not be read) and is read as
``id=None``; so is the ``null`` that JSON-RPC writes there. We leave the member out: no revision of MCP allows null.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, NoReturn, TypeAlias

import orjson

from sandbox import jsontext
from sandbox.limits import MAX_ID_BYTES, MAX_JSON_DEPTH, MAX_METHOD_BYTES
from sandbox.wire.errors import PARSE_ERROR, WireError
from sandbox.wire.framing import check_line

RequestId: TypeAlias = str | int

MAX_INTEGER_ID: Final = 2**53 - 1
"""Largest integer id, either sign: beyond it JavaScript peers round, and answer to another id (probe J06)."""

_ERROR_MEMBERS: Final = frozenset(("code", "message", "data"))
_MISSING: Final = object()


@dataclass(frozen=True, slots=True)
class Request:
    """Expects exactly one answer with the same id. ``params`` is empty when the message has none."""

    id: RequestId
    method: str
    params: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Notification:
    """Expects no answer."""

    method: str
    params: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Result:
    """Answers a request with an object."""

    id: RequestId
    result: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Failure:
    """Answers a request with an error; ``id`` is ``None`` when the request's id could not be read."""

    id: RequestId | None
    code: int
    message: str
    data: Any = None


Message: TypeAlias = Request | Notification | Result | Failure


def decode(line: bytes, max_depth: int = MAX_JSON_DEPTH) -> Message:
    """Return the message of one line, nested at most ``max_depth`` levels.

    Raises:
        WireError: ``WIRE-003`` … ``WIRE-006`` not text, ``WIRE-007`` beyond bounds, ``WIRE-010`` not JSON,
        ``WIRE-011`` … ``WIRE-017``
            not an envelope.
    """
    if b"\r" in line:  # the one thing that JSON allows and framing does not
        check_line(line)
    try:
        value = jsontext.parse(line, max_depth=max_depth)
    except jsontext.JsonBoundError as error:
        message = f"a message beyond the bounds: {error}"
        raise WireError("WIRE-007", message, "send smaller messages", code=PARSE_ERROR, severe=True) from None
    except jsontext.JsonTextError as error:
        check_line(line)
        raise WireError("WIRE-010", f"no strict JSON: {error}", "send one JSON object", code=PARSE_ERROR) from None
    return envelope(value)


def envelope(value: Any) -> Message:
    """Return the message that a JSON value is.

    Raises:
        WireError: ``WIRE-011`` … ``WIRE-017``.
    """
    if type(value) is not dict:
        kind = "a batch" if isinstance(value, list) else "a JSON value that is no object"
        raise WireError("WIRE-011", kind, "send one message in each line")
    if value.get("jsonrpc") != "2.0":
        raise _refused(value, "WIRE-012", 'a message whose `jsonrpc` is not "2.0"', 'send `"jsonrpc": "2.0"`')
    if "method" in value:
        return _call(value)
    if "result" in value:
        return _result(value)
    if "error" in value:
        return _failure(value)
    raise _refused(value, "WIRE-013", "a message without `method`, `result` or `error`", "send one of them")


def _call(value: dict[str, Any]) -> Request | Notification:
    """Return a request or a notification; rules 3 to 5."""
    method = value["method"]
    if type(method) is not str or not 0 < len(method) <= MAX_METHOD_BYTES:
        raise _refused(value, "WIRE-014", "a method that is not a short string", "name a method of the protocol")
    params = value.get("params", _MISSING)
    known = 2
    if params is _MISSING:
        params = {}
    else:
        known = 3
        if type(params) is not dict:
            raise _refused(value, "WIRE-015", "`params` that are not an object", "send an object")
    if "id" in value:
        if len(value) != known + 1:
            raise _unknown_member(value, ("jsonrpc", "id", "method", "params"))
        request_id = value["id"]
        return Request(request_id if is_id(request_id) else _refused_id(), method, params)
    if len(value) != known:
        raise _unknown_member(value, ("jsonrpc", "method", "params"))
    return Notification(method, params)


def _result(value: dict[str, Any]) -> Result:
    result = value["result"]
    if len(value) != 3 or "id" not in value:  # noqa: PLR2004 - jsonrpc, id, result
        raise _unknown_member(value, ("jsonrpc", "id", "result"))
    if type(result) is not dict:
        raise _refused(value, "WIRE-015", "a `result` that is not an object", "send an object")
    answered = value["id"]
    return Result(answered if is_id(answered) else _refused_id(), result)


def _failure(value: dict[str, Any]) -> Failure:
    error = value["error"]
    if len(value) != 2 + ("id" in value):
        raise _unknown_member(value, ("jsonrpc", "id", "error"))
    if type(error) is not dict or not error.keys() <= _ERROR_MEMBERS:
        raise _refused(value, "WIRE-016", "an `error` that is not `{code, message, data}`", "send these members only")
    code, message = error.get("code"), error.get("message")
    if type(code) is not int or type(message) is not str or abs(code) > MAX_INTEGER_ID:
        raise _refused(value, "WIRE-016", "an `error` without integer `code` and string `message`", "send both")
    answered = value.get("id")  # null, as JSON-RPC writes it, is the same as absent
    if answered is not None and not is_id(answered):
        _refused_id()
    return Failure(answered, code, message, error.get("data"))


def is_id(value: Any) -> bool:
    """Return whether a value may be an id or a progress token (rule 4)."""
    kind = type(value)
    if kind is int:
        return bool(-MAX_INTEGER_ID <= value <= MAX_INTEGER_ID)
    return kind is str and (len(value) <= MAX_ID_BYTES // 4 or len(value.encode()) <= MAX_ID_BYTES)


def _refused_id() -> NoReturn:
    raise WireError(
        "WIRE-017",
        "an id that is neither a short string nor an exact integer",
        f"use a string of at most {MAX_ID_BYTES} bytes or an integer of at most 53 bits",
    )


def _refused(value: dict[str, Any], number: str, message: str, mend: str) -> WireError:
    found = value.get("id")
    found = found if is_id(found) else None  # of a broken message, only an id that may be used
    if "method" in value:
        return WireError(number, message, mend, request_id=found)
    return WireError(number, message, mend, answer_id=found)


def _unknown_member(value: dict[str, Any], known: tuple[str, ...]) -> WireError:
    extra = next((name for name in value if name not in known), None)
    message = "an answer without an id" if extra is None else f"a message with the member {extra[:40]!r}"
    return _refused(value, "WIRE-018", message, f"send {', '.join(known)} and nothing else")


def encode(message: Message) -> bytes:
    """Return one line, LF included, of compact JSON: our own bytes, whatever the peer's looked like."""
    value = to_json(message)
    try:
        return orjson.dumps(value, option=orjson.OPT_APPEND_NEWLINE)
    except TypeError:
        return jsontext.dump(value) + b"\n"


def to_json(message: Message) -> dict[str, Any]:
    """Return the JSON value of a message."""
    kind = type(message)
    if kind is Result:
        return {"jsonrpc": "2.0", "id": message.id, "result": message.result}  # type: ignore[union-attr]
    if isinstance(message, Request):
        head: dict[str, Any] = {"jsonrpc": "2.0", "id": message.id, "method": message.method}
        return {**head, "params": message.params} if message.params else head
    if isinstance(message, Notification):
        head = {"jsonrpc": "2.0", "method": message.method}
        return {**head, "params": message.params} if message.params else head
    assert isinstance(message, Failure)  # noqa: S101 - narrows the union for the type checker
    error: dict[str, Any] = {"code": message.code, "message": message.message}
    if message.data is not None:
        error["data"] = message.data
    if message.id is None:
        return {"jsonrpc": "2.0", "error": error}
    return {"jsonrpc": "2.0", "id": message.id, "error": error}
