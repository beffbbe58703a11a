from __future__ import annotations

import pytest

from sandbox.errors import PlatformError
from sandbox.wire.attach import STDERR, STDOUT, AttachDecoder


def frame(stream: int, payload: bytes) -> bytes:
    """Return one frame as the engine writes it."""
    return bytes((stream, 0, 0, 0)) + len(payload).to_bytes(4, "big") + payload


def joined(pieces: list[tuple[int, bytes]]) -> dict[int, bytes]:
    """Return what each stream got."""
    return {stream: b"".join(piece for at, piece in pieces if at == stream) for stream in (STDOUT, STDERR)}


def test_streams_are_kept_apart() -> None:
    """Stdout and stderr come out in order, each by itself."""
    data = frame(STDOUT, b"one\n") + frame(STDERR, b"noise\n") + frame(STDOUT, b"two\n")

    assert [(STDOUT, b"one\n"), (STDERR, b"noise\n"), (STDOUT, b"two\n")] == AttachDecoder().feed(data)


def test_byte_by_byte() -> None:
    """Headers and payloads may be cut anywhere."""
    data = frame(STDOUT, b"one\n") + frame(STDERR, b"noise\n")
    decoder = AttachDecoder()
    pieces = [piece for at in range(len(data)) for piece in decoder.feed(data[at : at + 1])]

    assert {STDOUT: b"one\n", STDERR: b"noise\n"} == joined(pieces)


def test_empty_frames_are_nothing() -> None:
    """A frame without payload gives no piece."""
    assert [(STDOUT, b"x")] == AttachDecoder().feed(frame(STDERR, b"") + frame(STDOUT, b"x"))


def test_large_frame_is_not_kept() -> None:
    """A frame of gigabytes is handed on piece by piece; its length alone costs nothing."""
    decoder = AttachDecoder()
    header = bytes((STDOUT, 0, 0, 0)) + (2**32 - 1).to_bytes(4, "big")

    assert [(STDOUT, b"x" * 10)] == decoder.feed(header + b"x" * 10)
    assert [(STDOUT, b"y" * 10)] == decoder.feed(b"y" * 10)


@pytest.mark.parametrize(
    "header", [b"\x00\0\0\0\0\0\0\x01", b"\x03\0\0\0\0\0\0\x01", b"\x01\0\x01\0\0\0\0\x01", b'{"jsonrp']
)
def test_foreign_header_is_the_engines_fault(header: bytes) -> None:
    """Anything but the two streams means that the engine speaks something else."""
    with pytest.raises(PlatformError) as caught:
        AttachDecoder().feed(header + b"x")

    assert "WIRE-030" == caught.value.id
