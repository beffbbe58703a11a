"""Changes one entry of a client's configuration: the rest stays as it is, a diff is shown first, a backup is kept."""

from __future__ import annotations

import contextlib
import difflib
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import orjson
import tomlkit
import tomlkit.exceptions

from sandbox import jsontext
from sandbox.cli import options
from sandbox.cli.clients.kinds import ClientKind, Entry
from sandbox.errors import UsageError
from sandbox.limits import MIB

MAX_CONFIG: Final = 8 * MIB
"""Bytes of a configuration; Claude Code keeps much else in its own."""


@dataclass(frozen=True, slots=True)
class Change:
    """A file before and after.

    Attributes:
        path: of the file, links followed.
        before: text, empty for a file that is not there.
        after: text.
    """

    path: Path
    before: str
    after: str

    def diff(self) -> str:
        """Return the unified diff."""
        lines = difflib.unified_diff(
            self.before.splitlines(keepends=True), self.after.splitlines(keepends=True), str(self.path), str(self.path)
        )
        return "".join(line if line.endswith("\n") else line + "\n" for line in lines)

    def write(self) -> Path | None:
        """Replace the file at once, its mode kept, and return the backup of what it was.

        Raises:
            UsageError: ``CLI-189``, the file changed since it was read.
        """
        now = _text(self.path)
        if now != self.before:
            raise UsageError("CLI-189", f"{self.path} changed meanwhile", "run the command again")
        self.path.parent.mkdir(parents=True, exist_ok=True)
        backup = _backup(self.path) if self.path.exists() else None
        mode = self.path.stat().st_mode & 0o777 if backup is not None else 0o600
        descriptor, name = tempfile.mkstemp(dir=self.path.parent, prefix=f".{self.path.name}.")
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(self.after)
                file.flush()
                os.fsync(file.fileno())
            Path(name).chmod(mode)
            Path(name).replace(self.path)
        except BaseException:
            with contextlib.suppress(OSError):
                Path(name).unlink()
            raise
        return backup


def _backup(path: Path) -> Path:
    """Keep a copy of a file under a name that nothing has; readable for its owner only."""
    for number in range(1, 1000):
        backup = path.with_name(f"{path.name}.mcp-sandbox-{number}.bak")
        with contextlib.suppress(FileExistsError):
            descriptor = os.open(backup, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(path.read_bytes())
            return backup
    raise UsageError("CLI-189", f"{path} has a thousand backups", "remove old ones")


def _text(path: Path) -> str:
    if not path.exists():
        return ""
    try:
        return options.read_file(path, MAX_CONFIG).decode("utf-8")
    except UnicodeDecodeError:
        raise UsageError("CLI-189", f"{path} is not UTF-8", "save it as UTF-8") from None


def entries(kind: ClientKind, path: Path) -> Mapping[str, Any]:
    """Return the servers of a configuration by name.

    Raises:
        UsageError: ``CLI-189``, it cannot be read.
    """
    found = _parsed(kind, path, _text(path)).get(kind.table, {})
    return found if isinstance(found, dict) else {}


def changed(kind: ClientKind, path: Path, name: str, entry: Entry | None) -> Change:
    """Return a configuration with an entry set, or taken out for ``None``.

    Raises:
        UsageError: ``CLI-189``, it cannot be read without losing what stands in it.
    """
    real = Path(os.path.realpath(path))
    before = _text(real)
    value = _parsed(kind, real, before)
    table = value.get(kind.table)
    if table is None:
        table = value[kind.table] = tomlkit.table(is_super_table=True) if kind.toml else {}
        table = value[kind.table]
    if not isinstance(table, dict):
        raise UsageError("CLI-189", f"`{kind.table}` of {real} is no table", "correct the file")
    if entry is None:
        table.pop(name, None)
    else:
        table[name] = dict(entry)
    after = tomlkit.dumps(value) if kind.toml else orjson.dumps(value, option=orjson.OPT_INDENT_2).decode() + "\n"
    return Change(real, before, after)


def _parsed(kind: ClientKind, path: Path, text: str) -> Any:
    """Return a configuration; comments in TOML are kept, and JSON that has some is refused rather than rewritten."""
    try:
        if kind.toml:
            return tomlkit.parse(text)
        value = jsontext.parse(text.encode()) if text.strip() else {}
    except tomlkit.exceptions.ParseError as error:
        raise UsageError("CLI-189", f"{path} is no TOML: {error}", "correct the file") from None
    except (jsontext.JsonTextError, jsontext.JsonBoundError) as error:
        mend = "take comments and trailing commas out, or paste the entry by hand"
        raise UsageError("CLI-189", f"{path} is no strict JSON: {error}", mend) from None
    if not isinstance(value, dict):
        raise UsageError("CLI-189", f"{path} is no JSON object", "correct the file")
    return value
