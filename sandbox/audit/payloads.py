"""Values that an operator chose to keep, beside the trail and not in it, so that they can be erased.

By default nothing is kept: records hold keys, types and sizes (B0-8). Where policy names a field (``read.path``:
the argument ``path`` of the tool ``read``), its value goes to ``payloads/<stream>.jsonl`` with a random salt, and
the record holds a reference and the salted digest. The digest proves later that this was the value; once the line
is erased, salt and value are gone, and the digest of a value that could be guessed says nothing. The chain is over
records only and holds as before.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import orjson

from sandbox import jsontext
from sandbox.audit.files import FILE_MODE, private_folder, unavailable
from sandbox.audit.record import plain
from sandbox.audit.redact import Redactor
from sandbox.limits import KIB

FOLDER: Final = "payloads"

MAX_VALUE_BYTES: Final = 16 * KIB
"""Of one kept value; larger ones are not kept, and the record says so."""

_SALT_BYTES: Final = 16


def digest(salt: str, value: Any) -> str:
    """Return the salted digest of a value, as records hold it."""
    return sha256(bytes.fromhex(salt) + jsontext.canonical(value)).hexdigest()


class Payloads:
    """Keeps the values of one stream.

    Args:
        folder: the audit folder.
        stream: name of the stream whose records refer to them.
        allowed: fields that policy lets keep, as ``tool.argument``.
        redactor: takes known secrets out before anything is kept.
    """

    def __init__(self, folder: Path, stream: str, allowed: Iterable[str], redactor: Redactor | None = None) -> None:
        self._path = folder / FOLDER / f"{stream}.jsonl"
        self._allowed = frozenset(allowed)
        self._redactor = redactor or Redactor()

    def keep(self, tenant: str, tool: str, arguments: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
        """Keep the allowed arguments of one call; return argument → reference for its record's attributes.

        Raises:
            AuditUnavailable: ``AUD-012``, they cannot be written.
        """
        found = {name: value for name, value in arguments.items() if f"{tool}.{name}" in self._allowed}
        return {name: self._keep(tenant, value) for name, value in found.items()}

    def _keep(self, tenant: str, value: Any) -> dict[str, Any]:
        value = self._redactor.text(plain(value))
        size = len(orjson.dumps(value))
        if size > MAX_VALUE_BYTES:
            return {"bytes": size, "kept": False}
        reference, salt = secrets.token_hex(8), secrets.token_hex(_SALT_BYTES)
        line = jsontext.canonical({"ref": reference, "tenant": tenant, "salt": salt, "value": value}) + b"\n"
        try:
            private_folder(self._path.parent)
            descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
            try:
                os.write(descriptor, line)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise unavailable("AUD-012", f"a value cannot be kept: {error.strerror or error}") from None
        return {"ref": reference, "sha256": digest(salt, value), "bytes": size}


def recall(folder: Path, reference: Mapping[str, Any]) -> Any:
    """Return a kept value whose digest is the record's.

    Raises:
        KeyError: it was erased, or never kept.
        ValueError: what is kept is not what was recorded.
    """
    for entry in _entries(folder):
        if entry["ref"] == reference["ref"]:
            if digest(entry["salt"], entry["value"]) != reference["sha256"]:
                raise ValueError("the kept value is not the recorded one")
            return entry["value"]
    raise KeyError(reference["ref"])


def erase(folder: Path, tenant: str, record: Callable[[int], None]) -> int:
    """Erase every kept value of a tenant and return how many there were.

    Args:
        folder: the audit folder.
        tenant: whose.
        record: records the erasure, before anything is erased (``audit.erase``).

    Raises:
        OSError: a file cannot be rewritten.
    """
    paths = sorted((folder / FOLDER).glob("*.jsonl")) if (folder / FOLDER).is_dir() else []
    matching = {path: sum(1 for entry in _read(path) if entry["tenant"] == tenant) for path in paths}
    total: int = sum(matching.values())
    record(total)
    for path in (path for path, number in matching.items() if number):
        kept = b"".join(jsontext.canonical(entry) + b"\n" for entry in _read(path) if entry["tenant"] != tenant)
        temporary = path.with_suffix(".new")
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, FILE_MODE)
        with os.fdopen(descriptor, "wb") as file:
            file.write(kept)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    return total


def export(folder: Path, tenant: str) -> list[dict[str, Any]]:
    """Return every kept value of a tenant, with its reference."""
    return [{"ref": entry["ref"], "value": entry["value"]} for entry in _entries(folder) if entry["tenant"] == tenant]


def _entries(folder: Path) -> list[dict[str, Any]]:
    paths = sorted((folder / FOLDER).glob("*.jsonl")) if (folder / FOLDER).is_dir() else []
    return [entry for path in paths for entry in _read(path)]


def _read(path: Path) -> list[dict[str, Any]]:
    """Return the whole lines of a file; what a dying process left of one is no value."""
    found = []
    for line in path.read_bytes().splitlines():
        try:
            entry = orjson.loads(line)
        except orjson.JSONDecodeError:
            continue
        if isinstance(entry, dict) and {"ref", "tenant", "salt", "value"} <= set(entry):
            found.append(entry)
    return found
