"""Small ledgers for tests: written by the real recorder or ledger, read back as lines, changed as an attacker would."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from sandbox.audit.files import Files
from sandbox.audit.findings import Report
from sandbox.audit.keys import Signer, open_signer
from sandbox.audit.ledger import Durability, Ledger
from sandbox.audit.scan import scan
from sandbox.audit.verify import verify

STREAM = "20261121T000000Z-test-0001"


def signer(folder: Path) -> Signer:
    """Return the folder's signer, made when absent."""
    (folder / "keys").mkdir(parents=True, exist_ok=True, mode=0o700)
    folder.chmod(0o700)
    return open_signer(folder / "keys")


def ledger(folder: Path, stream: str = STREAM, files: Files | None = None, **options: Any) -> Ledger:
    """Return a ledger in a folder."""
    return Ledger(folder, stream, signer(folder), files=files, **options)


def fact(number: int, **attrs: Any) -> dict[str, Any]:
    """Return the members of one plain record."""
    return {
        "name": "test.fact",
        "phase": "fact",
        "trace": "0" * 31 + "1",
        "span": "0" * 15 + "1",
        "attrs": {"n": number, **attrs},
    }


def written(
    folder: Path, count: int, stream: str = STREAM, *, every: int = 0, durability: Durability = "kernel"
) -> Path:
    """Write a closed stream of ``count`` facts, signed after each ``every``, and return its only segment."""
    found = ledger(folder, stream, durability=durability)
    for number in range(count):
        found.append(fact(number))
        if every and number % every == every - 1:
            found.checkpoint()
    found.close()
    return segment(folder, stream)


def segment(folder: Path, stream: str = STREAM, number: int = 1) -> Path:
    """Return the path of a segment."""
    return folder / "segments" / f"{stream}-{number:06d}.jsonl"


def records(path: Path) -> list[dict[str, Any]]:
    """Return the records of a segment, parsed by the standard library."""
    return [json.loads(line) for line in path.read_text("ascii").splitlines()]


def rewrite(path: Path, change: Callable[[list[bytes]], list[bytes]]) -> None:
    """Change the lines of a segment, newlines kept."""
    path.write_bytes(b"".join(change(path.read_bytes().splitlines(keepends=True))))


def verified(folder: Path, **options: Any) -> Report:
    """Return the verification of a folder after holding it to one whose segments were scanned beforehand."""
    options = {name: tuple(values) for name, values in options.items()}
    plain = verify(folder, **options)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sandbox.audit.verify.scans", lambda _paths, _processes: nullcontext(scan))
        scanned = verify(folder, **options)
    assert plain == scanned
    return plain
