"""Plain HTTP through the gate: every request held to its name, and no two ways to read one."""

from __future__ import annotations

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.launch.egress.inside.reasons import HOST, HTTP, TUNNEL, Denied
from sandbox.launch.egress.inside.requests import Gate, looks_like_http, switched


def get(host: bytes = b"allowed.test", target: bytes = b"/", extra: bytes = b"") -> bytes:
    """Return a GET."""
    return b"GET %s HTTP/1.1\r\nHost: %s\r\n%s\r\n" % (target, host, extra)


def post(body: bytes, extra: bytes) -> bytes:
    """Return a POST with these header lines."""
    return b"POST / HTTP/1.1\r\nHost: allowed.test\r\n%s\r\n%s" % (extra, body)


@pytest.mark.parametrize(
    ("data", "port"),
    [
        (get(), 80),
        (get(b"ALLOWED.test"), 80),
        (get(b"allowed.test:80"), 80),
        (get(b"allowed.test:8080"), 8080),
        (get(target=b"http://allowed.test/a?b"), 80),
        (b"OPTIONS * HTTP/1.1\r\nHost: allowed.test\r\n\r\n", 80),
        (b"GET / HTTP/1.0\r\nHost: allowed.test\r\n\r\n", 80),
        (get() + get(target=b"/second"), 80),
        (post(b"hello", b"Content-Length: 5\r\n") + get(), 80),
        (post(b"5\r\nhello\r\n0\r\n\r\n", b"Transfer-Encoding: chunked\r\n") + get(), 80),
    ],
)
def test_an_honest_request_passes_unchanged(data: bytes, port: int) -> None:
    """What is written anew equals what came, for requests in their usual form."""
    assert Gate("allowed.test", port).feed(data) == data


