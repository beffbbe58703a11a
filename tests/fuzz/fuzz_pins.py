"""Fuzz target: any bytes become the pins of a lock, or one refusal; what is read is written again as it was.

Two halves of the input, split at a zero byte, are two locks: comparing what they hold never raises, finds nothing
exactly when the digests are equal, and every line that a reviewer reads of it is printable.

Run: ``python tests/fuzz/fuzz_pins.py -max_total_time=60 tests/fuzz/corpus/pins``
"""

from __future__ import annotations

import sys

import atheris

with atheris.instrument_imports(include=["sandbox"]):
    from sandbox import jsontext
    from sandbox.launch.lockfile import parse, text_of
    from sandbox.vet.containment import Options
    from sandbox.vet.drift import drift
    from sandbox.vet.model import ServerSurface
    from sandbox.vet.pins import decode, digest_of, encode
    from sandbox.vet.reading import lines

STEPS = Options(steps=2_000)
"""Less work for each schema: the target is the comparison around it."""


def surface_of(data: bytes) -> ServerSurface | None:
    """Return the one surface of a lock's text, if it is one; hold what is read to being written as it was."""
    try:
        pins = decode(parse(data)["pins"])
    except (jsontext.JsonTextError, KeyError, TypeError, ValueError, AttributeError):
        return None
    again = decode(parse(text_of({"pins": encode(pins)}))["pins"])
    assert encode(again) == encode(pins)
    return next(iter(pins.surfaces.values()), None)


def one(data: bytes) -> None:
    """Read two locks and compare them."""
    first, second = (surface_of(half) for half in (data.partition(b"\0")[0], data.partition(b"\0")[2]))
    if first is None or second is None or first.client_capabilities != second.client_capabilities:
        return
    changes = drift(first, second, options=STEPS)
    assert bool(changes) == (digest_of(first) != digest_of(second))
    assert all(line.isprintable() for line in lines(changes, every=True))


if __name__ == "__main__":
    atheris.Setup(sys.argv, one)
    atheris.Fuzz()
