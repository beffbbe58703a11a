"""Sealing: what a process that died left unfinished gets an end, signed by the next one that opens the folder.

Nothing that was written is changed or cut: a torn line gets its newline, and the record after it says how many
bytes are torn and what their hash is. The seal names the hash of the last good record, and with it, through the
chain, everything before; so the signature covers the stream without anybody reading all of it.

Steps:

1. a stream is unfinished when its marker in ``live/`` is there and nobody holds the lock on it;
2. its end is read: last good record, torn bytes after it;
3. the seal is appended and made durable;
4. the marker is removed.

Two processes that seal at once: the lock of step 1 is held until step 4.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Final

from sandbox.audit.files import APPEND, Files, try_lock, write_all
from sandbox.audit.keys import Signer, seal_text
from sandbox.audit.record import VERSION, Clock, encode
from sandbox.audit.tail import Tail, read_tail, segments

MAX_SEALS: Final = 64
"""Streams that one process seals; a crash loop's rest is left to the next ones, so that nobody waits for it."""


def seal_abandoned(folder: Path, signer: Signer, files: Files | None = None) -> tuple[str, ...]:
    """Seal the streams of processes that are gone, and return their names.

    Raises:
        OSError: a stream cannot be read or written; those before it are sealed.
        AuditUnavailable: ``AUD-020``, there is no key to sign with.
    """
    files = files or Files()
    sealed, known = [], None
    for stream, marker in _abandoned(folder):
        try:
            known = segments(folder) if known is None else known
            tail = read_tail(stream, known.get(stream, []))
            if tail is not None:
                _seal(stream, tail, signer, files)  # 2, 3
                sealed.append(stream)
            files.unlink(str(folder / "live" / stream))  # 4
        finally:
            os.close(marker)
        if len(sealed) >= MAX_SEALS:
            break
    return tuple(sealed)


def is_live(folder: Path, stream: str) -> bool:
    """Return whether a process is writing a stream."""
    try:
        descriptor = os.open(folder / "live" / stream, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        return not try_lock(descriptor)
    finally:
        os.close(descriptor)


def _abandoned(folder: Path) -> Iterator[tuple[str, int]]:
    """Yield unfinished streams with their locked markers (step 1); markers that never got their name are removed."""
    live = folder / "live"
    for name in sorted(entry.name for entry in live.iterdir()) if live.is_dir() else ():
        try:
            descriptor = os.open(live / name, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:  # it ended well, or somebody sealed it, since the folder was listed
            continue
        if try_lock(descriptor) and (live / name).exists():
            if not name.startswith("."):
                yield name, descriptor
                continue
            (live / name).unlink()
        os.close(descriptor)


def _seal(stream: str, tail: Tail, signer: Signer, files: Files) -> None:
    """Append the end of a stream that has none; one that has only lacks its newline, at most."""
    if _finished(tail):
        if not tail.newline:
            _append(tail.path, b"\n", files)
        return
    digest = sha256(tail.torn).hexdigest()
    attrs = {
        "stream": stream,
        "torn_bytes": len(tail.torn),
        "torn_sha256": digest,
        "key": signer.public,
        "sig": signer.sign(seal_text(stream, tail.seq, tail.after, len(tail.torn), digest)),
    }
    fields = {"after": tail.after, "seq": tail.seq, "time": Clock()(), "v": VERSION}
    line = encode({"name": "audit.seal", "phase": "fact", "attrs": attrs, **fields})
    _append(tail.path, (b"" if tail.newline else b"\n") + line + b"\n", files)


def _append(path: Path, data: bytes, files: Files) -> None:
    descriptor = files.open(str(path), APPEND, 0)
    try:
        write_all(files, descriptor, data)
        files.fdatasync(descriptor)
    finally:
        os.close(descriptor)


def _finished(tail: Tail) -> bool:
    """Return whether a stream has its end, and only its marker was left over."""
    name = (tail.last or {}).get("name")
    return not tail.torn and (name == "audit.seal" or (name == "audit.checkpoint" and _closing(tail)))


def _closing(tail: Tail) -> bool:
    """Return whether the record before the last checkpoint is the last fact of its process."""
    with tail.path.open("rb") as file:
        file.seek(max(0, tail.path.stat().st_size - 4096))
        lines = file.read().splitlines()
    return len(lines) > 1 and b'"name":"audit.close"' in lines[-2]