@pytest.mark.claim("P-EGR-03")
@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (get(b"evil.test"), HOST),
        (get(b"allowed.test.evil.test"), HOST),
        (get(b"allowed.test."), HOST),
        (get(b"allowed.test:81"), HOST),
        (get(b"allowed.test@evil.test"), HOST),
        (get(b"evil.test#allowed.test"), HOST),
        (get(target=b"http://evil.test/"), HOST),
        (get(target=b"https://allowed.test/"), HOST),
        (get(target=b"http://allowed.test@evil.test/"), HOST),
        (get(target=b"//evil.test/"), None),
        (get(extra=b"Host: evil.test\r\n"), HTTP),
        (b"GET / HTTP/1.1\r\n\r\n", HTTP),
        (b"GET / HTTP/1.0\r\n\r\n", HOST),
        (get() + get(b"evil.test"), HOST),
        (post(b"hello", b"Content-Length: 5\r\n") + get(b"evil.test"), HOST),
        (b"CONNECT evil.test:443 HTTP/1.1\r\nHost: allowed.test\r\n\r\n", TUNNEL),
        (b"CONNECT allowed.test:443 HTTP/1.1\r\nHost: allowed.test\r\n\r\n", TUNNEL),
        (get(extra=b"Upgrade: h2c\r\nConnection: Upgrade\r\n"), TUNNEL),
        (get() + get(extra=b"Upgrade: websocket\r\nConnection: Upgrade\r\n"), TUNNEL),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", HTTP),
        (b"\x16\x03\x01\x02\x00\x01\x00", HTTP),
        (post(b"0\r\n\r\n", b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n"), HTTP),
        (post(b"hello", b"Content-Length: 5\r\nContent-Length: 6\r\n"), HTTP),
        (post(b"hello", b"Content-Length: +5\r\n"), HTTP),
        (post(b"0\r\n\r\n", b"Transfer-Encoding: xchunked\r\n"), HTTP),
        (post(b"0\r\n\r\n", b"Transfer-Encoding : chunked\r\n"), HTTP),
        (post(b"0\r\n\r\n", b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n"), HTTP),
        (b"POST / HTTP/1.0\r\nHost: allowed.test\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", HTTP),
        (post(b"x\r\n", b"Transfer-Encoding: chunked\r\n"), HTTP),
        (get(extra=b"A: b\rc\r\n"), HTTP),
        (get(extra=b"A: b\x00c\r\n"), HTTP),
        (b"GET /" + b"a" * 70_000, HTTP),
        (get(extra=b"X: " + b"a" * 70_000 + b"\r\n"), HTTP),
    ],
)
def test_a_request_to_another_host_or_with_two_readings_is_refused(data: bytes, reason: str | None) -> None:
    """Fronting, tunnels and smuggling end the connection; nothing of the offending request is passed on."""
    gate = Gate("allowed.test", 80)
    if reason is None:  # a path that only looks like an authority: a server sees a path
        assert gate.feed(data) == data
        return

    with pytest.raises(Denied) as caught:
        gate.feed(data)

    assert caught.value.reason == reason


def test_folded_headers_are_written_in_one_line() -> None:
    """An obsolete fold (RFC 9112 §5.2) cannot hide a second header from the server."""
    out = Gate("allowed.test", 80).feed(get(extra=b"A: b\r\n Transfer-Encoding: chunked\r\n"))

    assert b"A: b Transfer-Encoding: chunked\r\n" in out


def test_chunk_extensions_and_bare_forms_do_not_survive() -> None:
    """A chunk is written anew, so extensions and odd sizes that parsers read differently are gone."""
    data = post(b"0005;ext=1\r\nhello\r\n0\r\n\r\n", b"Transfer-Encoding: chunked\r\n")

    assert Gate("allowed.test", 80).feed(data).endswith(b"\r\n\r\n5\r\nhello\r\n0\r\n\r\n")


def test_a_websocket_upgrade_waits_for_the_server() -> None:
    """After the request nothing more is read; what was sent behind it goes on only after the server agreed."""
    gate = Gate("allowed.test", 80)
    request = get(extra=b"Upgrade: websocket\r\nConnection: Upgrade\r\n")

    assert gate.feed(request + b"frames") == request
    assert gate.upgrading
    assert gate.rest() == b"frames"


def test_a_declined_upgrade_goes_on_as_http() -> None:
    """When the server does not switch, what was sent behind is a request again, and held to the name."""
    gate = Gate("allowed.test", 80)
    gate.feed(get(extra=b"Upgrade: websocket\r\nConnection: Upgrade\r\n") + get(b"evil.test"))

    with pytest.raises(Denied) as caught:
        gate.refused()

    assert caught.value.reason == HOST


@pytest.mark.parametrize(
    ("answer", "verdict"),
    [
        (b"", None),
        (b"HTTP/1.1 10", None),
        (b"HTTP/1.1 101 Switching", True),
        (b"HTTP/1.1 200 OK\r\n", False),
        (b"HTTP/1.0 101 x\r\n", False),
        (b"\x15\x03\x03\x00\x02\x02\x28", False),
        (b"HTTP/1.1 1\r\n", False),
    ],
)
def test_a_switch_of_protocols_is_told_from_other_answers(answer: bytes, verdict: bool | None) -> None:
    """Only a status line with 101 opens the tunnel."""
    assert switched(answer) is verdict


@pytest.mark.parametrize(
    ("data", "verdict"),
    [
        (b"GET /", True),
        (b"get /", True),
        (b"G", None),
        (b"PO", None),
        (b"SSH-2.0", False),
        (b"*1\r\n$4\r\nPING", False),
        (b"\0\0\0\x08\x04\xd2\x16\x2f", False),
    ],
)
def test_first_bytes_are_sorted_without_waiting_for_what_is_no_http(data: bytes, verdict: bool | None) -> None:
    """SSH, Redis and PostgreSQL are told from HTTP by their first byte."""
    assert looks_like_http(data) is verdict


@given(st.binary(max_size=120), st.integers(1, 60))
def test_cutting_the_stream_anywhere_changes_nothing(tail: bytes, size: int) -> None:
    """Whole and in pieces give the same bytes or the same refusal."""
    data = get() + post(b"abc", b"Content-Length: 3\r\n") + tail

    assert _outcome([data]) == _outcome([data[at : at + size] for at in range(0, len(data), size)])


@given(st.binary(max_size=300))
def test_any_bytes_are_requests_to_the_name_or_a_denial(data: bytes) -> None:
    """What passes parses, with an independent parser, to requests whose one Host is the name."""
    for head in (b"", get(), b"GET / HTTP/1.1\r\nHost: allowed.test\r\n"):
        out, _ = _outcome([head + data])
        for host in _hosts(out):
            assert host.lower() in {b"allowed.test", b"allowed.test:80"}


def _outcome(pieces: list[bytes]) -> tuple[bytes, str]:
    gate, out = Gate("allowed.test", 80), b""
    try:
        for piece in pieces:
            out += gate.feed(piece)
    except Denied as denied:
        # Where a piece ends decides how much of the good part was passed on before; not whether the bad part was.
        return b"", denied.reason
    return out, ""


def _hosts(data: bytes) -> list[bytes]:
    """Return the Host of every request, as h11 reads them."""
    hosts = []
    while data:
        reader = h11.Connection(h11.SERVER)
        reader.receive_data(data)
        event = reader.next_event()
        if not isinstance(event, h11.Request):
            break
        hosts += [value for name, value in event.headers if name == b"host"]
        while (event := reader.next_event()) not in (h11.NEED_DATA, h11.PAUSED):
            pass
        if event is h11.NEED_DATA:
            break
        data = reader.trailing_data[0]
    return hosts
