"""Proofs of single records and of growth, for people who were not given the rest (RFC 6962 §2.1).

A proof of a record is the line itself, its place, the path to a signed head, and that head. Whoever holds the
public key can check it with nothing else: the line was there, at that place, when the head was signed.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from sandbox.audit.keys import check, head_text
from sandbox.audit.merkle import consistency_proof, inclusion_proof, verify_consistency, verify_inclusion
from sandbox.audit.record import AFTER, first_after, leaf
from sandbox.audit.tail import parse, read_lines, segments
from sandbox.errors import UsageError


def lines(stream: str, paths: Iterable[Path]) -> Iterator[tuple[Path, int, bytes]]:
    """Yield segment, offset and bytes of every line that continues the chain; torn lines are passed over."""
    after = first_after(stream).encode()
    for path in paths:
        offset = 0
        with path.open("rb") as file:
            for raw in read_lines(file):
                line = raw.removesuffix(b"\n")
                if line[AFTER] == after:
                    yield path, offset, line
                    after = leaf(line).hex().encode()
                offset += len(raw)


def prove(folder: Path, stream: str, seq: int) -> dict[str, Any]:
    """Return the proof of one record as JSON values.

    Raises:
        UsageError: ``AUD-032``, there is no such record, or no signed head covers it yet.
    """
    texts = [line for _, _, line in lines(stream, segments(folder).get(stream, []))]
    head = _covering(texts, seq)
    leaves = [leaf(text) for text in texts[: head["size"]]]
    path = inclusion_proof(leaves, seq)
    return {"stream": stream, "seq": seq, "record": texts[seq].decode(), "head": head, "path": _base64(path)}


def prove_growth(folder: Path, stream: str, old_size: int) -> dict[str, Any]:
    """Return the proof that the stream with ``old_size`` records grew into what its newest head covers.

    Raises:
        UsageError: ``AUD-032``, there was no such state, or no signed head covers it yet.
    """
    texts = [line for _, _, line in lines(stream, segments(folder).get(stream, []))]
    head = _covering(texts, old_size - 1)
    leaves = [leaf(text) for text in texts[: head["size"]]]
    return {"stream": stream, "old_size": old_size, "head": head, "path": _base64(consistency_proof(leaves, old_size))}


def _covering(texts: list[bytes], seq: int) -> dict[str, Any]:
    """Return the last signed head over a record."""
    for text in reversed(texts):
        record = parse(text) if b'"name":"audit.checkpoint"' in text else None
        if record is not None and record["name"] == "audit.checkpoint" and record["attrs"]["size"] > seq >= 0:
            return {key: record["attrs"][key] for key in ("size", "root", "key", "sig")}
    message = f"no signed head covers record {seq}" if 0 <= seq < len(texts) else f"there is no record {seq}"
    raise UsageError("AUD-032", message, "name a record of this stream; a running one signs every second")


def check_proof(proof: dict[str, Any], keys: Iterable[str]) -> bool:
    """Return whether a proof from :func:`prove` holds under one of the trusted public keys; never raises."""
    try:
        head, text = proof["head"], proof["record"].encode("ascii")
        path = [base64.b64decode(item, validate=True) for item in proof["path"]]
        record = parse(text)
        return (
            record is not None
            and record["seq"] == proof["seq"]
            and _signed(proof["stream"], head, keys)
            and verify_inclusion(proof["seq"], head["size"], leaf(text), path, base64.b64decode(head["root"]))
        )
    except (KeyError, TypeError, AttributeError, ValueError, binascii.Error):
        return False


def check_growth(proof: dict[str, Any], old_root: str, keys: Iterable[str]) -> bool:
    """Return whether a proof from :func:`prove_growth` leads from a known base64 root to a head under a trusted key."""
    try:
        head = proof["head"]
        path = [base64.b64decode(item, validate=True) for item in proof["path"]]
        roots = base64.b64decode(old_root, validate=True), base64.b64decode(head["root"], validate=True)
        return _signed(proof["stream"], head, keys) and verify_consistency(
            proof["old_size"], head["size"], *roots, path
        )
    except (KeyError, TypeError, AttributeError, ValueError, binascii.Error):
        return False


def _signed(stream: str, head: dict[str, Any], keys: Iterable[str]) -> bool:
    return head["key"] in set(keys) and check(head["key"], head_text(stream, head["size"], head["root"]), head["sig"])


def _base64(hashes: tuple[bytes, ...]) -> list[str]:
    return [base64.b64encode(item).decode() for item in hashes]
