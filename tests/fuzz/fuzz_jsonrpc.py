"""Invariant: any bytes are one message or one ``WireError``; a message reads back from what we write, as the only one.

The standard parser is the oracle: what we accept it reads as the same value, without a duplicate member.

Run: ``python tests/fuzz/fuzz_jsonrpc.py -max_total_time=60 tests/fuzz/corpus/jsonrpc``
"""

from __future__ import annotations

import json
import sys
from typing import Any

import atheris

with atheris.instrument_imports():
    from sandbox.wire.errors import WireError
    from sandbox.wire.jsonrpc import Failure, Notification, Request, Result, decode, encode, to_json


def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return members, which must differ."""
    assert len(dict(pairs)) == len(pairs)
    return dict(pairs)


def forbidden(name: str) -> Any:
    """Refuse NaN and its like."""
    raise AssertionError(name)


def one(data: bytes) -> None:
    """Read one line and hold what comes of it to the invariant."""
    try:
        message = decode(data)
    except WireError as error:
        if not error.id.startswith("WIRE-") or len(error.message) > 500:
            raise AssertionError from error
        return
    assert isinstance(message, Request | Notification | Result | Failure)
    value = json.loads(data, object_pairs_hook=unique, parse_constant=forbidden)
    ours = to_json(message)
    if value.get("params") == {}:
        del value["params"]
    if isinstance(message, Failure):
        value["error"] = {key: item for key, item in value["error"].items() if key != "data" or item is not None}
        value = {key: item for key, item in value.items() if key != "id" or item is not None}
    assert value == ours
    line = encode(message)
    assert line.endswith(b"\n")
    assert not set(line[:-1]) & set(range(0x20))
    assert message == decode(line[:-1])


if __name__ == "__main__":
    atheris.Setup(sys.argv, one)
    atheris.Fuzz()
