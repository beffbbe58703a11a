from __future__ import annotations

import json

import pytest

from sandbox.wire.errors import WireError
from sandbox.wire.jsonrpc import MAX_INTEGER_ID, Failure, Notification, Request, Result, decode, encode


def refused(line: bytes) -> WireError:
    """Return the error of a line."""
    with pytest.raises(WireError) as caught:
        decode(line)
    return caught.value


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b'{"jsonrpc":"2.0","id":1,"method":"ping"}', Request(1, "ping", {})),
        (b'{"method":"ping","id":"a","jsonrpc":"2.0","params":{"x":[1]}}', Request("a", "ping", {"x": [1]})),
        (b'{"jsonrpc":"2.0","method":"note","params":{}}', Notification("note", {})),
        (b'{"jsonrpc":"2.0","id":0,"result":{"a":null}}', Result(0, {"a": None})),
        (b'{"jsonrpc":"2.0","id":-1,"error":{"code":-32601,"message":"no"}}', Failure(-1, -32601, "no")),
        (b'{"jsonrpc":"2.0","error":{"code":1,"message":"no","data":[]}}', Failure(None, 1, "no", [])),
        (b'{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"no"}}', Failure(None, 1, "no")),
        (b' {"jsonrpc" : "2.0" , "method" : "note"}\t', Notification("note", {})),
    ],
)
def test_each_kind_of_message(line: bytes, message: object) -> None:
    """An envelope becomes the value of its kind."""
    assert message == decode(line)


@pytest.mark.claim("P-WIRE-11")
@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b"[]", "WIRE-011"),
        (b'[{"jsonrpc":"2.0","method":"a"}]', "WIRE-011"),
        (b"null", "WIRE-011"),
        (b'"text"', "WIRE-011"),
        (b'{"method":"a"}', "WIRE-012"),
        (b'{"jsonrpc":2.0,"method":"a"}', "WIRE-012"),
        (b'{"jsonrpc":"1.0","method":"a"}', "WIRE-012"),
        (b'{"jsonrpc":"2.0"}', "WIRE-013"),
        (b'{"jsonrpc":"2.0","id":1}', "WIRE-013"),
        (b'{"jsonrpc":"2.0","method":1}', "WIRE-014"),
        (b'{"jsonrpc":"2.0","method":""}', "WIRE-014"),
        (b'{"jsonrpc":"2.0","method":null,"id":1}', "WIRE-014"),
        (b'{"jsonrpc":"2.0","method":"a","params":[]}', "WIRE-015"),
        (b'{"jsonrpc":"2.0","method":"a","params":null}', "WIRE-015"),
        (b'{"jsonrpc":"2.0","id":1,"result":[]}', "WIRE-015"),
        (b'{"jsonrpc":"2.0","id":1,"result":null}', "WIRE-015"),
        (b'{"jsonrpc":"2.0","id":1,"error":"no"}', "WIRE-016"),
        (b'{"jsonrpc":"2.0","id":1,"error":{"code":1.0,"message":"a"}}', "WIRE-016"),
        (b'{"jsonrpc":"2.0","id":1,"error":{"code":true,"message":"a"}}', "WIRE-016"),
        (b'{"jsonrpc":"2.0","id":1,"error":{"code":1}}', "WIRE-016"),
        (b'{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"a","stack":"x"}}', "WIRE-016"),
        (b'{"jsonrpc":"2.0","id":null,"method":"a"}', "WIRE-017"),
        (b'{"jsonrpc":"2.0","id":1.5,"method":"a"}', "WIRE-017"),
        (b'{"jsonrpc":"2.0","id":1.0,"method":"a"}', "WIRE-017"),
        (b'{"jsonrpc":"2.0","id":1e0,"method":"a"}', "WIRE-017"),
        (b'{"jsonrpc":"2.0","id":true,"method":"a"}', "WIRE-017"),
        (b'{"jsonrpc":"2.0","id":[1],"method":"a"}', "WIRE-017"),
        (b'{"jsonrpc":"2.0","id":9007199254740992,"method":"a"}', "WIRE-017"),
        (b'{"jsonrpc":"2.0","id":"' + b"x" * 257 + b'","method":"a"}', "WIRE-017"),
        (b'{"jsonrpc":"2.0","id":"' + "é".encode() * 129 + b'","method":"a"}', "WIRE-017"),
        (b'{"jsonrpc":"2.0","id":null,"result":{}}', "WIRE-017"),
        (b'{"jsonrpc":"2.0","id":1,"method":"a","result":{}}', "WIRE-018"),
        (b'{"jsonrpc":"2.0","id":1,"result":{},"error":{"code":1,"message":"a"}}', "WIRE-018"),
        (b'{"jsonrpc":"2.0","result":{}}', "WIRE-018"),
        (b'{"jsonrpc":"2.0","method":"a","extra":1}', "WIRE-018"),
        (b'{"jsonrpc":"2.0","method":"a","Params":{}}', "WIRE-018"),
        (b'{"jsonrpc":"2.0","method":"ping","method":"tools/call"}', "WIRE-010"),
        (b'{"jsonrpc":"2.0","id":1,"i\\u0064":2,"method":"a"}', "WIRE-010"),
        (b'{"jsonrpc":"2.0","method":"a","params":{"x":NaN}}', "WIRE-010"),
        (b'{"jsonrpc":"2.0","method":"a","params":{"x":1e400}}', "WIRE-010"),
        (b'{"jsonrpc":"2.0","method":"a","params":{"x":"\\ud800"}}', "WIRE-010"),
        (b'{"jsonrpc":"2.0","method":"a"} {}', "WIRE-010"),
        (b'{"jsonrpc":"2.0",\r"method":"a"}', "WIRE-003"),
        (b"hello, I am a banner", "WIRE-010"),
    ],
)
def test_each_refusal(line: bytes, expected: str) -> None:
    """What two readers could take for different things is refused, each with its own id."""
    assert expected == refused(line).id


