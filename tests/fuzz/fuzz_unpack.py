"""Invariant: any bytes are a tree that obeys its rules or an InstallRefused, and nothing is written to the host.

Run: ``python tests/fuzz/fuzz_unpack.py -max_total_time=60``
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports():
    from sandbox.errors import InstallRefused
    from sandbox.launch.images.tree import Tree, link_stays_in
    from sandbox.launch.images.unpack import Bounds, unpack_tar, unpack_zip

BOUNDS = Bounds(files=1000, size=1 << 20)
FOLDER = Path(tempfile.mkdtemp())
FILE = FOLDER / "archive"


def one(data: bytes) -> None:
    """Read bytes as both kinds of archive."""
    FILE.write_bytes(data)
    for unpack in (unpack_tar, unpack_zip):
        tree = Tree()
        try:
            unpack(FILE, tree, bounds=BOUNDS)
        except InstallRefused:
            assert not tree.entries
        for path, entry in tree.entries.items():
            assert not path.startswith("/")
            assert ".." not in path.split("/")
            assert not entry.mode & 0o6000
            assert entry.kind != "link" or link_stays_in(entry)
    assert [FILE] == list(FOLDER.iterdir())


if __name__ == "__main__":
    atheris.Setup(sys.argv, one)
    atheris.Fuzz()
