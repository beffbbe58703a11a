"""Compiles every module below the given folders and writes the byte code as a tar file to stdout.

Runs inside a build container (`python3 -I -c …`). Byte code is checked by no time stamp and no hash (PEP 552, unchecked):
the files of an image cannot change. One process, sorted order and a fixed hash seed, so that equal sources give equal bytes.
"""

from __future__ import annotations

import importlib.util
import io
import marshal
import sys
import tarfile
from pathlib import Path

FLAG_UNCHECKED_HASH = 1


def byte_code(path: Path, shown: str) -> bytes | None:
    """Return the contents of the .pyc file, or None for a file that is not Python 3."""
    source = path.read_bytes()
    try:
        code = compile(source, shown, "exec", dont_inherit=True, optimize=0)
    except (SyntaxError, ValueError, RecursionError):
        return None
    head = importlib.util.MAGIC_NUMBER + FLAG_UNCHECKED_HASH.to_bytes(4, "little")
    # Through a copy: marshal marks shared objects by their reference count, which a fresh load makes the same everywhere.
    return head + importlib.util.source_hash(source) + marshal.dumps(marshal.loads(marshal.dumps(code)))


def main(root: str, shown_root: str, *folders: str) -> None:
    """Write the byte code of every folder below root; shown_root is where root will be when it runs."""
    sys.setrecursionlimit(5000)
    with tarfile.open(fileobj=sys.stdout.buffer, mode="w|", format=tarfile.PAX_FORMAT) as archive:
        for folder in folders:
            for path in sorted((Path(root) / folder).rglob("*.py")):
                name = path.relative_to(root)
                data = byte_code(path, f"{shown_root}/{name}") if path.is_file() and not path.is_symlink() else None
                if data is None:
                    continue
                cached = Path(importlib.util.cache_from_source(str(name), optimization=""))
                header = tarfile.TarInfo(str(cached))
                header.size = len(data)
                archive.addfile(header, io.BytesIO(data))


main(*sys.argv[1:])
