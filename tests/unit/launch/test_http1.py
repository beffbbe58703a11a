"""An engine's answer is decoded whole or refused, whatever its framing and wherever it was cut."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.launch import http1
from sandbox.launch.http1 import HttpError


def sized(body: bytes) -> bytes:
    """Return an answer framed by its length."""
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body


def chunked(*pieces: bytes) -> bytes:
    """Return an answer in chunks."""
    body = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces if piece)
    return b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + body + b"0\r\n\r\n"


@given(st.lists(st.binary(max_size=50), max_size=5))
def test_both_framings_give_the_same_body(pieces: list[bytes]) -> None:
    """A body reads the same whether it was sent by length or in chunks."""
    whole = b"".join(pieces)

    assert [whole, whole] == [http1.parse_response(sized(whole))[1], http1.parse_response(chunked(*pieces))[1]]


@given(st.binary(min_size=1, max_size=50), st.data())
def test_a_body_cut_short_is_refused(body: bytes, data: st.DataObject) -> None:
    """An engine that dies in the middle of an answer is never taken at half its word."""
    answer = data.draw(st.sampled_from([sized(body), chunked(body)]))
    end = answer.index(b"\r\n\r\n") + 4
    final = len(answer) - (2 if b"chunked" in answer else 0)
    cut = answer[: data.draw(st.integers(end, final - 1))]

    with pytest.raises(HttpError):
        http1.parse_response(cut)


@given(st.binary(max_size=200))
def test_any_bytes_parse_or_raise_http_error(data: bytes) -> None:
    """No bytes raise anything but HttpError."""
    try:
        head, _ = http1.parse_response(data)
    except HttpError:
        return

    assert 100 <= head.status < 600


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"HTTP/1.1 200 OK\r\n",
        b"HTTP/2 200 OK\r\n\r\n",
        b"HTTP/1.1 2000 OK\r\n\r\n",
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n folded: x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nlonger",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    ],
)
def test_what_is_no_http_answer_is_refused(data: bytes) -> None:
    """Another protocol, or a broken one, is an error and not an empty answer."""
    with pytest.raises(HttpError):
        http1.parse_response(data)


def test_an_image_reference_stays_one_path_segment() -> None:
    """A reference with slashes, dots or a query cannot address another part of the engine's API."""
    assert "..%2F..%2Fcontainers%2Fprune%3Fx%3D1" == http1.segment("../../containers/prune?x=1")


def test_a_query_value_cannot_add_a_parameter() -> None:
    """A value with & and = stays one value."""
    assert "/kill?signal=TERM%26force%3D1" == http1.target("/kill", {"signal": "TERM&force=1"})


def test_a_request_carries_its_length() -> None:
    """A request closes its connection and says how long its body is."""
    sent = http1.request("POST", "/x", b"{}")

    assert (True, True) == (b"\r\nConnection: close\r\n" in sent, sent.endswith(b"\r\nContent-Length: 2\r\n\r\n{}"))
