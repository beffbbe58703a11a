"""Invariant: any bytes are events or ``WIRE-060``; whole and byte by byte agree; what is kept stays within the bound.

Run: ``python tests/fuzz/fuzz_sse.py -max_total_time=60``
"""

from __future__ import annotations

import sys

import atheris

with atheris.instrument_imports():
    from sandbox.limits import MAX_LINE_BYTES
    from sandbox.wire.errors import WireError
    from sandbox.wire.sse import EventDecoder


def read(pieces: list[bytes]) -> object:
    """Return what a stream in pieces gives."""
    decoder = EventDecoder()
    events = []
    try:
        for piece in pieces:
            events += decoder.feed(piece)
            assert decoder.held <= MAX_LINE_BYTES
    except WireError as error:
        if error.id != "WIRE-060":
            raise
        return error.id
    return events, decoder.last_id, decoder.retry


def one(data: bytes) -> None:
    """Read a stream whole and byte by byte, alone and inside an event."""
    for attempt in (data, b"id: 1\ndata: a\n" + data + b"\n\n"):
        assert read([attempt]) == read([attempt[at : at + 1] for at in range(len(attempt))])


if __name__ == "__main__":
    atheris.Setup(sys.argv, one)
    atheris.Fuzz()
