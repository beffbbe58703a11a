"""Invariant: any bytes, cut anywhere, give the same lines and the same faults, and no line exceeds the bound.

Run: ``python tests/fuzz/fuzz_framing.py -max_total_time=60 tests/fuzz/corpus/framing``
"""

from __future__ import annotations

import sys

import atheris

with atheris.instrument_imports():
    from sandbox.errors import PlatformError
    from sandbox.wire.attach import AttachDecoder
    from sandbox.wire.errors import WireError
    from sandbox.wire.framing import LineDecoder, check_line

BOUND = 64


def lines(pieces: list[bytes]) -> list[bytes | str]:
    """Return what a decoder makes of pieces, faults as ids."""
    decoder = LineDecoder(BOUND)
    items = [item for piece in pieces for item in decoder.feed(piece)]
    end = decoder.end()
    assert decoder.pending <= BOUND
    return [item.id if isinstance(item, WireError) else item for item in [*items, *([end] if end else [])]]


def frames(pieces: list[bytes]) -> tuple[bytes, bytes, bool]:
    """Return what an attached stream gives: stdout, stderr, and whether it broke."""
    decoder, streams = AttachDecoder(), {1: b"", 2: b""}
    try:
        for piece in pieces:
            for stream, payload in decoder.feed(piece):
                streams[stream] += payload
    except PlatformError:
        return streams[1], streams[2], True
    return streams[1], streams[2], False


def one(data: bytes) -> None:
    """Hold one stream, whole, in two and byte by byte, to the invariant."""
    cut = data[0] if data else 0
    single = [data[at : at + 1] for at in range(len(data))]
    whole = lines([data])
    assert whole == lines([data[:cut], data[cut:]]) == lines(single)
    for line in whole:
        if isinstance(line, bytes):
            assert len(line) <= BOUND
            assert b"\n" not in line
            try:
                check_line(line)
            except WireError:
                continue
            assert b"\r" not in line
            assert line.decode()
    broken = frames([data])[2]
    assert broken == frames(single)[2]
    if not broken:
        assert frames([data]) == frames([data[:cut], data[cut:]]) == frames(single)


if __name__ == "__main__":
    atheris.Setup(sys.argv, one)
    atheris.Fuzz()
