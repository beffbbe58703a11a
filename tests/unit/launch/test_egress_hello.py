"""Server names of TLS hellos: real ones from OpenSSL, and every way we know to show two names at once."""

from __future__ import annotations

import ssl
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.launch.egress.inside import hello
from sandbox.launch.egress.inside.bounds import MAX_HELLO
from sandbox.launch.egress.inside.reasons import NOT_TLS, Denied


def real(name: str | None, version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3) -> bytes:
    """Return the ClientHello that OpenSSL sends for a name."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.maximum_version = version
    sink = ssl.MemoryBIO()
    client = context.wrap_bio(ssl.MemoryBIO(), sink, server_hostname=name)
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return sink.read()


def record(payload: bytes, kind: int = 22) -> bytes:
    """Return one TLS record."""
    return struct.pack(">BHH", kind, 0x0301, len(payload)) + payload


def extension(kind: int, value: bytes) -> bytes:
    """Return one extension."""
    return struct.pack(">HH", kind, len(value)) + value


def sni(*names: bytes, kind: int = 0) -> bytes:
    """Return a server_name extension with these names."""
    entries = b"".join(struct.pack(">BH", kind, len(name)) + name for name in names)
    return extension(0, struct.pack(">H", len(entries)) + entries)


def message(extensions: bytes, *, session: bytes = b"", suites: bytes = b"\x13\x01", tail: bytes = b"") -> bytes:
    """Return a ClientHello message."""
    body = b"\x03\x03" + b"r" * 32 + bytes([len(session)]) + session
    body += (
        struct.pack(">H", len(suites)) + suites + b"\x01\x00" + struct.pack(">H", len(extensions)) + extensions + tail
    )
    return b"\x01" + len(body).to_bytes(3) + body


def crafted(extensions: bytes, **parts: bytes) -> bytes:
    """Return a ClientHello record."""
    return record(message(extensions, **parts))


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_the_name_of_a_real_hello_is_read(version: ssl.TLSVersion) -> None:
    """What OpenSSL sends parses whole, with its name folded to lower case."""
    data = real("API.example.com", version)

    found = hello.read(data)

    assert found == hello.Hello("api.example.com", ech=False, size=len(data))


def test_a_real_hello_without_a_name_has_none() -> None:
    """No server_name extension is an empty name, which a strict rule refuses."""
    found = hello.read(real(None))

    assert found is not None
    assert found.sni == ""


def test_whole_and_byte_by_byte_agree() -> None:
    """Every proper prefix asks for more, and the whole gives the same answer."""
    data = real("api.example.com")

    assert {hello.read(data[:size]) for size in range(len(data))} == {None}
    assert hello.read(data) is not None


@given(st.lists(st.integers(1, 200), min_size=1, max_size=40))
def test_fragmentation_across_records_changes_nothing(cuts: list[int]) -> None:
    """A hello in many records, a known way around filters that look at one packet, gives the same name."""
    whole = message(sni(b"api.example.com"))
    pieces, at = [], 0
    for cut in cuts:
        pieces.append(whole[at : at + cut])
        at += cut
    pieces.append(whole[at:])
    data = b"".join(record(piece) for piece in pieces if piece)

    found = hello.read(data)

    assert found == hello.Hello("api.example.com", ech=False, size=len(data))


@pytest.mark.claim("P-EGR-02")
@pytest.mark.parametrize(
    "data",
    [
        crafted(sni(b"allowed.test") + sni(b"evil.test")),
        crafted(sni(b"allowed.test", b"evil.test")),
        crafted(sni(b"allowed.test", kind=1)),
        crafted(sni(b"evil.test\x00.allowed.test")),
        crafted(sni(b"evil.test allowed.test")),
        crafted(sni("ällowed.test".encode())),
        crafted(sni(b"")),
        crafted(extension(0, b"")),
        crafted(extension(0, b"\0\1\0")),
        crafted(sni(b"allowed.test")[:-1]),
        crafted(sni(b"allowed.test"), tail=b"x"),
        crafted(sni(b"allowed.test"), session=b"s" * 33),
        crafted(sni(b"allowed.test"), suites=b""),
        crafted(sni(b"allowed.test"), suites=b"\x13"),
        record(message(sni(b"allowed.test")) + message(sni(b"evil.test"))),
        record(b"\x02" + message(sni(b"allowed.test"))[1:]),
        record(b"") + crafted(sni(b"allowed.test")),
        b"\x80\x2e\x01\x03\x01" + b"x" * 60,  # SSLv2 hello
        b"GET / HTTP/1.1\r\n",
        b"\x16\x02\x00\x00\x05",
        b"\x16\x03\x01\xff\xff" + b"\x01",
        record(b"\x01\xff\xff\xff" + b"x" * 100),
    ],
)
def test_a_hello_that_two_stacks_may_read_differently_is_refused(data: bytes) -> None:
    """Several names, doubled extensions, cut or padded messages: refused, with nothing dialled."""
    with pytest.raises(Denied) as caught:
        hello.read(data)

    assert caught.value.reason == NOT_TLS


@pytest.mark.parametrize("kind", [0xFE0D, 0xFFCE])
def test_an_encrypted_name_is_seen(kind: int) -> None:
    """ECH and its predecessor show that the name in sight is not the name that counts."""
    found = hello.read(crafted(sni(b"allowed.test") + extension(kind, b"secret")))

    assert found is not None
    assert found.ech


def test_an_endless_hello_is_bounded() -> None:
    """A message that never ends is refused at the bound, however it is cut into records."""
    endless = record(b"\x01" + (MAX_HELLO - 10).to_bytes(3) + b"x" * 100) + record(b"y") * (MAX_HELLO // 6 + 1)

    with pytest.raises(Denied):
        hello.read(endless)


def test_a_second_hello_is_found_behind_early_data() -> None:
    """After a retry come dropped early data and a ChangeCipherSpec; then the hello whose name counts."""
    noise = record(b"e" * 300, 23) + record(b"\x01", 20)
    data = noise + crafted(sni(b"evil.test"))

    assert {hello.second(data[:size]) for size in range(len(data))} == {None}
    assert hello.second(data) == hello.Hello("evil.test", ech=False, size=len(data))


@pytest.mark.parametrize(("random", "retry"), [(hello.RETRY_RANDOM, True), (b"r" * 32, False)])
def test_a_retry_is_told_from_an_answer(random: bytes, retry: bool) -> None:
    """The magic random of RFC 8446 §4.1.3 decides, as soon as it is there and not before."""
    data = record(b"\x02\x00\x00\x60\x03\x03" + random + b"x" * 60)

    assert {hello.is_retry(data[:size]) for size in range(43)} == {None}
    assert hello.is_retry(data) is retry


@pytest.mark.parametrize("data", [record(b"\x02\x28", 21), b"HTTP/1.1 400", record(b"\x0b" + b"x" * 60)])
def test_anything_else_from_a_server_is_no_retry(data: bytes) -> None:
    """An alert or nonsense ends the waiting at once."""
    assert hello.is_retry(data) is False


@given(st.binary(max_size=200))
def test_any_bytes_give_a_hello_or_a_denial(data: bytes) -> None:
    """Behind a record head too; nothing else is raised."""
    for attempt in (data, record(data) if data else b"", record(b"\x01" + len(data).to_bytes(3) + data)):
        try:
            found = hello.read(attempt)
        except Denied as denied:
            assert denied.reason == NOT_TLS  # noqa: PT017 - the property is about every outcome
        else:
            assert found is None or found.size <= len(attempt)
