"""Invariant: any bytes give a hello, ask for more, or are denied; whole and in pieces agree; a name has one reading.

Run: ``python tests/fuzz/fuzz_clienthello.py -max_total_time=60``
"""

from __future__ import annotations

import struct
import sys

import atheris

with atheris.instrument_imports():
    from sandbox.launch.egress.inside import hello
    from sandbox.launch.egress.inside.reasons import NOT_TLS, Denied


def verdict(data: bytes) -> hello.Hello | str | None:
    """Return the hello, what is missing, or the reason of the refusal."""
    try:
        return hello.read(data)
    except Denied as denied:
        return denied.reason


def one(data: bytes) -> None:
    """Read bytes as they are, as one message, and as a second hello."""
    wrapped = struct.pack(">BHH", 22, 0x301, len(data) + 4) + b"\x01" + len(data).to_bytes(3) + data
    for attempt in (data, wrapped):
        whole = verdict(attempt)
        assert whole is None or whole == NOT_TLS or isinstance(whole, hello.Hello)
        if isinstance(whole, hello.Hello):
            assert verdict(attempt[: whole.size]) == whole
            assert verdict(attempt[: whole.size - 1]) is None
            assert whole.sni.isascii()
            assert not set(whole.sni) & set("\x00 \r\n\t")
            if whole.sni:
                assert whole.sni.encode() in attempt.lower()
    try:
        hello.second(data)
    except Denied as denied:
        if denied.reason != NOT_TLS:
            raise
    hello.is_retry(data)


if __name__ == "__main__":
    atheris.Setup(sys.argv, one)
    atheris.Fuzz()
