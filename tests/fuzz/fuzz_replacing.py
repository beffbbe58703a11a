"""Invariant: any bytes are requests without placeholders or a denial, and no denial is anything but a known one.

Run: ``python tests/fuzz/fuzz_replacing.py -max_total_time=60``
"""

from __future__ import annotations

import sys

import atheris

with atheris.instrument_imports():
    from sandbox.launch.egress.inside.reasons import HOST, HTTP, PLACEHOLDER, REFLECTED, TUNNEL, Denied
    from sandbox.launch.egress.inside.replacing import Mirror, Replacer, Substitutes
    from sandbox.launch.egress.inside.rewriting import RewritingGate

OWN, OTHER = b"mcpsub_" + b"a" * 32, b"mcpsub_" + b"b" * 32
VALUES = {"allowed.test": {OWN: b'k"y/+ 100%'}, "other.test": {OTHER: b"another-value"}}
SUBSTITUTES = Substitutes(VALUES, frozenset([OWN, OTHER]), {}, "")
HEAD = b"POST /?k=" + OWN + b" HTTP/1.1\r\nHost: allowed.test\r\n"


def one(data: bytes) -> None:
    """Send bytes alone, and in a request that has a placeholder; show them to the mirror in pieces."""
    for attempt in (data, HEAD + data, HEAD + b"Content-Length: %d\r\n\r\n" % len(data) + data + HEAD + b"\r\n"):
        gate = RewritingGate("allowed.test", 443, Replacer(SUBSTITUTES, "allowed.test"))
        try:
            out = gate.feed(attempt)
        except Denied as denied:
            if denied.reason not in {HOST, HTTP, TUNNEL, PLACEHOLDER}:
                raise
        else:
            if attempt.count(b"HTTP/1.") == 1:  # halves of one at the border of two requests are none
                assert OWN not in out
                assert OTHER not in out
    mirror, seen = Mirror(VALUES["allowed.test"]), b""
    try:
        for at in range(0, len(data), 3):
            seen += mirror.feed(data[at : at + 3])
    except Denied as denied:
        if denied.reason != REFLECTED:
            raise
    else:
        assert seen + mirror.rest() == data


if __name__ == "__main__":
    atheris.Setup(sys.argv, one)
    atheris.Fuzz()
