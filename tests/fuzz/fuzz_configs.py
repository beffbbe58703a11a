"""Fuzz target: any bytes are a client's configuration or one refusal; no reason repeats what could be a secret.

Run: ``python tests/fuzz/fuzz_configs.py -max_total_time=60 tests/fuzz/corpus/configs``
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["sandbox"]):
    from sandbox.cli.drafting import folder
    from sandbox.cli.drafting.configs import Unusable, entries
    from sandbox.errors import UsageError
    from sandbox.spec.frontmatter import parse

SECRET = "c4nary-Value-0123456789"
PLACE = Path(tempfile.mkdtemp())


def texts(data: bytes) -> bytes:
    """Return the configuration: the bytes as they are, or as words of one entry whose variable holds a secret."""
    if data[:1] != b"\x00":
        return data
    words = data[1:].decode("utf-8", "replace").split(" ")
    entry = {"command": words[0], "args": words[1:], "env": {"KEY": SECRET}}
    return json.dumps({"mcpServers": {"x": entry}}).encode()


def one(data: bytes) -> None:
    """Read one configuration and hold what comes of it to the invariant."""
    path = PLACE / ("c.toml" if data[-1:] == b"\x01" else "c.json")
    path.write_bytes(texts(data))
    refusal = None
    try:
        found = list(entries(path))
    except UsageError as error:
        found, refusal = [], error
    assert refusal is None or (refusal.id in {"CLI-011", "CLI-144"} and SECRET not in str(refusal))
    for _, source in found:
        if isinstance(source, Unusable):
            assert SECRET not in source.why
            continue
        text = folder.driver(source, source.name, [], None, []) + folder.secrets(source)
        assert SECRET not in text
        assert source.id.endswith("-mcp")
        assert parse(folder.secrets(source).encode()).values is not None


if __name__ == "__main__":
    atheris.Setup(sys.argv, one)
    atheris.Fuzz()
