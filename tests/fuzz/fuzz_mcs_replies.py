"""Invariant: any text is read as whole calls with a name and an object, or as a reason, never both, never an error.

Run: ``python tests/fuzz/fuzz_mcs_replies.py -max_total_time=60``
"""

from __future__ import annotations

import sys

import atheris

with atheris.instrument_imports():
    from sandbox.mcs.replies import MAX_CALLS, read

KNOWN = frozenset(("read", "write"))


def one(data: bytes) -> None:
    """Read bytes as a model's answer, a call of a known tool put in front and behind."""
    text = data.decode("utf-8", "surrogateescape")
    for reply in (
        text,
        f'{text}\n{{"tool": "read", "arguments": {{}}}}',
        f'{{"tool": "read", "arguments": {{}}}}{text}',
    ):
        reading = read(reply, KNOWN)
        assert not (reading.calls and reading.problem)
        assert len(reading.calls) <= MAX_CALLS
        assert all(type(call.tool) is str and type(call.arguments) is dict for call in reading.calls)


if __name__ == "__main__":
    atheris.Setup(sys.argv, one)
    atheris.Fuzz()