def test_refusal_names_the_request() -> None:
    """When the id of a broken request or answer can be read, the other side of it can be told."""
    request = refused(b'{"jsonrpc":"2.0","id":7,"method":"a","extra":1}')
    answer = refused(b'{"jsonrpc":"2.0","id":7,"result":1}')

    assert (7, None) == (request.request_id, request.answer_id)
    assert (None, 7) == (answer.request_id, answer.answer_id)


def test_depth_bound() -> None:
    """A message of the deepest allowed nesting passes, one level more does not."""
    head, tail = b'{"jsonrpc":"2.0","method":"a","params":{"x":', b"}}"

    assert isinstance(decode(head + b"[" * 126 + b"]" * 126 + tail), Notification)
    assert "WIRE-007" == refused(head + b"[" * 127 + b"]" * 127 + tail).id
    assert "WIRE-007" == refused(b"[" * 10_000).id


def test_largest_exact_integer_id() -> None:
    """Integers that a double holds exactly are ids."""
    for value in (MAX_INTEGER_ID, -MAX_INTEGER_ID):
        assert Request(value, "a", {}) == decode(b'{"jsonrpc":"2.0","id":%d,"method":"a"}' % value)


def test_ids_keep_their_type() -> None:
    """The id 1 and the id "1" are two ids."""
    assert Request(1, "a", {}) != Request("1", "a", {})


@pytest.mark.parametrize(
    "message",
    [
        Request("a", "m", {"k": "\r\n\u2028"}),
        Request(1, "m", {}),
        Notification("m", {"big": 2**80, "small": -(2**63), "float": 0.1}),
        Result(1, {"nested": [[{"a": None}]]}),
        Failure(1, -32603, "no", {"a": 1}),
        Failure(None, -32700, "no"),
    ],
)
def test_what_is_written_is_one_strict_line(message: Request | Notification | Result | Failure) -> None:
    """Every message is written as one line without control characters, and reads back as itself."""
    line = encode(message)

    assert line.endswith(b"\n")
    assert not set(line[:-1]) & set(range(32))
    assert message == decode(line[:-1])
    assert "2.0" == json.loads(line)["jsonrpc"]


def test_an_error_without_id_has_no_id_member() -> None:
    """No revision of MCP allows a null id, so the member is left out."""
    assert "id" not in json.loads(encode(Failure(None, -32700, "no")))


def test_messages_are_frozen() -> None:
    """A message cannot be changed after it was checked."""
    with pytest.raises(AttributeError):
        Request(1, "a", {}).id = 2  # type: ignore[misc]
