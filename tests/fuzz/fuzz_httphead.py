"""Invariant: any bytes are requests to the name or a denial; what is passed on parses again to the same bytes.

Run: ``python tests/fuzz/fuzz_httphead.py -max_total_time=60``
"""

from __future__ import annotations

import sys

import atheris

with atheris.instrument_imports():
    from sandbox.launch.egress.inside.reasons import HOST, HTTP, TUNNEL, Denied
    from sandbox.launch.egress.inside.requests import Gate, looks_like_http, switched

HEAD = b"GET / HTTP/1.1\r\nHost: allowed.test\r\n"


def passed(data: bytes) -> bytes | None:
    """Return what the gate passes on, ``None`` when it refuses."""
    try:
        return Gate("allowed.test", 80).feed(data)
    except Denied as denied:
        if denied.reason not in {HOST, HTTP, TUNNEL}:
            raise
        return None


def one(data: bytes) -> None:
    """Send bytes alone, behind a good request, and inside one."""
    for attempt in (data, HEAD + b"\r\n" + data, HEAD + data):
        out = passed(attempt)
        if out:
            assert passed(out) == out
            assert b"\r\n\r\n" in out
    looks_like_http(data)
    switched(data)


if __name__ == "__main__":
    atheris.Setup(sys.argv, one)
    atheris.Fuzz()
