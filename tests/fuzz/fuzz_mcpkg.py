"""Invariant: any bytes are a package whose files are below one folder and within bounds, or an InstallRefused.

Run: ``python tests/fuzz/fuzz_mcpkg.py -max_total_time=60``
"""

from __future__ import annotations

import sys

import atheris

with atheris.instrument_imports():
    from sandbox.errors import InstallRefused, SpecError
    from sandbox.mcpkg.archive import Archive
    from sandbox.mcpkg.bounds import MAX_UNPACKED_BYTES
    from sandbox.mcpkg.manifest import read_package
    from sandbox.mcpkg.names import fold


def one(data: bytes) -> None:
    """Read bytes as a package."""
    try:
        opened = Archive(data, "fuzz")
        files = {name: opened.read(name) for name in opened.names()}
    except InstallRefused:
        return
    assert len({fold(name) for name in files}) == len(files)
    assert sum(map(len, files.values())) <= MAX_UNPACKED_BYTES
    for name in files:
        assert not name.startswith("/")
        assert not {"", ".", ".."} & set(name.replace("\\", "/").split("/"))
    try:
        read_package(opened)
    except SpecError:
        return


if __name__ == "__main__":
    atheris.Setup(sys.argv, one)
    atheris.Fuzz()
