"""Invariant: any bytes are one question or a bad question; a host name that we read is the one that dnspython reads.

Run: ``python tests/fuzz/fuzz_dns.py -max_total_time=60``
"""

from __future__ import annotations

import sys

import atheris
import dns.exception
import dns.message

with atheris.instrument_imports():
    from sandbox.launch.egress.inside import dns as ours


def one(data: bytes) -> None:
    """Read one message and hold it to the invariant."""
    try:
        question = ours.parse(data)
    except ours.BadQuestion as bad:
        if len(bad.answer) not in {0, 12}:
            raise AssertionError from bad
        return
    answer = ours.reply(question, ours.NOERROR, "198.18.1.0" if question.type == ours.A else "")
    assert len(answer) <= len(data) + 27
    if question.host and question.edns is None:
        theirs = dns.message.from_wire(data)
        assert theirs.question[0].name.to_text().lower() == f"{question.name}."
        assert dns.message.from_wire(answer).question == theirs.question


if __name__ == "__main__":
    atheris.Setup(sys.argv, one)
    atheris.Fuzz()
